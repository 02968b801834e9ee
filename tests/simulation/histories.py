"""Histories of a study: runs of the program's own code in a made-up world, with faults by a seed, and what must hold.

Real are the study and its phases, the scheduler, the executor and its adapters for Tune, the ledger with its lease, the
training loop and its checkpoints. Made up are time, the object store below the program's patience, Ray, and what is
trained.
"""

from __future__ import annotations

import gc
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow.fs as pafs
import pytest
import ray
import torch

import trainables.corpora.stream.packed
import trainables.corpora.stream.token_stream
import trainables.trial
from orchestrator import session
from orchestrator import study as study_module
from orchestrator.analysis.selection import best_trials
from orchestrator.config import files
from orchestrator.config.chosen import chosen_configuration
from orchestrator.config.files import dump_study, frozen_content, make_study, read_frozen
from orchestrator.config.folder import STUDY_FILE
from orchestrator.config.study import StudySpec
from orchestrator.execution import beginning, newest_checkpoints, ray_session, tune_run, watches
from orchestrator.ledger import lease, records, remote_log, requests, segments
from orchestrator.ledger.history import History
from orchestrator.ledger.layout import REQUESTS
from orchestrator.ledger.records import (
    CorpusRecord,
    DecisionRecord,
    EndRecord,
    EnqueuedRecord,
    PhaseRecord,
    TrialRecord,
)
from orchestrator.ledger.segments import LedgerReader, parse_line
from orchestrator.planning import design, preflight
from orchestrator.planning.machine import Machine
from orchestrator.study import Study
from orchestrator.verification import verify as verification
from orchestrator.verification.consistency import check_balance, check_data, check_plan, check_protocol, check_trials
from orchestrator.verification.findings import Verification
from tests.helpers.study import small_study, told_by, without_seconds
from tests.simulation import cluster, training
from tests.simulation.faults import Faults
from tests.simulation.store import FUNCTIONS, Store
from tests.simulation.world import CLOCK, THREADING, KilledError, Pool, Process, StuckError, Task, Threads, World
from trainables import object_store, storage
from trainables.errors import InputError
from trainables.object_store import StoredObject
from trainables.storage import Location
from trainables.training import billing, checkpoint, environment, evaluator, loop, meters

BUCKET = "s3://bucket/studies"
PREFIX = "studies/study"
"""Of the study's folder in its bucket."""
STEP = 8 * training.LENGTH
"""Tokens."""
STUDIES: dict[str, dict[str, Any]] = {
    "runs": {"search": {"budget_per_arm": 0}, "confirm": {"seeds": 2, "describe_only": True, "evaluations": 2}},
    "search": {
        "search": {"budget_per_arm": 2, "halving": {"reduction": 2, "rungs": 2}},
        "confirm": {"seeds": 2, "describe_only": True},
    },
    "wide": {
        "search": {"budget_per_arm": 3, "halving": {"reduction": 2, "rungs": 3}, "parallel": 2},
        "confirm": {"seeds": 2, "describe_only": True},
    },
    "branches": {
        "training": {"batch_sequences": 8, "learning_rate": 3e-3, "schedule": "wsd", "cooldown": 0.5},
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 2, "describe_only": True, "evaluations": 2, "anytime": [0.5]},
    },
    "stopping": {"search": {"budget_per_arm": 0}, "confirm": {"seeds": 7, "stopping": {"minimum": 6}, "margin": 0.9}},
}
"""Kinds of studies, by what they exercise."""
TURNS = ("search", "runs", "branches", "search", "runs", "wide", "search", "branches", "runs", "stopping")
"""Which kind the next history is of."""
SEEDS = 5
"""Studies of each kind: what nobody disturbs is run once for each of them."""
SMALL_SEGMENT = 6000
"""Bytes: so that a study's ledger has several segments."""
STEPS = {"wide": 8, "branches": 8}
"""Of a trial, where it is not four."""


def specification(kind: str, seed: int) -> Any:
    tokens = STEP * STEPS.get(kind, 4)
    changes = STUDIES[kind] | {"seed": seed, "budget": {"tokens": tokens}}
    changes["search"] = changes["search"] | {"algorithm": "random"}
    changes["yardsticks"] = {"primary": "recovery_accuracy", "others": ["recovery_mrr"]}
    changes["resources"] = {"launcher": "direct", "attempts": 1000, "checkpoint_minutes": 0.1}
    content = small_study("study", BUCKET, **changes)  # type: ignore[arg-type]
    return make_study(content)


