"""A study: defined, run, resumed and read, from Python or from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from orchestrator.config.errors import place
from orchestrator.config.files import freeze, going_on, load_study, make_study, open_frozen, study_file, write_frozen
from orchestrator.config.folder import LEDGER, STUDY_FILE, anew, tasks_in
from orchestrator.config.study import StudySpec
from orchestrator.execution.stopping import Stopping
from orchestrator.ledger.history import read_history
from orchestrator.ledger.protocol import require_unchanged
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import ExtensionRecord, TasksRecord
from orchestrator.ledger.requests import Inbox
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.live_display import LiveDisplay
from orchestrator.reporting.results import Results
from orchestrator.session import Say, Session, StudyError
from trainables.errors import InputError
from trainables.evaluation.yardstick import TASK_ITEMS
from trainables.object_store import Patience
from trainables.storage import Location

if TYPE_CHECKING:
    from orchestrator.config.task_files import TasksSpec
    from orchestrator.scheduling.enqueueing import Enqueued
    from trainables.corpora.config import TokenizerConfig
    from trainables.corpora.preparation.progress import Progress
    from trainables.corpora.stream.packed import PackedCorpus

__all__ = ["Study", "StudyError", "StudyInterrupted"]


class StudyInterrupted(KeyboardInterrupt):
    """The study was stopped by the user; its state is saved."""

    def _render_traceback_(self) -> list[str]:
        """What notebooks show: nothing is wrong, so no traceback."""
        return [f"Interrupted: {self}"]


class Study:
    """One study and its folder: of a YAML file, a shipped study's name, nested dictionaries, or a validated
    :class:`StudySpec`; with ``overrides``, ``key=value`` each, as of ``--set``. Raises InputError if something in it is
    wrong."""

    def __init__(self, study: str | Path | Mapping[str, JsonValue] | StudySpec, overrides: Sequence[str] = ()) -> None:
        self.file, self._overrides = "study", overrides
        if isinstance(study, StudySpec):
            self.spec = make_study(study.model_dump(mode="json"), overrides) if overrides else study
        elif isinstance(study, Mapping):
            self.spec = make_study(study, overrides)
        else:
            self.file = str(study_file(study))
            self.spec = load_study(study, overrides)
        self.folder = Location(self.spec.storage) / self.spec.name
        self.say: Say = lambda *_: None
        """Told what is done now, in a few words, wherever that may take a while."""
        self._stopping = Stopping()
        self._background: Future[Results] | None = None
        self._display: LiveDisplay | None = None

    @classmethod
    def open(cls, folder: str | Path | Location) -> Study:
        """The study that lies in a folder, as it was frozen there. Raises InputError if there is none."""
        location = folder if isinstance(folder, Location) else Location(folder)
        study = cls(open_frozen(location))
        study.folder = location
        return study

    @property
    def results(self) -> Results:
        """Its results so far."""
        return Results(self.folder)

    def _repr_html_(self) -> str:
        try:
            return self.results._repr_html_()
        except InputError:  # it has not begun
            from orchestrator.reporting.notebook import study_html

            return study_html(self.spec, self.folder)

    def enqueue(self, arm: str, configuration: Mapping[str, object]) -> Enqueued:
        """Have an arm's search try a configuration, as its next new trial, paid from the arm's search budget. What is
        left out is as in the arm's first configuration. A study that runs, here or elsewhere, takes it up with the
        next report of a trial; one whose search has ended when it is extended. Raises InputError: the study has not
        begun or searches nothing, or the configuration is none of the arm's search space."""
        from orchestrator.scheduling.enqueueing import enqueue

        return enqueue(self.folder, arm, configuration)

    def start(self, address: str | None = None, *, resume: bool = False) -> None:
        """:meth:`run` in a thread, shown live in the cell of a notebook. This process does not end before it, but for
        :meth:`stop`. Raises InputError if it runs already."""
        if self._background is not None and not self._background.done():
            raise InputError(
                f"the study {self.spec.name} runs already", remedy="wait() waits for its end; stop() saves and stops it"
            )
        self._stopping, self._display = Stopping(), LiveDisplay(self.folder)
        pool = ThreadPoolExecutor(1, "study")
        self._background = pool.submit(self.run, address, resume=resume)
        pool.shutdown(wait=False)

    def wait(self, seconds: float | None = None) -> Results | None:
        """The results of a study that was started, once it has ended; None where it has not within so many seconds.
        Interrupted, as by a notebook's stop button, it stops the study in order. Raises what :meth:`run` does."""
        if self._background is None:
            raise InputError(f"the study {self.spec.name} was not started", remedy="start() runs it in the background")
        try:
            wait([self._background], seconds)
            return self._background.result() if self._background.done() else None
        except StudyInterrupted:
            raise
        except KeyboardInterrupt:
            self.stop()
            raise StudyInterrupted(self._how_to_go_on()) from None

    def stop(self) -> None:
        """Save the running trials of a study that was started, and stop; returns when that is done."""
        if self._background is None or self._background.done():
            return
        self._stopping.ask()
        wait([self._background])
        self._stopping = Stopping()  # what is run next is not to stop

    def run(self, address: str | None = None, *, resume: bool = False) -> Results:
        """Run the study from its beginning, on the Ray cluster at ``address``; None: at ``RAY_ADDRESS``, else on this
        machine. With ``resume`` a study that has begun is gone on with, or its answer given: what retries may call it
        again and again. Raises InputError if something is wrong with it, or its folder holds a study already, or with
        ``resume`` another one; StudyInterrupted after Ctrl-C or SIGTERM (:meth:`resume` goes on); StudyError if an arm
        has no completed trial."""
        if (self.folder / STUDY_FILE).exists():
            if resume:
                return self.resume(address)
            raise InputError(
                f"the study {self.spec.name} exists already",
                where=str(self.folder),
                remedy=f"h2h resume {self.folder}   goes on with it (in Python: Study.open(...).resume());   "
                f"{anew(self.folder)}",
            )
        from orchestrator.planning.design import require_answerable

        with self.placed():
            require_answerable(self.spec)
        self.spec = freeze(self.spec)
        return self._run(address)

    def resume(self, address: str | None = None) -> Results:
        """Go on where the study was stopped, or cut off; of a finished study nothing is run again. Raises what
        :meth:`run` does, and InputError if none has begun, or this one is another than it was when it began."""
        frozen = Study.open(self.folder)
        frozen.say, frozen._stopping = self.say, self._stopping
        frozen._display, self._display = self._display, None
        then, frozen.spec = frozen.spec, going_on(self.spec, frozen.spec, self.folder)
        if (then.corpora, then.tokenizer) != (frozen.spec.corpora, frozen.spec.tokenizer):
            with self.placed():
                frozen._require_same_text(then.tokenizer)
        return frozen._run(address)

    def _require_same_text(self, tokenizer: TokenizerConfig) -> None:
        """Raises InputError if the study has been trained on other text than it names now. It had the ``tokenizer``."""
        from orchestrator.scheduling.trained import corpus_of
        from trainables.corpora.preparation.fingerprint import fingerprint
        from trainables.corpora.preparation.tokenizer_sample import make_tokenizer

        history = read_history(self.folder / LEDGER)
        if history.corpus is None:  # what is there now is read
            return
        prepared, spec = corpus_of(history, self.spec, self.folder), self.spec
        if not (prepared.folder / "manifest.json").exists():  # it is prepared again, and compared then
            return
        self.say("comparing the text, which lies in another folder now")
        has_moved = spec.tokenizer != tokenizer
        own = make_tokenizer(spec.corpora, spec.tokenizer) if has_moved else prepared.tokenizer()
        if fingerprint(spec.corpora, own) != history.corpus.fingerprint:
            raise InputError(
                f"the study in {self.folder} began with another text",
                where="corpora, tokenizer",
                why="its relative paths are those of another folder now, and what lies there is not the same",
                remedy=f"the text as it was; h2h resume {self.folder}   goes on as it began;   {anew(self.folder)}",
            )

    def evaluate(self, suite: TasksSpec, address: str | None = None, *, items: int = TASK_ITEMS) -> TasksRecord:
        """Ask the models of the confirmation downstream tasks that the study did not plan: exploratory, and recorded as
        such. What was asked already is not asked again, unless of another number of examples. Returns what the ledger
        says of the tasks. Raises InputError: the study has not come to its end, its checkpoints are gone, or something
        is wrong with the tasks."""
        from orchestrator.execution.evaluation import evaluate_runs
        from orchestrator.execution.ray_session import ray_address, ray_session
        from orchestrator.planning.machine import Machine
        from orchestrator.planning.tasks import prepared_tasks
        from orchestrator.scheduling.trained import corpus_of

        history = read_history(self.folder / LEDGER)
        if not history.finished:
            raise InputError(
                "the study has not come to its end",
                where=str(self.folder),
                why="its own question comes first",
                remedy=f"h2h resume {self.folder}",
            )
        self.say("reading the downstream tasks")
        corpus = corpus_of(history, self.spec, self.folder)
        store = tasks_in(corpus.folder.parent.parent)
        record = prepared_tasks(self.spec, suite, store, corpus.tokenizer())
        record = record.model_copy(update={"items": items, "exploratory": True})
        address = ray_address(address)
        Patience.seconds = Patience.FOR_STUDIES
        with closing(Recorder(self.folder / LEDGER, self.say)) as recorder:
            known = recorder.history.task_sets.get(record.digest)
            if known is None or known.items != items:
                recorder.record(record)
            self.say("starting Ray on this machine" if address is None else f"connecting to Ray at {address}")
            with ray_session(address, Machine.here(), dashboard=False):
                evaluate_runs(recorder, self.spec, self.folder, store / record.digest, record, self.say)
        return record

    def extend(self, overrides: Sequence[str], address: str | None = None) -> Results:
        """Let a study that has begun spend more, and go on with it; what it has done is kept. The protocol that was
        fixed at its start is no longer what is followed: the comparison says so.

        ``overrides`` are ``key=value`` each: more of ``search.budget_per_arm``, ``confirm.seeds``, ``confirm.top`` or
        ``confirm.budget``, another ``confirm.stopping`` or other ``resources``. Raises what :meth:`run` does, and
        InputError if nothing is changed, or something that may not be, or there would be nothing to run.
        """
        from orchestrator.config.extension import extended
        from orchestrator.execution.ray_session import ray_address
        from orchestrator.planning.machine import Machine
        from orchestrator.planning.preflight import require_placeable
        from orchestrator.scheduling.extension import require_work

        require_unchanged(self.folder, read_ledger(self.folder / LEDGER))
        spec, changes = extended(open_frozen(self.folder), overrides, str(self.folder))
        history = read_history(self.folder / LEDGER)
        if not history.finished and any(not key.startswith("resources.") for key in changes):
            raise InputError(
                "the study has not come to its end",
                where=str(self.folder),
                why="what was planned comes first: the answer to the question as it was fixed",
                remedy=f"h2h resume {self.folder}",
            )
        if history.finished:
            inbox = Inbox(self.folder, lambda: None)  # which removes nothing
            inbox.look()
            require_work(spec, history, changes, inbox)
        self.spec, self.file, self._overrides = spec, "study", overrides
        address = ray_address(address)
        if address is None:
            require_placeable(spec, Machine.here())
        with closing(Recorder(self.folder / LEDGER, self.say)) as recorder:
            # First the ledger: cut off before the file is written, the study ends as it was, and extends as it did.
            recorder.record(ExtensionRecord(changes=changes), durable=True)
            write_frozen(self.spec, self.folder)
        return self._run(address)

    def prepare(
        self, address: str | None = None, progress: Callable[[Progress], None] = lambda _: None
    ) -> PackedCorpus:
        """Prepare the corpus alone; verify one that is there, and make again what is damaged. ``address`` is as of
        :meth:`run`; ``progress`` is told of every stage's begin, and of every part that is done. Raises InputError if
        something is wrong with the study or its text."""
        from orchestrator.execution.ray_session import ray_address, ray_session
        from orchestrator.execution.shared_places import require_shared
        from orchestrator.planning.machine import Machine
        from orchestrator.planning.preflight import check_study
        from trainables.corpora.preparation.prepare import prepare
        from trainables.corpora.preparation.progress import Progress
        from trainables.corpora.stream.packed import PackedCorpus

        address, spec = ray_address(address), freeze(self.spec)
        store = Location(spec.storage) / "corpora"
        with self.placed():
            progress(Progress("tokenizer", 0, 1))
            tokenizer = check_study(spec)
            progress(Progress("tokenizer", 1, 1))
            Patience.seconds = Patience.FOR_STUDIES
            with ray_session(address, Machine.here(), dashboard=False):
                if address is not None:
                    require_shared(spec, reads_text=True)
                manifest = prepare(spec.corpora, tokenizer, store, progress=progress, verify=True)
        return PackedCorpus(store / manifest.fingerprint)

    def corpus(self) -> PackedCorpus:
        """The prepared corpus; does not need Ray. Raises InputError if it is not prepared, or its sources cannot be
        read."""
        from orchestrator.scheduling.trained import corpus_of
        from trainables.corpora.preparation.fingerprint import fingerprint
        from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
        from trainables.corpora.stream.packed import PackedCorpus

        spec = freeze(self.spec)
        if (self.folder / STUDY_FILE).exists():
            frozen, history = open_frozen(self.folder), read_history(self.folder / LEDGER)
            if (frozen.corpora, frozen.tokenizer) == (spec.corpora, spec.tokenizer):
                if history.corpus is None:  # without a tokenizer, which takes minutes to train, it has no name
                    raise InputError(
                        "the study's text is not prepared yet",
                        where=str(self.folder),
                        remedy=f"wait, if it runs; else h2h resume {self.folder}",
                    )
                return corpus_of(history, frozen, self.folder)
        with self.placed():
            name = fingerprint(spec.corpora, make_tokenizer(spec.corpora, spec.tokenizer))
        return PackedCorpus(Location(spec.storage) / "corpora" / name)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Errors inside name the study's file or the override, unless they name a file of their own."""
        try:
            yield
        except InputError as error:
            if not error.where or "/" in error.where:
                raise
            raise error.at(place(error.where, self.file, self._overrides)) from error

    def _tell(self, what: str, how_far: str = "", /) -> None:
        """Say what is done now, unless the study is to stop: then it does so here."""
        self._stopping.check()
        if self._display is not None:
            self._display.stage.say(what, how_far)
        self.say(*filter(None, [what, how_far]))

    def _how_to_go_on(self) -> str:
        if not (self.folder / STUDY_FILE).exists():
            return "the study has not begun; run() begins it"
        return f"it was saved; Study.open({self.folder.uri!r}).resume() goes on"

    def _run(self, address: str | None) -> Results:
        display, self._display = self._display or LiveDisplay(self.folder), None
        try:
            with display:
                self._display = display
                # Optuna keeps the frames of whoever imports it first, for the errors of what it does without: those of
                # a driver would keep its history in memory.
                import orchestrator.scheduling.search  # noqa: F401

                self._run_shown(address)
            # Only now, as the driver's own history is gone: two of ten thousand trials would be in memory.
            return self.results
        except KeyboardInterrupt:
            raise StudyInterrupted(self._how_to_go_on()) from None
        finally:
            self._display = None

    def _run_shown(self, address: str | None) -> None:
        self._tell("reading what the study has done")
        require_unchanged(self.folder, read_ledger(self.folder / LEDGER))
        history = read_history(self.folder / LEDGER)
        if history.finished:
            return
        Session(self.spec, self.folder, self._tell, self.placed, self._stopping).run(address, history)
