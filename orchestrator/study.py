"""A study: defined, run, resumed and read, from Python or from the command line."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.local import free_port
from orchestrator import __version__
from orchestrator.analysis.comparison import compare
from orchestrator.analysis.results import Results
from orchestrator.config.files import (
    absolute,
    dump_study,
    frozen_content,
    load_study,
    make_study,
    study_file,
)
from orchestrator.config.folder import STUDY_FILE, no_study
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import (
    deciding,
    protocol,
    protocol_digest,
    require_unchanged,
    study_digest,
)
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.segments import read_ledger
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.optuna_file import OptunaFile
from orchestrator.scheduling.search import Phase, SearchPhase, best_trials
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location

if TYPE_CHECKING:
    from orchestrator.execution.executor import Executor
    from trainables.corpora.preparation.prepare import Progress
    from trainables.corpora.stream.packed import PackedCorpus

_REPEAT_SECONDS = 5.0

_SLOW_START = "timed out during startup"
"""In what Ray raises where its own processes have not started within its time limit."""


class StudyInterrupted(KeyboardInterrupt):
    """The study was stopped by the user; its state is saved."""


class StudyError(Exception):
    """The study cannot come to a comparison."""


class Study:
    """One study and its folder.

    Args:
        study: a YAML file, a shipped study's name, nested dictionaries, or a validated :class:`StudySpec`.
        overrides: ``key=value`` each, as of ``--set``.

    Raises:
        InputError: something in it is wrong.
    """

    def __init__(
        self, study: str | Path | Mapping[str, Any] | StudySpec, overrides: Sequence[str] = ()
    ) -> None:
        self.file = "study"
        if isinstance(study, StudySpec):
            self.spec = study
        elif isinstance(study, Mapping):
            self.spec = make_study(dict(study), overrides)
        else:
            self.file = str(study_file(study))
            self.spec = load_study(study, overrides)
        self.folder = Location(self.spec.storage) / self.spec.name

    @classmethod
    def open(cls, folder: str | Path | Location) -> Study:
        """The study that lies in a folder, as it was frozen there.

        Raises:
            InputError: there is none.
        """
        location = folder if isinstance(folder, Location) else Location(folder)
        frozen = location / STUDY_FILE
        if not frozen.exists():
            raise no_study(location)
        content = frozen_content(frozen.read_bytes(), str(frozen))
        study = cls(make_study(content, where=str(frozen)))
        study.folder = location
        return study

    @property
    def results(self) -> Results:
        """Its results so far."""
        return Results(self.folder)

    def run(self, address: str | None = None) -> Results:
        """Run the study from its beginning.

        Args:
            address: of a Ray cluster; None: the one of ``RAY_ADDRESS``, else this machine.

        Raises:
            InputError: something is wrong with it, or its folder holds a study already.
            StudyInterrupted: Ctrl-C or SIGTERM; :meth:`resume` goes on.
            StudyError: an arm has no completed trial.
        """
        if (self.folder / STUDY_FILE).exists():
            raise InputError(
                f"the study {self.spec.name} exists already",
                where=str(self.folder),
                remedy=f"h2h resume {self.folder}   goes on with it;   --set name=ANOTHER   makes a new one",
            )
        return self._run(address)

    def resume(self, address: str | None = None) -> Results:
        """Go on where the study was stopped, or cut off; of a finished study nothing is run again.

        Raises:
            As :meth:`run` does; and InputError: none has begun, or this one is another than it was when it began.
        """
        frozen = Study.open(self.folder)
        require_same(self, frozen)
        return frozen._run(address)

    def extend(self, overrides: Sequence[str], address: str | None = None) -> Results:
        """Let a study that has begun spend more, and go on with it; what it has done is kept.

        The protocol that was fixed at its start is no longer what is followed: the comparison says so.

        Args:
            overrides: ``key=value`` each: more of ``search.budget_per_arm``, ``confirm.seeds``, ``confirm.top`` or
                ``confirm.budget``, another ``confirm.stopping`` or other ``resources``.
            address: as of :meth:`run`.

        Raises:
            As :meth:`run` does; and InputError: nothing is changed, or something that may not be, or there would be
                nothing to run.
        """
        from orchestrator.config.extension import extended
        from orchestrator.planning.preflight import Machine, ray_address
        from orchestrator.scheduling.extension import require_work

        frozen, records = Study.open(self.folder).spec, read_ledger(self.folder / "ledger")
        require_unchanged(self.folder, records)
        spec, changes = extended(frozen, overrides, str(self.folder))
        history = History.of(records)
        ended = history.phases.get("compare") == "end"
        if not ended and any(not key.startswith("resources.") for key in changes):
            raise InputError(
                "the study has not come to its end",
                where=str(self.folder),
                why="what was planned comes first: the answer to the question as it was fixed",
                remedy=f"h2h resume {self.folder}",
            )
        if ended:
            require_work(spec, history, changes)
        self.spec = spec
        address = ray_address(address)
        self._require_placement(Machine.here(), address)
        recorder = Recorder(self.folder / "ledger")
        try:
            # First the ledger: cut off before the file is written, the study ends as it was, and extends as it did.
            recorder.record("extension", changes={key: list(change) for key, change in changes.items()})
            (self.folder / STUDY_FILE).write_bytes(dump_study(spec).encode())
        finally:
            recorder.close()
        return self._run(address)

    def prepare(
        self, address: str | None = None, progress: Callable[[Progress], None] = lambda _: None
    ) -> PackedCorpus:
        """Prepare the corpus alone; verify one that is there, and make again what is damaged.

        Args:
            address: as of :meth:`run`.
            progress: told of every stage's begin, and of every part that is done.

        Raises:
            InputError: something is wrong with the study or its text.
        """
        from orchestrator.planning.preflight import Machine, check_study, ray_address
        from trainables.corpora.preparation.prepare import Progress, prepare
        from trainables.corpora.stream.packed import PackedCorpus

        address = ray_address(address)
        store = Location(self.spec.storage) / "corpora"
        try:
            progress(Progress("tokenizer", 0, 1, 0))
            tokenizer = check_study(self.spec)
            progress(Progress("tokenizer", 1, 1, 0))
            with _ray_session(address, Machine.here(), dashboard=False):
                corpora = absolute(self.spec).corpora
                manifest = prepare(corpora, tokenizer, store, progress=progress, verify=True)
        except InputError as error:
            raise error.within(self.file) from error
        return PackedCorpus(store / manifest.fingerprint)

    def corpus(self) -> PackedCorpus:
        """The prepared corpus; does not need Ray.

        Raises:
            InputError: it is not prepared, or its sources cannot be read.
        """
        from trainables.corpora.preparation.fingerprint import fingerprint
        from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
        from trainables.corpora.stream.packed import PackedCorpus

        spec = absolute(self.spec)
        if (self.folder / STUDY_FILE).exists():
            frozen = Study.open(self.folder).spec
            recorded = self._prepared_corpus(History.of(read_ledger(self.folder / "ledger")))
            if recorded and (frozen.corpora, frozen.tokenizer) == (spec.corpora, spec.tokenizer):
                return PackedCorpus(recorded)
        try:
            name = fingerprint(spec.corpora, make_tokenizer(spec.corpora, spec.tokenizer))
        except InputError as error:
            raise error.within(self.file) from error
        return PackedCorpus(Location(spec.storage) / "corpora" / name)

    def _run(self, address: str | None) -> Results:
        from orchestrator.planning.preflight import Machine, check_study, ray_address

        records = read_ledger(self.folder / "ledger")
        require_unchanged(self.folder, records)
        history = History.of(records)
        if history.phases.get("compare") == "end":
            return self.results
        address = ray_address(address)
        machine = Machine.here()
        try:
            # What is prepared already needs its sources no more.
            tokenizer = None if self._prepared_corpus(history) else check_study(self.spec)
            self._require_placement(machine, address)
        except InputError as error:
            raise error.within(self.file) from error
        recorder = Recorder(self.folder / "ledger")
        try:
            with _ray_session(address, machine, dashboard=self._launcher(machine) == "ray_train"):
                if recorder.history.study is None:  # only now: what cannot start takes no name
                    (self.folder / STUDY_FILE).write_bytes(dump_study(absolute(self.spec)).encode())
                self._run_phases(recorder, Machine.of_cluster(), tokenizer)
        except KeyboardInterrupt:
            if recorder.history.study is not None:
                with suppress(FullDiskError):
                    recorder.record("stop", status="end")
            raise
        finally:
            recorder.close()
        return self.results

    def _prepared_corpus(self, history: History) -> Location | None:
        """The packed corpus that an earlier session of this study recorded, if it is still there."""
        if history.corpus is None:
            return None
        corpus = Location(self.spec.storage) / "corpora" / history.corpus["fingerprint"]
        return corpus if (corpus / "manifest.json").exists() else None

    def _require_same_corpus(self, history: History, fingerprint: str) -> None:
        """Refuse to go on in another text: a trial's place in the stream would be one in that of the other."""
        if history.corpus is None or history.corpus["fingerprint"] == fingerprint:
            return
        raise InputError(
            f"the study's corpus {history.corpus['fingerprint']} is gone, and its sources now give {fingerprint}",
            where=str(Location(self.spec.storage) / "corpora" / history.corpus["fingerprint"]),
            why="the text, the tokenizer or this program's format changed since the study began: its trials cannot "
            "go on with another text, nor be compared",
            remedy=f"bring back that folder or the text as it was, then h2h resume {self.folder}; or begin anew with "
            "the text as it is: h2h run --set name=ANOTHER",
        )

    def _require_placement(self, machine: Any, address: str | None) -> None:
        from orchestrator.planning.preflight import check_resources, require_measurable

        if address is None:
            gpus = machine.gpus_per_worker(self.spec.resources)
            check_resources(self.spec, machine, gpus)
            require_measurable(self.spec, gpus)

    def _launcher(self, machine: Any) -> str:
        resources = self.spec.resources
        if resources.launcher != "auto":
            return resources.launcher
        return "direct" if resources.workers == 1 and not machine.gpus_per_worker(resources) else "ray_train"

    def _run_phases(self, recorder: Recorder, machine: Any, tokenizer: Any) -> None:
        from orchestrator.execution.executor import Executor
        from orchestrator.planning.preflight import require_measurable
        from trainables.corpora.preparation.prepare import prepare, warnings
        from trainables.trial import WorkerConfig

        spec, history = self.spec, recorder.history
        gpus = machine.gpus_per_worker(spec.resources)
        require_measurable(spec, gpus, on_cluster=True)
        recorder.record("study", **self._description(), usd_per_hour=spec.resources.usd_per_hour(gpus))
        resources = spec.resources
        workers = WorkerConfig(
            launcher=self._launcher(machine),
            workers=resources.workers,
            minimum_workers=resources.minimum_workers,
            cpus_per_worker=resources.cpus_per_worker,
            gpus_per_worker=gpus,
            usd_per_hour=resources.usd_per_hour(gpus),
        )
        fitting = machine.cpus // (resources.workers * resources.cpus_per_worker)
        if workers.gpus_per_worker:
            fitting = min(fitting, machine.gpus // (resources.workers * workers.gpus_per_worker))
        concurrent = resources.concurrent_trials or max(1, fitting)
        if fitting == 0:
            recorder.event("the cluster cannot place a trial as it is now: its autoscaler is waited for")
        executor = Executor(recorder, self.folder, workers, concurrent, resources.attempts)

        watches = [_resources(recorder)]
        if workers.launcher == "ray_train":
            watches.append(_orphans(recorder, workers.resources))
        with _signals(executor), _repeated(*watches):
            corpus = self._prepared_corpus(history)
            if corpus is None:
                with _phase(recorder, "prepare"):
                    store = Location(spec.storage) / "corpora"
                    manifest = prepare(spec.corpora, tokenizer, store)
                    for warning in warnings(manifest):
                        recorder.event(warning)
                    self._require_same_corpus(history, manifest.fingerprint)
                    corpus = store / manifest.fingerprint
                    recorder.record("corpus", **self._corpus_record(corpus))
            with closing(self._training_phases(recorder, str(corpus))) as phases:
                executor.run(phases)
            if executor.full_disk:
                raise InputError(
                    "the disk is full: a trial's checkpoint could not be written",
                    where=str(self.folder),
                    why=executor.full_disk,
                    remedy=f"make space there; then h2h resume {self.folder} goes on from the checkpoints",
                )
            if executor.interrupted:
                raise StudyInterrupted
            with _phase(recorder, "compare"):
                recorder.record("comparison", **compare(history))

    def _training_phases(self, recorder: Recorder, corpus: str) -> Generator[Phase, None, None]:
        """Those that train; one is over, with what follows from it, when the next is asked for."""
        spec, history = self.spec, recorder.history
        kinds: dict[str, Callable[[StudySpec, History, str], Phase]]
        kinds = {"search": SearchPhase, "confirm": ConfirmPhase, "anytime": AnytimePhase}
        for name, kind in kinds.items():
            if history.phases.get(name) == "end" or (name == "anytime" and not spec.confirm.anytime):
                continue
            with _phase(recorder, name), _optuna_file(recorder, name, self.folder, spec):
                phase = kind(spec, history, corpus)
                yield phase
                if message := phase.ended_early():
                    seeds = phase.seeds_begun() if isinstance(phase, ConfirmPhase) else None
                    recorder.record("cap", message=message, phase=name, seeds=seeds)
                if name == "search" and spec.search.budget_per_arm:
                    self._require_best(recorder)

    def _require_best(self, recorder: Recorder) -> None:
        for arm in self.spec.arms:
            if not best_trials(recorder.history, arm, self.spec.yardsticks.primary, 1):
                ends = {
                    t.trial: f"{t.outcome}: {t.reason}" for t in recorder.history.trials_of("search", arm)
                }
                listing = "; ".join(f"{name} {end}" for name, end in ends.items())
                capped = [e["message"] for e in recorder.history.events if e["kind"] == "cap"]
                listing = ". ".join(filter(None, [listing, *capped[-1:]]))
                raise StudyError(
                    f"no search trial of the arm {arm} completed, so there is nothing to confirm. {listing}"
                )

    def _description(self) -> dict[str, Any]:
        file = self.folder / STUDY_FILE
        data = file.read_bytes()
        fixed = protocol(frozen_content(data, str(file)))
        return {
            "name": self.spec.name,
            "digest": study_digest(data),
            "protocol": fixed,
            "protocol_digest": protocol_digest(fixed),
            **deciding(fixed),
            "versions": {
                package: importlib.metadata.version(package)
                for package in ("ray", "torch", "transformers", "optuna")
            }
            | {"headtohead": __version__, "python": platform.python_version()},
            "machine": {"system": platform.platform(), "cpus": os.cpu_count()},
            "folder": str(self.folder),
        }

    def _corpus_record(self, corpus: Location) -> dict[str, Any]:
        from trainables.corpora.stream.packed import PackedCorpus
        from trainables.corpora.stream.token_stream import TokenStream

        packed = PackedCorpus(corpus)
        stream = TokenStream(packed, 0, self.spec.corpora.alpha, self.spec.corpora.maximum_repetition)
        manifest = packed.manifest
        counts = manifest.splits["train"]
        return {
            "fingerprint": manifest.fingerprint,
            "vocabulary_size": manifest.vocabulary_size,
            "sequence_length": manifest.sequence_length,
            "languages": {
                language: {
                    "documents": counts[language].documents,
                    "tokens": counts[language].tokens,
                    "sequences": counts[language].sequences,
                    "target_share": float(share),
                }
                for language, share in zip(packed.languages, stream.share_l, strict=True)
            },
        }


def require_same(study: Study, frozen: Study) -> None:
    """A study goes on as it began: what was changed since would be passed over without a word.

    Args:
        study: as it is written now.
        frozen: as it lies in its folder.

    Raises:
        InputError: they differ, in more than where they lie.
    """
    now, then = absolute(study.spec).model_dump(), frozen.spec.model_dump()
    changed = [key for key in now if now[key] != then[key] and key != "storage"]
    if changed:
        raise InputError(
            f"the study in {frozen.folder} began with another '{changed[0]}'",
            where=", ".join(changed),
            why="a study that has begun cannot change",
            remedy=f"h2h resume {frozen.folder}   goes on as it began;   h2h run --set name=ANOTHER   makes a new one",
        )


@contextmanager
def _phase(recorder: Recorder, name: str) -> Iterator[None]:
    recorder.record("phase", phase=name, status="begin")
    yield
    recorder.record("phase", phase=name, status="end")


@contextmanager
def _optuna_file(recorder: Recorder, phase: str, folder: Location, spec: StudySpec) -> Iterator[None]:
    """Beside the ledger of a search, what Optuna's own tools read."""
    if phase != "search" or not spec.search.budget_per_arm:
        yield
        return
    with OptunaFile(folder, spec, recorder.history) as file:
        recorder.then = file.apply
        try:
            yield
        finally:
            recorder.then = lambda record: None


@contextmanager
def _known_address() -> Iterator[None]:
    """Processes of a cluster that is started inside know its address, whatever else runs on this machine.

    Ray Train's cleaner of placement groups looks for it: of several clusters it finds none, and the devices of a trial
    that was killed would never be free again.
    """
    port = str(free_port())
    variables = {"RAY_GCS_SERVER_PORT": port, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    saved = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(saved)


@contextmanager
def _ray_session(address: str | None, machine: Any, *, dashboard: bool) -> Iterator[None]:
    """A connection to the cluster, or a cluster of this machine's own, on the loopback only."""
    # Ray reads these when it is imported or started.
    for name, value in {
        "RAY_AIR_NEW_OUTPUT": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),  # the ledger is the state: Tune need not save its own
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    }.items():
        os.environ.setdefault(name, value)
    if address is None:
        # Ray replaces a loopback address by the machine's own, and then listens on every interface, unless told that
        # it serves one machine only. The variable is named after the systems where that is the default.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        options |= {
            "address": "local",
            "num_cpus": machine.cpus,
            "_node_ip_address": "127.0.0.1",
            # Ray Train's cleaner of placement groups asks the dashboard's state API.
            "include_dashboard": dashboard,
            # Processes that gather data are idle between trials; starting them anew costs each trial a second or two.
            "_system_config": {"idle_worker_killing_time_threshold_ms": 60_000},
        }
    else:
        options["address"] = address
    try:
        with _known_address() if address is None else nullcontext():
            ray.init(**options)
    except ConnectionError as error:
        from orchestrator.planning.preflight import no_cluster

        raise no_cluster(str(address), str(error).splitlines()[0]) from error
    except Exception as error:  # Ray has no narrower class for it
        if _SLOW_START not in str(error):
            raise
        raise InputError(
            "Ray did not start in time",
            where="this machine",
            why="it is too busy: Ray waits half a minute for its own processes",
            remedy="the same command again when less runs here; a study that has begun: h2h resume FOLDER",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signals(executor: Executor) -> Iterator[None]:
    """Ctrl-C and SIGTERM save the running trials and stop; a second one, or one while none runs, stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 or not executor.running:
            raise KeyboardInterrupt
        if sys.stderr is sys.__stderr__:  # else a dashboard draws there, which shows what the ledger says
            os.write(2, b"\nstopping: what runs is saved first; once more to stop at once\n")
        executor.interrupt()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _repeated(*actions: Callable[[], None]) -> Iterator[None]:
    """Meanwhile they are called now, and then every few seconds."""
    finished = threading.Event()

    def repeat() -> None:
        while not finished.is_set():
            for action in actions:
                action()
            finished.wait(_REPEAT_SECONDS)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _resources(recorder: Recorder) -> Callable[[], None]:
    """Writes what of the cluster is in use, if that has changed."""
    import ray

    last = None

    def write() -> None:
        nonlocal last
        total, free = ray.cluster_resources(), ray.available_resources()
        now = {
            kind: [total[kind] - free.get(kind, 0.0), total[kind]] for kind in ("CPU", "GPU") if kind in total
        }
        if now != last:
            # On a full disk the study's own next record ends the study.
            with suppress(FullDiskError):
                recorder.record("resources", flush=False, cluster=now)
        last = now

    return write


def _orphans(recorder: Recorder, worker_resources: Mapping[str, float]) -> Callable[[], None]:
    """Frees the devices that trials' killed processes have left taken."""
    from orchestrator.execution.placement_groups import OrphanedGroups

    groups = OrphanedGroups(worker_resources)

    def free() -> None:
        if number := groups.remove():
            with suppress(FullDiskError):
                recorder.event(
                    f"placement groups of killed trials are removed, to free their devices: {number}"
                )

    return free