@lru_cache(None)
def specified(kind: str, seed: int, slots: int) -> Any:
    spec = specification(kind, seed)
    return spec.model_copy(update={"resources": spec.resources.model_copy(update={"concurrent_trials": slots})})


@contextmanager
def made_up() -> Iterator[None]:
    """Inside, what the program asks of the outside is made up, and what takes long and is always the same is kept."""
    with pytest.MonkeyPatch.context() as patch:
        clocks = (lease, remote_log, records, object_store, newest_checkpoints, billing, meters, loop, checkpoint)
        for module in clocks:
            patch.setattr(module, "time", CLOCK)
        patch.setattr(remote_log, "threading", THREADING)
        patch.setattr(remote_log, "SEGMENT_BYTES", SMALL_SEGMENT)
        patch.setattr(lease, "os", SimpleNamespace(getpid=lambda: World.present.current.process.number))
        patch.setattr(lease, "platform", SimpleNamespace(node=lambda: World.present.current.process.machine))
        patch.setattr(lease, "_machine", lambda: World.present.current.process.machine)
        patch.setattr(lease, "Path", _ProcessFile)
        patch.setattr(lease, "uuid", SimpleNamespace(uuid4=_token))
        patch.setattr(requests, "uuid", SimpleNamespace(uuid4=_token))
        patch.setattr(requests, "time", SimpleNamespace(time_ns=lambda: int(1e9 * World.present.now)))
        patch.setattr(session, "Inbox", _inbox)
        patch.setattr(checkpoint, "secrets", SimpleNamespace(randbits=lambda _: 1, token_hex=lambda _: _token().hex))
        patch.setattr(checkpoint, "ThreadPoolExecutor", Pool)
        patch.setattr(newest_checkpoints, "ThreadPoolExecutor", Threads)
        patch.setattr(checkpoint, "wait_for", lambda written: [one.wait() for one in written])
        patch.setattr(checkpoint, "_random_state", lambda _: {})
        patch.setattr(checkpoint, "Checkpoints", training.WatchedCheckpoints)
        patch.setattr(loop, "Checkpoints", training.WatchedCheckpoints)
        patch.setattr(evaluator, "HeldOut", lambda *_, **__: None)
        patch.setattr(evaluator, "take_of_tables", lambda *_: {})
        patch.setattr(loop, "Trial", training.Trial)
        patch.setattr(meters.LoadMeter, "_now", staticmethod(lambda: (World.present.now, None, 0.0)))
        patch.setattr(environment, "environment", lambda: training.ENVIRONMENT)
        patch.setattr(trainables.corpora.stream.packed, "PackedCorpus", lambda *_: None)
        patch.setattr(trainables.corpora.stream.token_stream, "TokenStream", training.Stream)
        patch.setattr(trainables.corpora.stream.token_stream, "ray_data_batches", training.batches)
        patch.setattr(trainables.trial, "_asking", training.asking)
        patch.setattr(trainables.trial, "_machine_leaves", training.machine_leaves)
        patch.setattr(trainables.trial, "_energy", lambda *_: None)
        patch.setattr(ray.tune, "report", cluster.report)
        patch.setattr("orchestrator.execution.executor.start_stop_signal", cluster.Signal)
        patch.setattr(tune_run, "run_with_tune", lambda executor: cluster.Tune(executor).run())
        patch.setattr(tune_run, "_failure", lambda trial: trial.failure)
        patch.setattr(watches, "watching", cluster.watching)
        patch.setattr(ray_session, "ray_address", lambda address: address)
        patch.setattr(ray_session, "ray_session", lambda *_, **__: nullcontext())
        patch.setattr(ray_session, "cluster_machine", lambda _: Machine(8, 0))
        patch.setattr(preflight, "check_study", lambda _: object())
        patch.setattr(design, "require_answerable", lambda _: None)
        patch.setattr(beginning, "versions", lambda: {"headtohead": "0"})
        patch.setattr("orchestrator.reporting.optuna_journal.write_optuna_journal", lambda *_: None)
        patch.setattr(session.Session, "_corpus_of", _corpus_of)
        patch.setattr(session.Session, "_prepared_corpus", _prepared_corpus)
        patch.setattr(files, "dump_study", lambda spec: _dumped(spec.model_dump_json()))
        patch.setattr(study_module, "open_frozen", lambda folder: _study_in(read_frozen(folder)))
        patch.setattr(files, "parse_yaml", lru_cache(None)(files.parse_yaml))
        patch.setattr(segments, "parse_record", lru_cache(4096)(segments.parse_record))
        patch.setattr(storage, "stored_object", lambda scheme, bucket, key, *_: _stored(key))
        patch.setattr(storage, "pafs", _FILESYSTEMS)
        # Indented, it is Python's own encoder that writes, and no longer C's.
        patch.setattr(storage, "json", SimpleNamespace(dumps=lambda value, indent, **more: json.dumps(value, **more)))
        patch.setattr(sys, "unraisablehook", _unraisable)
        for name, function in FUNCTIONS.items():
            patch.setattr(obstore, name, function)
        # What the collector finds it closes as whichever task runs just then, and not always the same.
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            gc.unfreeze()


