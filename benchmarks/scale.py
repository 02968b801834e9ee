"""What a study of very many trials asks of its driver: time, memory and writes, on 16 slots of one machine.

Everything is real, the study, its search, Ray, Tune, the processes of the trials and the ledger, but for the training:
a trial sleeps, and reports made-up scores as a real one does (``trainables.trial.trainable`` is replaced). Two arms are
searched at random, without early stops, each with 16 steps decided at a time. Ray is told of 16 CPUs, whatever the
machine has: all trial processes and the driver share its real ones.

- ``bookkeeping_10000_seconds``: from the first to the last of 10,000 trials of 1 s with one report each; 625 s is the
  least that 16 slots can take. ``driver_growth_mb``: by how much more memory this process has when the last of them has
  ended than when the first hundred had. ``driver_growth_at_the_end_mb``: the same once the study has its answer, for
  which the ledger is read anew. ``ledger_read_seconds``: the longest that another process took for what was new in the
  ledger, asked every two seconds meanwhile.
- ``result_throughput_seconds``: of 1,000 trials of 10 reports, one every 10 s, at the rate of 1,000 processes (100
  reports a second, for 100 s), by 16 processes: trials of 1.6 s that report every 0.16 s. No machine here holds a
  thousand processes; what is not measured is what more processes than 16 cost Ray.
- ``reports_per_second_of_96_trials``: of 96 trials that would each report 10 times a second, 960 times in all, a
  hundred times; by 16 processes, six times as often by each.
- ``ledger_writes_per_second``: of a study whose storage is an object store (moto's, on this machine). On a local disk
  each record is appended at once.
- ``checkpoint_mb_per_second``: of ``trainables.training.checkpoint``, two processes with 1 GB each, against a plain
  write of the same bytes.
- ``bare_tune``: seconds of the same trials by Ray Tune alone, without a study, for each of the workloads: its actors,
  its messages and its loop.

    python benchmarks/scale.py            # 30 minutes
    python benchmarks/scale.py --quick    # two minutes, two slots
    python benchmarks/scale.py --only bookkeeping
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest.mock import patch

import ray
from measure import command_line, publish
from pydantic import JsonValue
from ray import cloudpickle, tune

from orchestrator.execution import tune_run
from orchestrator.execution.privacy import LOOPBACK_ONLY, ensure_private_token, private_ray_folder
from orchestrator.execution.ray_session import SETTINGS, SYSTEM_SETTINGS
from orchestrator.ledger.records import EndRecord, TrialRecord
from orchestrator.ledger.segments import LedgerReader, read_ledger
from orchestrator.study import Study
from trainables.object_store import StoredObject
from trainables.storage import Location

if TYPE_CHECKING:
    from trainables.training.world import World

FIRST = 100
"""Trials after which memory is measured first: all processes are there by then."""


class Workload(NamedTuple):
    """Trials that are alike."""

    trials: int
    seconds: float
    """Of a trial."""
    reports: int
    """Of a trial, evenly."""
    slots: int = 16
    """Trials at a time."""

    @property
    def floor_seconds(self) -> float:
        """The least that the slots can take."""
        return self.trials * self.seconds / self.slots

    def times(self, share: float) -> Workload:
        """With fewer trials."""
        return self._replace(trials=max(2 * self.slots, round(self.trials * share)))


BOOKKEEPING = Workload(10_000, 1.0, 1)
THROUGHPUT = Workload(1000, 1.6, 10)
FAST_REPORTS = Workload(96, 100 / 60, 100)
ON_A_STORE = Workload(1000, 1.0, 1)
PARTS = ("bookkeeping", "result_throughput", "fast_reports", "store", "checkpoints")
QUICK_SHARE, QUICK_SLOTS = 0.004, 2
BARE_SHARE = 0.2
"""Of a workload's trials that bare Tune runs: they are alike."""


