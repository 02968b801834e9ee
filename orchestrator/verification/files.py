"""The files beside the ledger, held against the digests and the scores that it has of them."""

from collections.abc import Callable, Mapping
from functools import partial

from pydantic import JsonValue

from orchestrator.config.confirmation import TASKS
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_evaluation, read_floors, read_items, read_tuning
from orchestrator.ledger.records import BROKEN
from orchestrator.ledger.trials import TrialHistory
from orchestrator.verification.findings import Verification
from trainables.errors import InputError
from trainables.evaluation.item_scores import ItemScores
from trainables.evaluation.registry import find_yardstick
from trainables.evaluation.yardstick import Score, transformed
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders, CheckpointRecord, DamagedError
from trainables.training.state import Floors

ByScorer = Mapping[str, Mapping[str, Score]]  # scores by scorer, or table, and yardstick


def scores_of(trial: TrialHistory) -> ByScorer:
    """What a trial's last report says."""
    last = trial.measures[-1]
    return {**last.other_scorers, **({} if last.scorer is None else {last.scorer: last.yardsticks})}


def scores_of_floors(floors: Floors) -> ByScorer:
    """The same of what was measured before the first step."""
    return {"untrained": floors.untrained, **floors.tables}


def check_checkpoints(found: Verification, history: History, folder: Location) -> None:
    """Those of completed runs that are there are the ones whose digests the reports have; no other run has one of a
    finished model."""
    missing = completed = 0
    for trial in history.trials.values():
        folders = CheckpointFolders(folder / "trials" / trial.trial)
        if trial.outcome in ("lost", *BROKEN) and _has_finished(folders):
            where = f"{trial.trial}: the outcome of a run with a finished model"
            found.check("checkpoints", where, trial.outcome, "completed")
        if trial.outcome != "completed" or not trial.measures:
            continue
        digest, completed = trial.measures[-1].checkpoint, completed + 1
        if trial.environment is not None:  # of a version that writes it
            found.check("checkpoints", f"{trial.trial}: its report has a digest", digest is not None, True)
        places = {place.step: place.folder for place in folders.whole()}
        if digest is None or not places:
            missing += 1
            continue
        place = places.get(trial.measures[-1].step, folders.folder)
        try:
            record = CheckpointRecord.read(place)
        except (DamagedError, InputError) as error:
            found.check("checkpoints", str(place), str(error), "the checkpoint of its report")
            continue
        found.check("checkpoints", str(place), digest, record.model_digest)
        if digest == record.model_digest:
            _check_state(found, trial, record)
        for name, file in record.files.items():
            if file.group == "model":
                own = place / name
                found.check("checkpoints", str(own), file.checksum, checksum(own.read_bytes()) if own.exists() else "")
    if missing:
        found.notes.append(f"{missing:,} of {completed:,} completed runs have no checkpoint here with a digest")


def _check_state(found: Verification, trial: TrialHistory, record: CheckpointRecord) -> None:
    """A finished model's own record says the same as the ledger of what it was trained on, and of its way."""
    last, reports = trial.measures[-1], {report.step: report for report in record.state.reports if report.yardsticks}
    if record.step == last.step:
        where = f"{trial.trial}: what it was trained on, by its checkpoint"
        found.check("checkpoints", where, last.digest, record.state.digest)
    for measure in trial.evaluations:
        report = reports.get(measure.step)
        if report is None or measure is last:  # the last one's scores are its items'
            continue
        where = f"{trial.trial} step {measure.step}, by its checkpoint"
        found.check("checkpoints", f"{where}: progress", measure.progress, report.progress)
        for name, score in measure.yardsticks.items():
            found.check("checkpoints", f"{where}: {name}", as_json(score), as_json(report.yardsticks.get(name)))


def check_names(found: Verification, history: History, folder: Location) -> None:
    """No files lie there of runs that the ledger does not have; of branches some may, which a cap left no room for."""
    for room in ("trials", "items"):
        for name in (folder / room).names():
            trial = name.removesuffix(".parquet").removesuffix("-floors")
            if not trial.startswith("anytime-"):
                found.check("files", str(folder / room / name), trial in history.trials, True)


def _has_finished(folders: CheckpointFolders) -> bool:
    """Whether the newest checkpoint is one of a run that came to its end."""
    places = folders.whole()
    try:
        return bool(places) and CheckpointRecord.read(places[-1].folder).finished
    except (DamagedError, InputError):
        return False