def _stored(key: str) -> StoredObject:
    return StoredObject(World.present.store, key)  # type: ignore[arg-type, attr-defined]


def _unraisable(told: Any) -> None:
    """What is closed by a process that was killed closes nothing."""
    if told.exc_type is not KilledError:
        sys.__unraisablehook__(told)


def _token() -> SimpleNamespace:
    return SimpleNamespace(hex=f"{World.present.chance.getrandbits(128):032x}")


class _NoRequests:
    """Of a history in which nobody asks for anything: it is of the seed that it was before people could."""

    def look(self) -> None: ...

    def take(self) -> list[Any]:
        return []


def _inbox(*args: Any) -> Any:
    return requests.Inbox(*args) if World.present.asking else _NoRequests()  # type: ignore[attr-defined]


class _ProcessFile:
    """``/proc/NUMBER``."""

    def __init__(self, path: str) -> None:
        self._number = int(path.removeprefix("/proc/"))

    def exists(self) -> bool:
        """Whether such a process is on the asking one's machine."""
        world = World.present
        here = world.current.process.machine
        return any(p.number == self._number and p.alive and p.machine == here for p in world.processes)


@lru_cache(None)
def _dumped(spec: str) -> str:
    return dump_study(StudySpec.model_validate_json(spec))


@lru_cache(None)
def _study_in(data: bytes) -> Any:
    return make_study(frozen_content(data, f"{BUCKET}/study/{STUDY_FILE}"))


def _file_system(uri: str) -> tuple[Any, str]:
    if uri.startswith("s3://"):
        return SimpleNamespace(region="here"), uri.removeprefix("s3://")
    return pafs.FileSystem.from_uri(uri)


_FILESYSTEMS = SimpleNamespace(
    FileSystem=SimpleNamespace(from_uri=_file_system), LocalFileSystem=pafs.LocalFileSystem, FileType=pafs.FileType
)


def _corpus_of(own: session.Session, recorder: Any, _: object) -> Location:
    if recorder.history.corpus is None:
        with recorder.phase("prepare"):
            recorder.record(CorpusRecord(fingerprint="text", vocabulary_size=100, sequence_length=32, languages={}))
    return Location(BUCKET) / "corpora" / "text"


def _prepared_corpus(own: session.Session, history: History) -> Location | None:
    return None if history.corpus is None else Location(BUCKET) / "corpora" / "text"


@dataclass
class Setting:
    """A world with a store, nodes, and an operator who starts the study until it has its answer."""

    kind: str
    study: int
    seed: int | str
    slots: int = 1
    ahead: int = 1
    """Reports that a trial is ahead of the study's reading them, at most: one without Ray Train."""
    asking: int = 0
    """Configurations that people ask for."""
    drivers: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec = specified(self.kind, self.study, self.slots)
        self.world = world = World(self.seed)
        world.store = self.store = Store(world)  # type: ignore[attr-defined]
        world.stops, world.leaving, world.gone = set(), set(), set()  # type: ignore[attr-defined]
        world.workers, world.ahead = [], self.ahead  # type: ignore[attr-defined]
        world.doubling = world.restarting = 0.0  # type: ignore[attr-defined]
        world.asking = self.asking  # type: ignore[attr-defined]
        self.folder = Location(BUCKET) / "study"

    def drive(self, machine: str) -> Task:
        """Start a process that leads the study, or tries to."""
        process = self.world.process(f"driver {len(self.drivers) + 1} on {machine}", machine)
        self.world.note(f"{process.name} starts")
        process.main = process.start(self._lead, InputError, KeyboardInterrupt, OSError)  # type: ignore[attr-defined]
        self.drivers.append(process)
        self.world.processes[0].start(lambda: self._leave(process))
        return process.main  # type: ignore[attr-defined, no-any-return]

    def _lead(self) -> None:
        study = Study(self.spec)
        study.folder = self.folder
        study.run("a cluster", resume=True)

    def _leave(self, driver: Process) -> None:
        """When a driver ends so do its trials: at once, or some after a while where it was killed."""
        world, chance, task = self.world, self.world.chance, driver.main  # type: ignore[attr-defined]
        task.join()
        orderly = driver.alive
        world.note(f"{driver.name} ends: {type(task.error).__name__} {str(task.error or '').splitlines()[:1]}")
        driver.kill()
        for process in world.workers:  # type: ignore[attr-defined]
            if process.alive and process.worker.driver.process is driver:
                world.later(0.0 if orderly else chance.choice([0.0, 2.0, 40.0, 600.0]), process.kill)

    def operate(self) -> None:
        """Start the study again and again, until it has its answer."""
        world, chance, machine = self.world, self.world.chance, "head-1"
        while True:
            task = self.drive(machine)
            task.join()
            assert not world.crashes, "\n".join(world.crashes)
            if task.error is None:
                return
            world.sleep(chance.choice([0.5, 5.0, 40.0]))
            machine = chance.choice(["head-1", "head-1", "head-2"])
            assert world.now < 5 * 86_400, "the study does not come to its end"


