"""What the orchestration costs: a sweep of trials through a study, against bare Optuna in one process.

Both train the same trials, one after another with all cores: the same model, text, budget, evaluations and
checkpoints. Bare is a loop of three lines over ``optuna.Study.ask`` and the trainer, in this process. The study is
``Study.run`` with one arm: Ray starts, prepares the text and runs the search; its time is that of the search phase in
the ledger, from the first trial asked for to the last one's end.

- ``sweep_overhead``: share of the bare wall time that the study loses;
- ``startup_seconds``: median, over all trials but the first, of the time from a trial's beginning in the ledger to its
  first step: until its first report, less what its steps took;
- ``ray_train_startup_seconds``: the same where every trial is a Ray Train run of one worker, and the part of it until
  the worker has begun, ``ray_train_placement_seconds``. Its floor is ``bare_ray_train_seconds``, a
  ``TorchTrainer.fit()`` of a worker that does nothing, with the imports of a new process on top (``import_seconds``;
  torch's own are in the floor too).

The last line is one JSON object, also written to ``benchmarks/results``.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import torch
from measure import command_line, publish

from orchestrator.ledger.history import History
from orchestrator.ledger.records import BegunRecord, EndRecord, MeasureRecord, Record, TrialRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.scheduling.sampler import distributions
from orchestrator.scheduling.trials import Planner
from orchestrator.study import Study
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints
from trainables.training.config import TrialConfig
from trainables.training.loop import Trial


class Plan(NamedTuple):
    """How much is measured."""

    trials: int = 32
    bare_trials: int = 4
    """The bare loop's wall time is the same for every trial but the first: so many stand for all."""
    seconds: float = 30.0
    """Of a trial, about."""
    ray_train_trials: int = 3


IMPORTED = ("torch", "torch, transformers.models.bert.modeling_bert", "trainables.trial, trainables.training.loop")
"""torch alone, torch and transformers for one model, and all that a trial imports."""
CALIBRATION_STEPS = 100
"""By which the length of a trial is chosen."""
QUICK = Plan(2, 2, 1.0, 2)


def study_of(name: str, storage: Path, steps: float, trials: int, **resources: Any) -> Study:
    """One decoder arm on embedded languages, searched at random without early stops."""
    return Study(
        {
            "name": name,
            "corpora": {
                "sources": [
                    {"language": language, "grammar": language, "documents": 3000} for language in ("veldan", "kharto")
                ],
                "sequence_length": 64,
            },
            "tokenizer": {"train": {"vocabulary_size": 2000}},
            "model": {"shape": "tiny"},
            "training": {"batch_sequences": 32},
            "arms": {"vanilla": {"objective": "clm"}},
            "budget": {"steps": steps},
            "search": {"budget_per_arm": trials, "algorithm": "random", "halving": {"rungs": 1}},
            "confirm": {"seeds": 1},
            "resources": {"concurrent_trials": 1, **resources},
            "storage": str(storage),
        }
    )


def ledger(study: Study) -> list[Record]:
    return read_ledger(study.folder / "ledger")


def search_seconds(records: Sequence[Record]) -> float:
    """From the first trial's beginning to the last one's end."""
    times = [r.time for r in records if isinstance(r, TrialRecord | EndRecord) and r.phase == "search"]
    return times[-1] - times[0]


def startups(records: Sequence[Record]) -> list[float]:
    """Of each search trial: from its beginning to its first step."""
    begun: dict[str, float] = {}
    found: dict[str, float] = {}
    for record in records:
        if isinstance(record, TrialRecord) and record.phase == "search":
            begun[record.trial] = record.time
        elif isinstance(record, MeasureRecord) and record.phase == "search" and record.trial not in found:
            trained = record.spent["device_seconds"] + record.overhead["data_wait"]
            found[record.trial] = record.time - begun[record.trial] - trained
    return list(found.values())


def placement_seconds(records: Sequence[Record]) -> float:
    """From a trial's beginning until its worker has begun, its imports included; median of all trials but the first."""
    asked, begun = (
        [r.time for r in records if isinstance(r, kind) and r.phase == "search"] for kind in (TrialRecord, BegunRecord)
    )
    return statistics.median(end - start for start, end in list(zip(asked, begun, strict=True))[1:])


