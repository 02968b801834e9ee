"""One session of a study: checked, its text prepared, its trials run, to its answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import TYPE_CHECKING, Protocol

from orchestrator.analysis.selection import best_of_search
from orchestrator.config.files import write_frozen
from orchestrator.config.folder import LEDGER, anew, tasks_in
from orchestrator.config.study import StudySpec
from orchestrator.execution.stopping import Stopping
from orchestrator.ledger import records
from orchestrator.ledger.history import History
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.requests import Inbox
from orchestrator.reporting.track.companion import companions
from trainables.errors import InputError
from trainables.object_store import Patience
from trainables.storage import Location

if TYPE_CHECKING:
    from collections.abc import Generator

    from transformers import PreTrainedTokenizerFast

    from orchestrator.execution.executor import Executor
    from orchestrator.scheduling.trials import PhaseOfTrials
    from trainables.corpora.config import CorporaConfig
    from trainables.corpora.preparation.progress import Progress


class StudyError(Exception):
    """The study cannot come to a comparison."""


class Say(Protocol):
    """Is told what goes on, as ``print`` can be."""

    def __call__(self, what: str, how_far: str = ..., /) -> None:
        """Take in what is done now, and, where that is known, how far it is."""


class Session:
    """Takes a study from where earlier sessions left it to its answer.

    Args:
        spec: as it is frozen.
        folder: of the study.
        tell: told what is done now. Raises KeyboardInterrupt if the study is to stop.
        placed: errors inside it name where a key was set.
        stopping: the wish that the study stops, which is brought about while trials run.
    """

    def __init__(
        self,
        spec: StudySpec,
        folder: Location,
        tell: Say,
        placed: Callable[[], AbstractContextManager[None]],
        stopping: Stopping,
    ) -> None:
        self._spec, self._folder, self._tell, self._placed, self._stopping = spec, folder, tell, placed, stopping

    def run(self, address: str | None, history: History) -> None:
        """Run what the ``history`` lacks. Raises what :meth:`Study.run` does, but KeyboardInterrupt where the study
        was stopped, its state saved."""
        self._tell("loading what checks the study")
        from orchestrator.execution.beginning import begin_session, make_executor
        from orchestrator.execution.ray_session import cluster_machine, ray_address, ray_session
        from orchestrator.execution.shared_places import require_shared
        from orchestrator.planning.machine import Machine
        from orchestrator.planning.preflight import check_study, require_placeable

        address, machine = ray_address(address), Machine.here()
        with self._placed():
            # What is prepared already needs its sources no more.
            self._tell("reading the text, checking the models")
            tokenizer = None if self._prepared_corpus(history) else check_study(self._spec)
            tasks = self._tasks(history, tokenizer)
            if address is None:
                require_placeable(self._spec, machine)
        Patience.seconds = Patience.FOR_STUDIES
        recorder = Recorder(self._folder / LEDGER, self._tell)
        try:
            if recorder.history.finished:  # by another process, while this one waited to lead it
                return
            self._tell("starting Ray on this machine" if address is None else f"connecting to Ray at {address}")
            with ray_session(address, machine, dashboard=machine.launcher(self._spec.resources) == "ray_train"):
                if address is not None:
                    machine = cluster_machine(self._spec.resources)
                    with self._placed():
                        require_shared(self._spec, reads_text=tokenizer is not None)
                if recorder.history.study is None:  # only now: what cannot start takes no name
                    write_frozen(self._spec, self._folder)
                with companions(self._folder, self._spec.report_to, recorder.event):
                    begin_session(recorder, self._spec, self._folder, machine, on_cluster=address is not None)
                    executor = make_executor(
                        recorder, self._spec, self._folder, machine, keeps_processes=address is None
                    )
                    self._run_phases(executor, tokenizer, tasks)
                    recorder.flush()  # an answer that nobody can read is none
        except KeyboardInterrupt:
            if recorder.history.study is not None:
                with suppress(InputError):
                    recorder.record(records.StopRecord(status="end"))
            raise
        finally:
            recorder.close()

    def _prepared_corpus(self, history: History) -> Location | None:
        """The packed corpus that an earlier session of this study recorded, if it is still there."""
        if history.corpus is None:
            return None
        corpus = Location(self._spec.storage) / "corpora" / history.corpus.fingerprint
        return corpus if (corpus / "manifest.json").exists() else None

    def _tasks(self, history: History, tokenizer: PreTrainedTokenizerFast | None) -> records.TasksRecord | None:
        """What the ledger is to say of the downstream tasks, which are prepared now, where they are not yet."""
        suite = self._spec.yardsticks.tasks
        if suite is None:
            return None
        from orchestrator.planning.tasks import prepared_tasks, require_same_tasks

        store = tasks_in(Location(self._spec.storage))
        if history.tasks is not None and (store / history.tasks.digest / "manifest.json").exists():
            return history.tasks
        self._tell("reading the downstream tasks")
        found = prepared_tasks(self._spec, suite, store, tokenizer)
        require_same_tasks(history, found, self._folder)
        return found

    def _run_phases(
        self, executor: Executor, tokenizer: PreTrainedTokenizerFast | None, tasks: records.TasksRecord | None
    ) -> None:
        from orchestrator.analysis.compare import compare
        from orchestrator.execution.watches import watching

        recorder = executor.recorder
        inbox = Inbox(self._folder, recorder.flush)
        inbox.look()  # what was asked for while nothing ran is known before anything is decided
        with watching(executor, inbox), self._stopping.brought_about_by(executor):
            corpus = self._corpus_of(recorder, tokenizer)
            if tasks is not None and recorder.history.tasks is None:
                recorder.record(tasks)
            self._tell("starting trials")
            with closing(self._training_phases(executor, inbox, str(corpus))) as phases:
                executor.run(phases)
            require_whole(executor)
            self._fine_tune(recorder)
            with recorder.phase("compare"):
                comparison = compare(recorder.history).to_json()
                recorder.record(records.ComparisonRecord(comparison=comparison))

    def _fine_tune(self, recorder: Recorder) -> None:
        suite, tasks = self._spec.yardsticks.tasks, recorder.history.tasks
        if suite is None or tasks is None or recorder.history.phases.get("fine_tuning") == "end":
            return
        if not suite.tuned(tasks.tasks):
            return
        from orchestrator.execution.evaluation import tune_runs

        with recorder.phase("fine_tuning"):
            recorder.flush()  # what runs elsewhere reads the ledger
            tune_runs(
                recorder, self._spec, self._folder, tasks_in(Location(self._spec.storage)) / tasks.digest, self._tell
            )

    def _corpus_of(self, recorder: Recorder, tokenizer: PreTrainedTokenizerFast | None) -> Location:
        """The prepared corpus: an earlier session's, or prepared now."""
        from orchestrator.planning.resolution import require_resolvable
        from orchestrator.reporting.corpus import STAGES, how_far, in_words
        from trainables.corpora.preparation.prepare import prepare, warnings
        from trainables.corpora.stream.packed import PackedCorpus

        self._tell("looking for the prepared text")
        history = recorder.history
        prepared = self._prepared_corpus(history)
        if prepared is not None:
            return prepared
        assert tokenizer is not None, "it was made where no corpus is prepared"
        store = Location(self._spec.storage) / "corpora"

        def tell(progress: Progress) -> None:
            if progress.stage in STAGES:
                self._tell(STAGES[progress.stage], how_far(progress))
            else:
                recorder.event(in_words(progress))

        with recorder.phase("prepare"):
            manifest = prepare(self._spec.corpora, tokenizer, store, progress=tell)
            for warning in warnings(manifest):
                recorder.event(warning)
            self._require_same_corpus(history, manifest.fingerprint)
            corpus = store / manifest.fingerprint
            with self._placed():
                if warning := require_resolvable(self._spec, PackedCorpus(corpus)):
                    recorder.event(warning)
            recorder.record(corpus_record(corpus, self._spec.corpora))
        return corpus

    def _require_same_corpus(self, history: History, fingerprint: str) -> None:
        """Refuse to go on in another text: a trial's place in the stream would be one in that of the other."""
        if history.corpus is None or history.corpus.fingerprint == fingerprint:
            return
        known = history.corpus.fingerprint
        raise InputError(
            f"the study's corpus {known} is gone, and its sources now give {fingerprint}",
            where=str(Location(self._spec.storage) / "corpora" / known),
            why="the text, the tokenizer or this program's format changed since the study began: its trials cannot "
            "go on with another text, nor be compared",
            remedy=f"bring back that folder or the text as it was, then h2h resume {self._folder}; or begin anew with "
            f"the text as it is: {anew(self._folder)}",
        )

    def _training_phases(self, executor: Executor, inbox: Inbox, corpus: str) -> Generator[PhaseOfTrials, None, None]:
        """Those that train; one is over, with what follows from it, when the next is asked for."""
        from orchestrator.reporting.optuna_journal import write_optuna_journal
        from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
        from orchestrator.scheduling.enqueueing import TakesUpRequests
        from orchestrator.scheduling.search import SearchPhase

        spec, recorder, history = self._spec, executor.recorder, executor.recorder.history
        if history.phases.get("search") != "end":
            with recorder.phase("search"):
                search = SearchPhase(spec, history, corpus)
                yield TakesUpRequests(search, inbox, spec, history, recorder.record, recorder.event)
                _end_early(recorder, "search", search)
                if spec.search.budget_per_arm:
                    _require_best(history)
                    write_optuna_journal(self._folder, spec, history)
        if history.phases.get("confirm") != "end":
            with recorder.phase("confirm"):
                confirmation = ConfirmPhase(spec, history, corpus, executor.concurrent_trials)
                yield confirmation
                _end_early(recorder, "confirm", confirmation, confirmation.seeds_begun())
        if history.phases.get("anytime") != "end" and spec.confirm.anytime:
            with recorder.phase("anytime"):
                yield AnytimePhase(spec, history, corpus)