def undisturbed(kind: str, study: int) -> tuple[dict[str, Any], float]:
    """What a study comes to that nobody disturbs, and how long it takes."""
    setting = Setting(kind, study, f"{kind}/{study}")
    setting.operate()
    took = setting.world.now
    found = checked(setting)
    setting.world.close()
    assert not setting.world.crashes, setting.world.crashes
    return found, took


def checked(setting: Setting) -> dict[str, Any]:
    """What must not depend on faults; raises AssertionError where something does not hold in itself."""
    folder = setting.folder
    reader = LedgerReader(folder / "ledger")
    lines = list(reader.lines())
    written = [parse_line(line) for line in lines]
    history = History.of(written, folder=folder)
    assert history.finished, "what led the study ended without an error, and the ledger has no answer"
    found = Verification()
    verification._check_chain(found, lines)
    data = read_frozen(folder)
    content = frozen_content(data, f"{BUCKET}/study/{STUDY_FILE}")
    check_protocol(found, written, data, verification.protocol.protocol(content))
    check_plan(found, written)
    check_trials(found, history)
    check_data(found, history)
    check_balance(found, written)
    assert not found.mismatches, found.mismatches
    assert not found.notes, found.notes
    _check_once(written)
    _check_spending(history)
    return outcome(history, list(setting.spec.arms))


def _check_once(written: list[Any]) -> None:
    """Nothing is there twice that happens once."""
    once = Counter((r.arm, r.decision) for r in written if isinstance(r, DecisionRecord))
    once.update((r.phase, "end") for r in written if isinstance(r, PhaseRecord) and r.status == "end")
    final = ("completed", "diverged", "failed", "lost")
    once.update((r.trial, "final") for r in written if isinstance(r, EndRecord) and r.outcome in final)
    once.update((r.trial, r.attempt) for r in written if isinstance(r, TrialRecord))
    once.update((r.trial, r.attempt, "end") for r in written if isinstance(r, EndRecord))
    twice = [key for key, times in once.items() if times > 1]
    assert not twice, twice


def _check_spending(history: History) -> None:
    """What the attempts of a trial keep is what it has spent, and nothing was lost twice."""
    for name, trial in history.trials.items():
        spendings = trial.spendings(history.updated)
        began = next((a.start for a in trial.attempt_records if a.begun is not None), {}) if trial.share else {}
        for unit, amount in trial.spent.items():
            amount -= began.get(unit, 0.0)  # by the run that it is a branch of
            useful = math.fsum(spending.useful.get(unit, 0.0) for spending in spendings)
            # A trial that stopped at a rung may have gone beyond it before it was told so.
            exact = math.isclose(useful, amount, rel_tol=1e-9, abs_tol=1e-6)
            assert exact or (trial.outcome == "pruned" and useful > amount), (name, unit, useful, amount)
            assert all(spending.lost.get(unit, 0.0) >= -1e-6 for spending in spendings), (name, unit)


def outcome(history: History, arms: list[str]) -> dict[str, Any]:
    """All that faults must not change; clocks do."""
    assert history.comparison is not None
    comparison = without_seconds(history.comparison.comparison)
    found: dict[str, Any] = {
        "comparison": {key: comparison[key] for key in ("pairs", "not_compared")},
        "floors": history.floors,
    }
    for name, trial in history.trials.items():
        found[name] = told_by(trial, "scorer", "course") | {
            "floors": trial.floors,
            "checkpoint": trial.measures[-1].checkpoint,
        }
    for arm in arms:
        found[f"best of {arm}"] = [trial.trial for trial in best_trials(history, arm, 3)]
        found[f"decisions of {arm}"] = {
            number: (made.number, made.after) for number, made in history.decisions.get(arm, {}).items()
        }
    return found