def import_seconds(module: str) -> float:
    """Of a new process with the module, its files read before: the least of three."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def configs(study: Study, corpus: str) -> Iterator[tuple[TrialConfig, optuna.Study, optuna.Trial]]:
    """What the study's trials would be, from a plain Optuna study."""
    space = distributions(study.spec.arms["vanilla"].search_space)
    planner = Planner(study.spec, History(), corpus)
    own = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    number = 0
    while True:
        asked = own.ask(space)
        planned = planner.plan("search", "vanilla", number, study.spec.seed, asked.params)
        yield planned.config, own, asked
        number += 1


def bare(study: Study, corpus: str, folder: Path, trials: int) -> list[float]:
    """Seconds of each trial of the bare loop."""
    packed, seconds = PackedCorpus(Location(corpus)), []
    with threads(len(os.sched_getaffinity(0))):
        for (config, own, asked), _ in zip(configs(study, corpus), range(trials), strict=False):
            start = time.perf_counter()
            stream = TokenStream(packed, config.seed, config.alpha, config.maximum_repetition)
            *_, last = Trial(config, stream, Checkpoints(Location(folder / config.trial))).run()
            own.tell(asked, last.measure.yardsticks["recovery_accuracy"].overall)
            seconds.append(time.perf_counter() - start)
    return seconds


def nothing(config: dict[str, Any]) -> None:
    """What a Ray Train worker does where only its start is measured."""


def bare_ray_train_seconds(scratch: Path) -> float:
    """A second ``fit()`` of one worker that does nothing."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    seconds = 0.0
    for number in range(2):
        start = time.perf_counter()
        TorchTrainer(
            nothing,
            train_loop_config={},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(name=f"nothing-{number}", storage_path=str(scratch / "train")),
        ).fit()
        seconds = time.perf_counter() - start
    return seconds


def run(plan: Plan) -> dict[str, Any]:
    """All figures."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="h2h-overhead-") as folder:
        scratch = Path(folder)
        first = study_of("first", scratch, CALIBRATION_STEPS, 1, cpus_per_worker=cores)
        first.run()
        corpus = str(first.corpus().folder)
        (trial,) = first.results.history.trials_of("search")
        step_seconds = trial.measures[-1].spent["device_seconds"] / CALIBRATION_STEPS
        steps = max(20, math.ceil(plan.seconds / step_seconds))
        sweep = study_of("sweep", scratch, steps, plan.trials, cpus_per_worker=cores)
        half = -(-plan.bare_trials // 2)
        before = bare(sweep, corpus, scratch / "before", half)
        sweep.run()
        after = bare(sweep, corpus, scratch / "after", half)
        bare_seconds = statistics.mean([*before[1:], *after] if len(before) > 1 else [*before, *after])
        records = ledger(sweep)
        ours = search_seconds(records)
        print({"bare": before + after, "sweep": ours, "startups": startups(records)}, flush=True)
        trained = study_of("trained", scratch, steps, plan.ray_train_trials, launcher="ray_train", cpus_per_worker=1)
        trained.run()
        result = {
            "plan": plan._asdict(),
            "steps": steps,
            "bare_seconds_per_trial": round(bare_seconds, 3),
            "seconds_per_trial": round(ours / plan.trials, 3),
            "sweep_overhead": round(ours / (plan.trials * bare_seconds) - 1, 4),
            "startup_seconds": round(statistics.median(startups(records)[1:]), 3),
            "ray_train_startup_seconds": round(statistics.median(startups(ledger(trained))[1:]), 3),
            "ray_train_placement_seconds": round(placement_seconds(ledger(trained)), 3),
            "import_seconds": {module: round(import_seconds(module), 3) for module in IMPORTED},
        }
        import ray

        ray.init(address="local", include_dashboard=True, log_to_driver=False, logging_level="ERROR")
        result["bare_ray_train_seconds"] = round(bare_ray_train_seconds(scratch), 3)
        ray.shutdown()
    return result


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "two trials of a second")
    parser.add_argument("--trials", type=int, default=Plan().trials)
    parser.add_argument("--seconds", type=float, default=Plan().seconds)
    options = parser.parse_args(arguments)
    result = run(QUICK if options.quick else Plan(trials=options.trials, seconds=options.seconds))
    publish("overhead", "cpu", result, quick=options.quick)
    return result


if __name__ == "__main__":
    main()
