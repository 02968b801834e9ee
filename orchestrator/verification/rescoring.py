"""Trained models, taken from their checkpoints and scored again on the held-out text, without Ray."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import JsonValue

from orchestrator.config.files import open_frozen
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_floors, read_items
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.trained import corpus_of, trained
from orchestrator.scheduling.trials import Planner
from orchestrator.verification.files import ByScorer, as_json, scores_of, scores_of_floors
from orchestrator.verification.findings import Verification
from trainables.errors import InputError
from trainables.evaluation.item_scores import ItemScores, from_parquet, items_file, to_parquet
from trainables.evaluation.yardstick import Score
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders
from trainables.training.environment import environment

if TYPE_CHECKING:
    import torch

ELSEWHERE = 1e-3
"""How far scores, relative to what is larger than 1, and in the mean an item's, may lie from those of another device,
processor or version: tokens whose scores are nearly equal may change places there."""

Items = Mapping[tuple[str, str], ItemScores]


class _Again(NamedTuple):
    """A model's scores, and its items'."""

    scores: ByScorer
    items: Items


def rescore(found: Verification, history: History, folder: Location, most: int, seed: int) -> None:
    """So many of the completed runs, by chance, and the floors of all arms. Raises InputError if the text is gone."""
    spec, completed = open_frozen(folder), _with_checkpoint(history, folder)
    chosen = random.Random(seed).sample(completed, min(most, len(completed)))
    corpus_of(history, spec, folder)
    floors = [history.trials[name] for name in history.floors.values()]
    elsewhere = [run.trial for run in (*chosen, *floors) if not _as_it_was(run)]
    found.notes.append(
        f"scored again, chosen by --seed {seed} of {len(completed):,} checkpoints: "
        f"{', '.join(run.trial for run in chosen) or 'none'}; "
        + (f"to within {ELSEWHERE:g}, as device or versions are others here" if elsewhere else "exactly")
    )
    for run in chosen:
        try:
            again, recorded = _scored(history, spec, run, folder), _Again(scores_of(run), read_items(folder, run))
        except InputError as error:
            found.check("scored again", f"{run.trial}: {error.where}", error.what, "the model of its report")
            continue
        _compare(found, run, run.trial, recorded, again)
    for run in floors:
        assert run.floors is not None, "it measured them"
        try:
            again = _floors(history, spec, run, folder)
            recorded = _Again(scores_of_floors(run.floors), read_floors(folder, run))
        except InputError as error:
            found.check("scored again", f"{run.trial}: {error.where}", error.what, "what its report says")
            continue
        _compare(found, run, f"{run.trial} before its first step", recorded, again)


def _with_checkpoint(history: History, folder: Location) -> list[TrialHistory]:
    completed = (run for run in history.trials.values() if run.outcome == "completed" and run.measures)
    return [run for run in completed if CheckpointFolders(folder / "trials" / run.trial).steps()]


def _device(run: TrialHistory) -> torch.device:
    """A GPU where the run was on one, and there is one; on the CPU, with as many threads."""
    import torch

    if run.environment is not None and run.environment.threads:
        torch.set_num_threads(run.environment.threads)
    wanted = any(built.device != "cpu" for built in run.built) and torch.cuda.is_available()
    return torch.device("cuda" if wanted else "cpu")


def _scored(history: History, spec: StudySpec, run: TrialHistory, folder: Location) -> _Again:
    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.passes import take

    config, corpus, learner = trained(history, spec, run, folder)
    tasks = None if config.tasks is None else Location(config.tasks)
    held_out = HeldOut(corpus, config.evaluation, config.split, tasks=tasks)
    taken = take(learner.to(_device(run)), held_out, config.yardsticks)
    items = {str(scorer): own.items for scorer, own in taken.items() if own.items}
    read = from_parquet(to_parquet(items), run.trial) if items else {}
    return _Again({str(scorer): own.scores for scorer, own in taken.items()}, read)


def _floors(history: History, spec: StudySpec, run: TrialHistory, folder: Location) -> _Again:
    """As the trial itself measures them."""
    from trainables.corpora.stream.token_stream import TokenStream
    from trainables.training.loop import Trial
    from trainables.training.world import World

    corpus = corpus_of(history, spec, folder)
    config = Planner(spec, history, str(corpus.folder)).plan_again(run).config.model_copy(update={"floors": True})
    stream = TokenStream(corpus, config.seed, config.alpha, config.maximum_repetition)
    with tempfile.TemporaryDirectory() as scratch:
        place = Location(scratch)
        floors = Trial(config, stream, world=World(device=_device(run)), study_folder=place).measure_floors()
        assert floors is not None, "it was asked for, and nothing was trained"
        file = items_file(place, config.trial, floors=True)
        items = from_parquet(file.read_bytes(), str(file)) if floors.items else {}
    return _Again(scores_of_floors(floors), items)


def _compare(found: Verification, run: TrialHistory, where: str, recorded: _Again, again: _Again) -> None:
    within = 0.0 if _as_it_was(run) else ELSEWHERE
    for scorer in {**recorded.scores, **again.scores}:
        own, other = recorded.scores.get(scorer, {}), again.scores.get(scorer, {})
        for name in {**own, **other}:
            one, two = own.get(name), other.get(name)
            found.check("scored again", f"{where}: {name} by {scorer}", _near(one, two, within), as_json(two))
    for yardstick, scorer in sorted(recorded.items.keys() | again.items.keys() if recorded.items else ()):
        kept, measured = (scores.items.get((yardstick, scorer)) for scores in (recorded, again))
        same = kept is not None and measured is not None and _same_items(kept, measured, within)
        found.check("scored again", f"{where}: items of {yardstick} by {scorer} are the same", same, True)


def _as_it_was(run: TrialHistory) -> bool:
    """Whether this process computes as the run's did, to the bit."""
    import torch

    device = _device(run)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return run.environment == environment() and all(built.device == name for built in run.built)


def _near(recorded: Score | None, again: Score | None, within: float) -> JsonValue:
    """What is recorded; what was measured again, where that is near enough."""
    if recorded is None or again is None:
        return as_json(recorded)
    pairs = [(recorded.overall, again.overall)]
    for values, others in ((recorded.languages, again.languages), (recorded.metrics, again.metrics)):
        if values.keys() != others.keys():
            return as_json(recorded)
        pairs += [(value, others[language]) for language, value in values.items()]
    near = all(abs(one - other) <= within * max(1.0, abs(other)) for one, other in pairs)
    return as_json(again if near else recorded)


def _same_items(recorded: ItemScores, again: ItemScores, within: float) -> bool:
    if not all(np.array_equal(getattr(recorded, key), getattr(again, key)) for key in ("language_I", "item_I")):
        return False
    apart = np.abs(recorded.value_I - again.value_I).sum() / max(1.0, np.abs(again.weight_I).sum())
    return bool(np.allclose(recorded.weight_I, again.weight_I) and apart <= max(within, 1e-9))