@lru_cache(None)
def expected(kind: str, study: int) -> tuple[dict[str, Any], float]:
    """As :func:`undisturbed`, found out once."""
    return undisturbed(kind, study)


def history(seed: int) -> Setting:
    """A history of that seed; raises AssertionError where something does not hold."""
    chance = random.Random(seed)
    kind, study = TURNS[seed % len(TURNS)], seed // len(TURNS) % SEEDS
    wanted, took = expected(kind, study)
    setting = Setting(kind, study, seed, slots=chance.choice((1, 2, 3)), ahead=chance.choice((1, 1, 4)))
    found = _disturbed(setting, chance, took)
    if found != wanted:
        different = list(_differences(found, wanted, ""))
        told = [f"history {seed} ({kind} {study}): another answer", *setting.world.story, *different]
        raise AssertionError("\n".join(told))
    return setting


def history_of_requests(seed: int) -> Setting:
    """A history in which people ask a search to try configurations of their own. When it takes them up depends on
    faults, and so the answer does; raises AssertionError where something does not hold in itself."""
    chance = random.Random(f"requests/{seed}")
    kind, study = chance.choice(("search", "wide")), seed % SEEDS
    _, took = expected(kind, study)
    slots, ahead = chance.choice((1, 2, 3)), chance.choice((1, 4))
    setting = Setting(kind, study, f"requests/{seed}", slots, ahead, asking=chance.choice((1, 2, 4)))
    world, asked = setting.world, dict[str, requests.Request]()

    def ask() -> None:
        own = {"learning_rate": 10 ** chance.uniform(-4, -2)}
        arm = chance.choice(list(setting.spec.arms))
        request = requests.Request(arm=arm, configuration=chosen_configuration(setting.spec, arm, own))
        before = set(setting.store.objects.below(f"{PREFIX}/{REQUESTS}"))
        requests.put(setting.folder, request)
        (new,) = set(setting.store.objects.below(f"{PREFIX}/{REQUESTS}")) - before
        asked[new.rpartition("/")[2]] = request

    for _ in range(setting.asking):
        moment = world.now + chance.random() * took
        world.at(moment, lambda: world.processes[0].start(ask))
    _disturbed(setting, chance, took)
    lines = LedgerReader(setting.folder / "ledger").lines()
    taken_up = [record for record in map(parse_line, lines) if isinstance(record, EnqueuedRecord)]
    left = {path.rpartition("/")[2] for path in setting.store.objects.below(f"{PREFIX}/{REQUESTS}")}
    recorded = [record.request for record in taken_up]
    assert len(recorded) == len(set(recorded)), "taken up twice"
    assert {*recorded, *left} == asked.keys(), "lost"
    for record in taken_up:
        assert requests.Request(arm=record.arm, configuration=record.configuration) == asked[record.request]
    return setting


def _disturbed(setting: Setting, chance: random.Random, took: float) -> dict[str, Any]:
    """What a study comes to with faults of that chance; raises AssertionError where something does not hold in
    itself."""
    world, name = setting.world, f"history {setting.seed} ({setting.kind} {setting.study})"
    Faults(setting).plan(chance, until=took)
    try:
        setting.operate()
        world.sleep(SETTLING_SECONDS)
        going_on = [driver.name for driver in setting.drivers if driver.alive]
        assert not going_on, f"they do not stop: {going_on}"
        found = checked(setting)
    except (AssertionError, StuckError, InputError) as error:
        told = "\n".join(map(str, [*world.story[-120:], *world.crashes]))
        raise AssertionError(f"{name}:\n{told}\n{error}") from error
    finally:
        world.close()
        gc.collect(1)
    assert not world.crashes, "\n".join(map(str, [name, *world.story[-120:], *world.crashes]))
    return found


def _differences(found: Any, wanted: Any, where: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted({*found, *wanted}, key=str):
            yield from _differences(found.get(key), wanted.get(key), f"{where}/{key}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for place, pair in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(*pair, f"{where}/{place}")
    elif found != wanted:
        yield f"{where}: {found} and not {wanted}"


SETTLING_SECONDS = 1000.0
"""After them nothing leads the study any more that does not know that it is over."""

torch.set_num_threads(1)