def check_items(found: Verification, history: History, folder: Location) -> bool:
    """The scores of a run's items are those that it reported, and add up to its yardsticks. Whether all files are
    there."""
    whole, wanted = True, any(find_yardstick(name).has_items() for name in history.design.yardsticks.names)
    for trial in history.trials.values():
        named = bool(trial.measures) and trial.measures[-1].items is not None
        if wanted and trial.built and trial.outcome == "completed" and trial.phase != "search":
            found.check("item scores", f"{trial.trial}: its report names their file", named, True)
        if named:
            read = partial(read_items, folder, trial)
            whole &= _check_file(found, "item scores", trial.trial, scores_of(trial), read)
    return whole


def check_floors(found: Verification, history: History, folder: Location) -> bool:
    """The same of what was measured before the first step; tables are the same for all arms of a task."""
    whole, tables = True, dict[str, tuple[str, ByScorer]]()
    for trial in (trial for arm in history.design.arms for trial in history.trials_of("confirm", arm)):
        if trial.floors is None:
            continue
        where, recorded = f"{trial.trial} before its first step", scores_of_floors(trial.floors)
        if not _check_file(found, "floors", where, recorded, partial(read_floors, folder, trial)):
            whole = False
            continue
        task = history.design.arms[trial.arm].task
        first, scores = tables.setdefault(task, (trial.trial, trial.floors.tables))
        for table in {**scores, **trial.floors.tables}:
            for name in {**scores.get(table, {}), **trial.floors.tables.get(table, {})}:
                own, other = (as_json(one.get(table, {}).get(name)) for one in (trial.floors.tables, scores))
                found.check("floors", f"{trial.trial}: {name} by {table} as of {first}", own, other)
    for arm in history.design.arms:
        if any(trial.built and trial.measures for trial in history.trials_of("confirm", arm)):
            found.check("floors", f"{arm}: a confirmation run measured them", arm in history.floors, True)
    return whole


def check_asked(found: Verification, history: History, folder: Location) -> None:
    """What models were asked when their training had ended, and what they were fine-tuned to, add up as recorded."""
    evaluations = [record for own in history.evaluations.values() for record in own.values()]
    for evaluation in evaluations:
        recorded = {str(scorer): {TASKS: score} for scorer, score in evaluation.scores.items()}
        _check_file(found, "tasks", evaluation.trial, recorded, partial(read_evaluation, folder, evaluation))
    for tuning in history.tunings.values():
        recorded = {f"fine-tuning {number}": {TASKS: score} for number, score in enumerate(tuning.scores)}
        where = f"{tuning.trial}, fine-tuned to {tuning.task} at {tuning.rate:g}"
        _check_file(found, "tasks", where, recorded, partial(read_tuning, folder, tuning))


def _check_file(
    found: Verification,
    kind: str,
    where: str,
    recorded: ByScorer,
    read: Callable[[], Mapping[tuple[str, str], ItemScores]],
) -> bool:
    """What is recorded is what the file of its items comes to. Whether that is there, and the one that was recorded."""
    try:
        items = read()
    except InputError as error:
        found.check(kind, error.where, error.what, "the file of its record")
        return False
    _check_sums(found, kind, where, recorded, items)
    return True


def _check_sums(
    found: Verification, kind: str, where: str, recorded: ByScorer, items: Mapping[tuple[str, str], ItemScores]
) -> None:
    """What is recorded is what the items come to, and nothing of either is without the other."""
    kept = {
        (name, scorer) for scorer, scores in recorded.items() for name in scores if find_yardstick(name).has_items()
    }
    for yardstick, scorer in sorted(kept | items.keys()):
        own, score = items.get((yardstick, scorer)), recorded.get(scorer, {}).get(yardstick)
        derived = None
        if own is not None:
            languages = {name: transformed(own.transform, part.ratio) for name, part in own.languages.items()}
            metrics = {} if score is None else score.metrics  # which no items tell
            derived = Score(overall=own.overall, languages=languages, metrics=metrics)
        found.check(kind, f"{where}: {yardstick} by {scorer}", as_json(score), as_json(derived))


def as_json(score: Score | None) -> JsonValue:
    """None where there is none."""
    return None if score is None else score.model_dump(mode="json")