def corpus_record(folder: Location, corpora: CorporaConfig) -> records.CorpusRecord:
    """What the ledger says of a prepared corpus."""
    from trainables.corpora.stream.packed import PackedCorpus
    from trainables.corpora.stream.token_stream import TokenStream

    packed = PackedCorpus(folder)
    stream = TokenStream(packed, 0, corpora.alpha, corpora.maximum_repetition)
    manifest = packed.manifest
    counts = manifest.splits["train"]
    return records.CorpusRecord(
        fingerprint=manifest.fingerprint,
        vocabulary_size=manifest.vocabulary_size,
        sequence_length=manifest.sequence_length,
        files=packed.digests(),
        languages={
            language: records.CorpusLanguage(
                documents=counts[language].documents,
                tokens=counts[language].tokens,
                sequences=counts[language].sequences,
                target_share=float(share),
            )
            for language, share in zip(packed.languages, stream.share_l, strict=True)
        },
    )


def _end_early(recorder: Recorder, name: records.TrainingPhase, phase: PhaseOfTrials, seeds: int | None = None) -> None:
    """Record that the study's cap ended a phase, if it did."""
    if message := phase.ended_early():
        recorder.record(records.CapRecord(message=message, phase=name, seeds=seeds))


def _require_best(history: History) -> None:
    """Raises StudyError if of an arm there is nothing to confirm."""
    for arm in history.design.arms:
        if best_of_search(history, arm) is None:
            ends = [f"{t.trial} {t.outcome}: {t.reason}" for t in history.trials_of("search", arm)]
            capped = [event.message for event in history.events if isinstance(event, records.CapRecord)]
            listing = ". ".join(filter(None, ["; ".join(ends), *capped[-1:]]))
            raise StudyError(f"no search trial of the arm {arm} completed, so there is nothing to confirm. {listing}")


def require_whole(executor: Executor) -> None:
    """Raises InputError if the disk was full, and KeyboardInterrupt if the trials were saved and stopped."""
    if executor.full_disk:
        raise InputError(
            "the disk is full: a trial's checkpoint could not be written",
            where=str(executor.folder),
            why=executor.full_disk,
            remedy=f"make space there; then h2h resume {executor.folder} goes on from the checkpoints",
        )
    if executor.interrupted:
        raise KeyboardInterrupt