def faked(seconds: float, reports: int) -> Callable[[dict[str, Any]], None]:
    """A trainable that sleeps: in the place of ``trainables.trial.trainable``, with its messages."""

    def train(config: dict[str, Any]) -> None:
        from ray import tune

        from trainables.trial import _asking

        class Alone:
            def any_asks(self, asked: bool, call: int) -> bool:
                return asked

        trial = config["trial"]
        amount, rate = sum(filter(None, trial["budget"].values())), trial["training"]["learning_rate"]
        begun = time.monotonic()

        def measured(share: float) -> dict[str, Any]:
            spent = dict.fromkeys(("tokens", "steps", "flops", "hardware_flops"), share * amount)
            took = time.monotonic() - begun if share else 0.0  # nothing, before the first step
            return {
                "step": round(share * amount),
                "spent": spent | {"device_seconds": took, "wall_seconds": took},
                "overhead": {"startup": 0.0, "data_wait": 0.0, "evaluation": 0.0, "checkpoint": 0.0},
            }

        with _asking(config["stop"], cast("World", Alone())) as should_stop:
            tune.report({"report": json.dumps({"status": "begun", "measure": measured(0.0) | {"workers": 1}})})
            for number in range(1, reports + 1):
                time.sleep(max(0.0, begun + number * seconds / reports - time.monotonic()))
                share, ends = number / reports, number == reports
                score = {"overall": rate, "languages": {"veldan": rate}}
                stops = should_stop()
                measure = measured(share) | {
                    "progress": share,
                    "loss": 1.0,
                    "learning_rate": rate,
                    "digest": "0" * 16,
                    "mix": {"veldan": number},
                    "rung": None,
                    "yardsticks": dict.fromkeys(trial["yardsticks"], score) if ends else {},
                }
                status = "completed" if ends else "interrupted" if stops else "running"
                tune.report({"report": json.dumps({"status": status, "measure": measure})})
                if status != "running":
                    return

    return train


def study_of(name: str, storage: str, work: Workload) -> Study:
    """Of two arms, which are searched at random and confirmed by a pair of runs."""
    arm: dict[str, JsonValue] = {"objective": "clm", "space": "learning_rate"}
    return Study(
        {
            "name": name,
            "corpora": {
                "sources": [{"language": "veldan", "grammar": "veldan", "documents": 300}],
                "sequence_length": 64,
            },
            "tokenizer": {"train": {"vocabulary_size": 500}},
            "model": {"shape": "tiny"},
            "arms": {"one": arm, "other": arm},
            "budget": {"steps": 1000},
            "yardsticks": {"others": []},
            "search": {
                "budget_per_arm": work.trials // 2,
                "algorithm": "random",
                "halving": {"rungs": 1},
                "parallel": work.slots,
            },
            "confirm": {"seeds": 1, "describe_only": True, "evaluations": 1},
            "resources": {"concurrent_trials": work.slots},
            "storage": storage,
        }
    )


@contextmanager
def cluster(cpus: int) -> Iterator[None]:
    """As a study starts it, but that it has as many CPUs as there are slots."""
    os.environ.update(SETTINGS | LOOPBACK_ONLY)
    ensure_private_token()
    with private_ray_folder() as folder:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            _system_config=SYSTEM_SETTINGS,
            logging_level="ERROR",
            log_to_driver=False,
        )
        try:
            yield
        finally:
            ray.shutdown()


class Watch(threading.Thread):
    """Notes this process's memory when the first and all of its trials have ended, and how long another waits for the
    ledger."""

    def __init__(self, folder: Location, trials: int) -> None:
        super().__init__(daemon=True)
        self._trials = trials
        command = [sys.executable, __file__, "--read", str(folder / "ledger")]
        self._reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.first_bytes = self.last_bytes = 0
        self.longest_read = 0.0
        self.reads = 0

    def run(self) -> None:
        """Until the reader ends."""
        assert self._reader.stdout is not None
        for line in self._reader.stdout:
            ended, seconds = json.loads(line)
            self.reads += 1
            self.longest_read = max(self.longest_read, seconds)
            if ended >= FIRST and not self.first_bytes:
                gc.collect()
                self.first_bytes = resident_bytes()
            if ended >= self._trials and not self.last_bytes:
                gc.collect()
                self.last_bytes = resident_bytes()

    def end(self) -> None:
        """No more of it."""
        self._reader.terminate()
        self._reader.wait()
        self.join()


