"""What a study has trained: a completed trial's model, as its last checkpoint has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.trials import Planner
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from trainables.objectives.learner import Learner
    from trainables.training.config import TrialConfig


class Trained(NamedTuple):
    """A completed trial's."""

    config: TrialConfig
    corpus: PackedCorpus
    learner: Learner


def corpus_of(history: History, spec: StudySpec, folder: Location) -> PackedCorpus:
    """The study's corpus, beside the study, wherever that was moved to, or in the storage that it was run in. Raises
    InputError if it is in neither."""
    assert history.corpus is not None, "a trial was completed"
    places = [store / "corpora" / history.corpus.fingerprint for store in (folder.parent, Location(spec.storage))]
    return PackedCorpus(next((place for place in places if (place / "manifest.json").exists()), places[-1]))


def trained(history: History, spec: StudySpec, run: TrialHistory, folder: Location) -> Trained:
    """The learner of a completed trial, on the CPU. Raises InputError if its checkpoint or the corpus is gone, does not
    fit, or is not that of the run's end."""
    from trainables.corpora.stream.token_stream import TokenStream
    from trainables.training.checkpoint import Checkpoints
    from trainables.training.checkpoint_tensors import module_tensors
    from trainables.training.loop import make_learner

    corpus = corpus_of(history, spec, folder)
    config = Planner(spec, history, str(corpus.folder)).plan_again(run).config
    checkpoints = Checkpoints(folder / "trials" / config.trial)
    places = checkpoints.whole()
    if not places:
        raise InputError(
            f"the trial {config.trial} has no checkpoint",
            where=str(checkpoints.folder),
            why="it was removed, or the study's folder was copied without its trials",
            remedy="another trial: --trial NAME",
        )
    learner = make_learner(config, TokenStream(corpus, config.seed, config.alpha, config.maximum_repetition))
    try:
        saved = checkpoints.read_model(places[-1])
    except InputError as error:
        raise _unreadable(error.where, error.why) from error
    if not saved.finished or run.measures[-1].checkpoint not in (None, saved.model_digest):
        raise _unreadable(str(places[-1].folder), "it is not the model that the run reported at its end")
    weights = saved.tensors["model"]
    if learner.head is None and any(name.startswith("head.") for name in weights):
        learner.restore_head()
    own = module_tensors(learner)
    differ = {name for name in own.keys() | weights if name not in own or name not in weights}
    differ |= {name for name in own.keys() - differ if own[name].shape != weights[name].shape}
    if differ:
        raise _unreadable(str(checkpoints.folder), f"parameters differ: {', '.join(sorted(differ)[:4])}")
    learner.load_state_dict(weights, strict=False)  # second names of tied weights are not among them
    return Trained(config, corpus, learner.eval())


def _unreadable(where: str, why: str) -> InputError:
    return InputError(
        "the checkpoint cannot be loaded",
        where=where,
        why=why,
        remedy="the code and configuration that made it, or another trial: --trial NAME",
    )