def read_again_and_again(folder: str) -> None:
    """Print how many attempts have ended, and how long that took to read, every two seconds."""
    reader, ended = LedgerReader(Location(folder)), 0
    while True:
        start = time.perf_counter()
        ended += sum(isinstance(record, EndRecord) for record in reader.poll())
        print(json.dumps([ended, time.perf_counter() - start]), flush=True)
        time.sleep(2)


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def by_study(name: str, work: Workload, storage: str) -> dict[str, float]:
    """What a workload takes as a study's search."""
    study = study_of(name, storage, work)
    watch = Watch(study.folder, work.trials // 2 * 2)
    watch.start()
    with patch.object(tune_run, "trainable", faked(work.seconds, work.reports)):
        study.run()
    gc.collect()
    grown = resident_bytes() - watch.first_bytes
    watch.end()
    own = [r for r in read_ledger(study.folder / "ledger") if isinstance(r, TrialRecord | EndRecord)]
    own = [record for record in own if record.phase == "search"]
    assert sum(isinstance(record, EndRecord) for record in own) == work.trials // 2 * 2, "each once"
    return {
        "trials": work.trials,
        "seconds": round(own[-1].time - own[0].time, 1),
        "floor_seconds": round(work.floor_seconds, 1),
        "reports_per_second": round(work.trials * work.reports / (own[-1].time - own[0].time), 1),
        "driver_growth_mb": round((watch.last_bytes - watch.first_bytes) / 1e6, 1) if watch.first_bytes else 0.0,
        "driver_growth_at_the_end_mb": round(grown / 1e6, 1) if watch.first_bytes else 0.0,
        "ledger_reads": watch.reads,
        "ledger_read_seconds": round(watch.longest_read, 3),
    }


def by_bare_tune(work: Workload, scratch: Path) -> dict[str, float]:
    """What it takes by Tune alone, with its processes used again, as a study does."""
    from trainables.trial import StopSignal

    stop = ray.remote(num_cpus=0)(StopSignal).options(name="bare-stop").remote()
    ray.get(stop.requested.remote())
    trial = {"budget": {"steps": 1000}, "training": {"learning_rate": 1e-3}, "yardsticks": ["bits_per_byte"]}
    config = {"trial": trial, "stop": "bare-stop"}
    times: list[float] = []

    class Ends(tune.Callback):  # type: ignore[misc]
        def on_trial_start(self, *_: Any, **__: Any) -> None:
            times.append(time.time())

        on_trial_complete = on_trial_start

    tune.Tuner(
        tune.with_resources(faked(work.seconds, work.reports), {"cpu": 1}),
        param_space=config,
        tune_config=tune.TuneConfig(num_samples=work.trials, reuse_actors=True, max_concurrent_trials=work.slots),
        run_config=tune.RunConfig(name="bare", storage_path=str(scratch), verbose=0, callbacks=[Ends()]),
    ).fit()
    ray.kill(stop)
    return {
        "trials": work.trials,
        "seconds": round(times[-1] - times[0], 1),
        "floor_seconds": round(work.floor_seconds, 1),
    }


@contextmanager
def object_store() -> Iterator[str]:
    """A bucket of moto's, on this machine."""
    port = 34_571
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT"))
                break
            except OSError:
                time.sleep(0.1)
        yield "s3://bucket"
    finally:
        server.terminate()
        server.wait()


def on_a_store(work: Workload) -> dict[str, float]:
    """How often a ledger on an object store is written."""
    written: list[float] = []
    replace = StoredObject.replace

    def counted(self: StoredObject, *arguments: Any) -> Any:
        written.append(time.time())
        return replace(self, *arguments)

    with object_store() as bucket, cluster(work.slots), patch.object(StoredObject, "replace", counted):
        found = by_study("store", work, bucket)
    return found | {"writes_per_second": round((len(written) - 1) / (written[-1] - written[0]), 2)}


def checkpoints(megabytes: int, processes: int, times: int) -> dict[str, float]:
    """Megabytes a second that processes write side by side, each a checkpoint after another; and plain files."""

    def save(folder: str, plain: bool) -> float:
        import torch

        from trainables.training.checkpoint import Checkpoints
        from trainables.training.state import Spending, TrialState

        tensor = torch.randn(megabytes * 250_000)
        state = TrialState(
            restored=False,
            micro_batch_sequences=None,
            spent=Spending(),
            next_sequence=0,
            digest="0" * 16,
            seen=(0,),
            loss_sum=0.0,
            loss_steps=0,
            step_cost=1.0,
            reports=(),
        )
        begun = time.perf_counter()
        for number in range(times):
            if plain:
                with Path(f"{folder}-{number}").open("wb") as file:
                    file.write(tensor.numpy().data)
                    os.fsync(file.fileno())
                if number:
                    Path(f"{folder}-{number - 1}").unlink()
                continue
            own = Checkpoints(Location(folder))
            own.save(number + 1, {"model": {"weight": tensor}}, state)
            own.wait()
        return time.perf_counter() - begun

    found = {}
    with tempfile.TemporaryDirectory(prefix="h2h-scale-") as scratch, cluster(processes):
        for name, plain in (("checkpoint", False), ("plain", True)):
            seconds = max(ray.get([ray.remote(save).remote(f"{scratch}/{name}-{i}", plain) for i in range(processes)]))
            found[f"{name}_mb_per_second"] = round(processes * times * megabytes / seconds, 1)
    return found


def run(share: float, slots: int, parts: Collection[str] = PARTS) -> dict[str, Any]:
    """The figures of some parts, of a share of the trials."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    result: dict[str, Any] = {"slots": slots}
    own = {"bookkeeping": BOOKKEEPING, "result_throughput": THROUGHPUT, "fast_reports": FAST_REPORTS}
    for name, whole in own.items():
        work = whole._replace(slots=slots)
        if name not in parts:
            continue
        with tempfile.TemporaryDirectory(prefix="h2h-scale-") as scratch, cluster(work.slots):
            result[name] = by_study(name.replace("_", "-"), work.times(share), scratch)
            print({name: result[name]}, flush=True)
            result[name]["bare_tune"] = by_bare_tune(work.times(share * BARE_SHARE), Path(scratch))
            print({name: result[name]["bare_tune"]}, flush=True)
    if "store" in parts:
        result["store"] = on_a_store(ON_A_STORE._replace(slots=slots).times(share))
        print({"store": result["store"]}, flush=True)
    if "checkpoints" in parts:
        result["checkpoints"] = checkpoints(1000 if share == 1 else 50, 2, 3)
        print({"checkpoints": result["checkpoints"]}, flush=True)
    return _named(result) | result


def _named(result: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a claim is made of."""
    keys = {
        "bookkeeping_10000_seconds": ("bookkeeping", "seconds"),
        "driver_growth_mb": ("bookkeeping", "driver_growth_mb"),
        "driver_growth_at_the_end_mb": ("bookkeeping", "driver_growth_at_the_end_mb"),
        "ledger_read_seconds": ("bookkeeping", "ledger_read_seconds"),
        "result_throughput_seconds": ("result_throughput", "seconds"),
        "reports_per_second_of_96_trials": ("fast_reports", "reports_per_second"),
        "ledger_writes_per_second": ("store", "writes_per_second"),
        "checkpoint_mb_per_second": ("checkpoints", "checkpoint_mb_per_second"),
    }
    return {name: result[part][key] for name, (part, key) in keys.items() if part in result}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "few trials")
    parser.add_argument("--only", choices=PARTS, help="one part; nothing is recorded then")
    parser.add_argument("--share", type=float, help="of the trials; nothing is recorded then")
    parser.add_argument("--slots", type=int, help="trials at a time; nothing is recorded then")
    parser.add_argument("--read", help="what the benchmark starts to read a ledger")
    options = parser.parse_args(arguments)
    if options.read:
        read_again_and_again(options.read)
    share = options.share or (QUICK_SHARE if options.quick else 1.0)
    slots = options.slots or (QUICK_SLOTS if options.quick else BOOKKEEPING.slots)
    result = run(share, slots, PARTS if options.only is None else (options.only,))
    publish("scale", "cpu", result, quick=share != 1.0 or options.only is not None or options.slots is not None)
    return result


if __name__ == "__main__":
    main()
