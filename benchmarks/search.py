"""What searching with halving saves, and what it costs to keep the books of a long search.

``search_over_random``: the project's own search (``SearchPhase``: TPE, successive halving inside each arm, arms in
balance) against random search without halving, on surrogate learning curves, in simulated time. Counted is what all
arms together have spent when each has run a configuration to its whole budget that is within the tolerance of the best
there is at that budget. Median over the seeds of either; the ratio of the two is the figure.

``shares``: of searches of 3, 4, 8 and 20 trial budgets an arm, what the arms spend of them, how far apart they end, and
what is found: trials that came to the end, and by how much the best of them is below the best there is.

``bookkeeping_ms_per_trial``: a search of 2,000 trials through ``SearchPhase`` and ``Recorder``, with a ledger on disk
and 20 reports a trial; training is stubbed. Counted is all that the driver does for a trial: the suggestion, its
records, decisions and outcome. Optuna's file is written once, at the end.

    python benchmarks/search.py [--quick] [--algorithm gp]
"""

from __future__ import annotations

import gc
import heapq
import math
import os
import random
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import command_line, publish

from orchestrator.config.files import load_study
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import (
    EndRecord,
    MachineRecord,
    MeasureRecord,
    Outcome,
    Record,
    StudyRecord,
    TrialRecord,
)
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting.optuna_journal import write_optuna_journal
from orchestrator.scheduling.search import SearchPhase
from orchestrator.scheduling.trials import PlannedTrial, WritesDecisions
from search_spaces import Categorical, Space
from trainables.evaluation import Score
from trainables.storage import Location

TOKENS = 1_000_000
PRIMARY = "recovery_accuracy"
TOLERANCE = 0.01
"""Of the yardstick, absolute; the arms' curves end between 0 and 0.6."""


@dataclass(frozen=True)
class Surrogate:
    """Learning curves of one arm: accuracy over the share p of the budget, a power law with noise,

        a(c, p) = ceiling - excess(c) - (ceiling - excess(c)) * (1 + p / scale(c))^-exponent

    ``excess`` is a quadratic bowl in the logarithms of learning rate and temperature around a point drawn from the
    seed, plus a penalty on the negatives. ``scale`` falls with the learning rate: a high one is ahead early and ends
    lower than a smaller one, so curves cross and an early rung misleads. To it comes noise of each evaluation.
    Learning rates eight times that point's diverge.
    """

    optimum: Mapping[str, float]
    choice: Any
    ceiling: float = 0.6
    exponent: float = 0.7
    noise: float = 0.004

    @classmethod
    def drawn(cls, seed: int, arm: str) -> Surrogate:
        """With an optimum of the seed's and arm's own."""
        rng = random.Random(f"{seed}/{arm}")
        optimum = {"learning_rate": 10 ** rng.uniform(-3.6, -2.4), "temperature": 10 ** rng.uniform(-0.6, 0.3)}
        return cls(optimum, rng.choice([64, 256, None]))

    def excess(self, configuration: Mapping[str, Any]) -> float:
        """By how much the asymptote is below the ceiling."""
        widths = {"learning_rate": 0.10, "temperature": 0.06}
        bowl = sum(
            width * math.log10(configuration[name] / self.optimum[name]) ** 2
            for name, width in widths.items()
            if name in configuration
        )
        return bowl + 0.02 * ("negatives" in configuration and configuration["negatives"] != self.choice)

    def accuracy(self, configuration: Mapping[str, Any], progress: float) -> float:
        """Without noise."""
        end = self.ceiling - self.excess(configuration)
        scale = 0.08 * (configuration["learning_rate"] / self.optimum["learning_rate"]) ** -0.5
        return max(0.0, float(end * (1 - (1 + progress / scale) ** -self.exponent)))

    def diverges(self, configuration: Mapping[str, Any]) -> bool:
        """Whether the loss becomes no number."""
        return bool(configuration["learning_rate"] > 8 * self.optimum["learning_rate"])

    def best(self, space: Space) -> float:
        """The best accuracy at the whole budget, over a fine grid of the space."""
        grids = {
            name: dimension.grid(0) if isinstance(dimension, Categorical) else dimension.grid(120)
            for name, dimension in space.dimensions.items()
        }
        values: list[list[object]] = [[]]
        for grid in grids.values():
            values = [[*known, value] for known in values for value in grid]
        configurations = (dict(zip(grids, chosen, strict=True)) for chosen in values)
        return max(self.accuracy(c, 1.0) for c in configurations if not self.diverges(c))


def noise(trial: str, seed: int, progress: float) -> float:
    """Standard normal, of a trial and a point of its run."""
    return float(np.random.default_rng(zlib.crc32(f"{seed}/{trial}/{progress:.9f}".encode())).standard_normal())


class Simulation:
    """Does what the executor does, in simulated time: trials report after the time that their share takes.

    Args:
        spec: the study.
        curves: a trial's accuracy by progress, or None where it has diverged.
        recorder: writes the ledger.
        capacity: trials at a time.
        reports: a run, evenly, besides those at the rungs.
    """

    def __init__(
        self,
        spec: StudySpec,
        curves: Callable[[PlannedTrial, float], float | None],
        recorder: Recorder | Unwritten,
        capacity: int,
        reports: int = 0,
    ) -> None:
        self.spec, self.curves, self.recorder, self.capacity = spec, curves, recorder, capacity
        self.points = sorted({*spec.search.halving.fractions, 1.0, *((i + 1) / reports for i in range(reports))})
        if recorder.history.study is None:
            recorder.record(study_record(spec))
        self.phase = WritesDecisions(SearchPhase(spec, recorder.history, "corpus"), recorder.record)
        self.clock = self.busy = 0.0
        """Simulated time, and how long places trained in it, in trial budgets."""

    def lasts(self, planned: PlannedTrial, start: float, end: float, *, begins: bool) -> float:
        """The time from one share of a trial to another; ``begins``: with an attempt's start."""
        return end - start

    def run(self) -> Iterator[str]:
        """Yields the name of every trial whose attempt ends."""
        queue: list[tuple[float, int, PlannedTrial, float]] = []
        turn = 0
        while True:
            while len(queue) < self.capacity and (planned := self.phase.next()) is not None:
                known = self.recorder.history.trials.get(planned.trial)
                start = known.progress if known else 0.0
                self.recorder.record(
                    TrialRecord(
                        **keys(planned),
                        number=planned.number,
                        seed=planned.seed,
                        configuration=planned.configuration,
                        amount=planned.config.budget.amount,
                        start_step=round(1000 * start),
                        workers=1,
                    )
                )
                turn += 1
                further = self.after(start)
                time = self.clock + self.lasts(planned, start, further, begins=True)
                self.busy += self.lasts(planned, start, further, begins=False)
                heapq.heappush(queue, (time, turn, planned, further))
            if not queue:
                assert self.phase.exhausted()
                return
            self.clock, _, planned, progress = heapq.heappop(queue)
            outcome = self.report(planned, progress)
            if outcome is None:
                turn += 1
                further = self.after(progress)
                time = self.clock + self.lasts(planned, progress, further, begins=False)
                self.busy += time - self.clock
                heapq.heappush(queue, (time, turn, planned, further))
                continue
            self.recorder.record(EndRecord(**keys(planned), outcome=outcome, reason=""))
            self.phase.ended(self.recorder.history.trials[planned.trial], outcome)
            yield planned.trial

    def after(self, progress: float) -> float:
        """Where the next report is."""
        return next(point for point in self.points if point > progress + 1e-9)

    def report(self, planned: PlannedTrial, progress: float) -> Outcome | None:
        """Record a report; returns how the attempt ends with it, or None."""
        rungs = planned.config.rungs
        rung = rungs.index(progress) if progress in rungs else None
        value = self.curves(planned, progress)
        score = None if value is None else Score(overall=value, languages={"veldan": value, "kharto": value})
        self.recorder.record(
            MeasureRecord(
                **keys(planned),
                step=round(1000 * progress),
                progress=progress,
                spent={
                    "tokens": progress * TOKENS,
                    "steps": 1000 * progress,
                    "flops": 1e9,
                    "hardware_flops": 1e9,
                    "device_seconds": 1.0,
                    "wall_seconds": 1.0,
                },
                overhead={"startup": 1.0, "data_wait": 0.1, "evaluation": 0.1, "checkpoint": 0.1},
                loss=1.0,
                learning_rate=1e-3,
                digest="0" * 16,
                mix={"veldan": 1, "kharto": 1},
                rung=rung,
                yardsticks={PRIMARY: score} if score is not None and (rung is not None or progress == 1.0) else {},
            )
        )
        if value is None:
            return "diverged"
        if progress == 1.0:
            return "completed"
        trial = self.recorder.history.trials[planned.trial]
        return "pruned" if self.phase.prunes(trial, trial.measures[-1]) else None


def keys(planned: PlannedTrial) -> dict[str, Any]:
    """What every record of an attempt has."""
    return {name: getattr(planned, name) for name in ("phase", "arm", "trial", "attempt")}


def study_record(spec: StudySpec) -> StudyRecord:
    return StudyRecord(
        name=spec.name,
        folder="",
        digest="",
        protocol={},
        protocol_digest="",
        design=design_of(spec),
        versions={},
        machine=MachineRecord(system="", cpus=None),
        usd_per_hour=None,
    )


class Unwritten:
    """A recorder whose ledger is not written."""

    def __init__(self) -> None:
        self.history = History()

    def record(self, record: Record) -> None:
        """Into the history alone."""
        self.history.apply(record)


def surrogates_of(spec: StudySpec) -> dict[str, Surrogate]:
    """One for each arm."""
    return {arm: Surrogate.drawn(spec.seed, arm) for arm in spec.arms}


def noisy(surrogates: Mapping[str, Surrogate], seed: int) -> Callable[[PlannedTrial, float], float | None]:
    """A trial's accuracy as it is measured."""

    def curve(planned: PlannedTrial, progress: float) -> float | None:
        surrogate = surrogates[planned.arm]
        if surrogate.diverges(planned.configuration):
            return None
        spread = surrogate.noise * noise(planned.trial, seed, progress)
        return max(0.0, surrogate.accuracy(planned.configuration, progress) + spread)

    return curve


def spending_to_optimum(seed: int, overrides: tuple[str, ...], capacity: int) -> float | None:
    """What all arms spent, in trial budgets, until each had found its optimum; None: the search ended before."""
    spec = load_study("demo", [f"budget.tokens={TOKENS}", f"seed={seed}", *overrides])
    surrogates = surrogates_of(spec)
    goals = {arm: surrogates[arm].best(own.search_space) - TOLERANCE for arm, own in spec.arms.items()}
    recorder = Unwritten()
    for name in Simulation(spec, noisy(surrogates, seed), recorder, capacity).run():
        trial = recorder.history.trials[name]
        reached = surrogates[trial.arm].accuracy(trial.configuration, 1.0) >= goals.get(trial.arm, math.inf)
        if trial.outcome == "completed" and reached:
            del goals[trial.arm]
        if not goals:
            return sum(recorder.history.spent("search", arm, "tokens") for arm in spec.arms) / TOKENS
    return None


def shares(budget: int, seeds: int, concurrent: int = 1) -> dict[str, float]:
    """What searches of so many trial budgets an arm spend, and find."""
    spent, gaps, completed, regrets = [], [], [], []
    for seed in range(seeds):
        overrides = [f"search.budget_per_arm={budget}", f"search.parallel={concurrent}", f"seed={seed}"]
        spec = load_study("demo", [f"budget.tokens={TOKENS}", *overrides])
        surrogates, recorder = surrogates_of(spec), Unwritten()
        for _ in Simulation(spec, noisy(surrogates, seed), recorder, capacity=2 * concurrent, reports=20).run():
            pass
        own = [recorder.history.spent("search", arm, "tokens") / TOKENS / budget for arm in spec.arms]
        spent += own
        gaps.append(max(own) - min(own))
        for arm, surrogate in surrogates.items():
            ended = [t for t in recorder.history.trials_of("search", arm) if t.outcome == "completed"]
            completed.append(len(ended))
            chosen = max(ended, key=lambda t: t.score(PRIMARY) or 0.0)
            reached = surrogate.accuracy(chosen.configuration, 1.0)
            regrets.append(surrogate.best(spec.arms[arm].search_space) - reached)
    return {
        "least_share_spent": min(spent),
        "mean_share_spent": statistics.fmean(spent),
        "widest_gap_in_shares": max(gaps),
        "mean_completed": statistics.fmean(completed),
        "median_regret": statistics.median(regrets),
        "mean_regret": statistics.fmean(regrets),
    }


def searching_pays(seeds: int, algorithm: str, budget: int) -> dict[str, Any]:
    """Spending of either way, by seed. A search that ended without the optimum counts as infinite."""
    ways = {
        "halving": (f"search.algorithm={algorithm}", "search.halving={reduction: 3, rungs: 3}"),
        "random": ("search.algorithm=random", "search.halving.rungs=1"),
    }
    spent: dict[str, list[float]] = {}
    for way, overrides in ways.items():
        found = [
            spending_to_optimum(seed, (*overrides, f"search.budget_per_arm={budget}"), capacity=2)
            for seed in range(seeds)
        ]
        spent[way] = [math.inf if value is None else round(value, 3) for value in found]
    medians = {way: statistics.median(values) for way, values in spent.items()}
    return {
        "algorithm": algorithm,
        "seeds": seeds,
        "tolerance": TOLERANCE,
        "median_trial_budgets": medians,
        "search_over_random": medians["halving"] / medians["random"],
        "not_found": {way: sum(map(math.isinf, values)) for way, values in spent.items()},
        "quartiles": {
            way: [float(q) for q in np.quantile([v if math.isfinite(v) else 1e9 for v in values], [0.25, 0.75])]
            for way, values in spent.items()
        },
    }


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bookkeeping(trials: int, algorithm: str) -> dict[str, Any]:
    """Time of the driver's own work, by trial; and memory between a quarter of the trials and all."""
    overrides = (f"search.algorithm={algorithm}", f"search.budget_per_arm={trials}")  # more than so many take
    spec = load_study("demo", [f"budget.tokens={TOKENS}", *overrides])
    surrogates = surrogates_of(spec)

    def curve(planned: PlannedTrial, progress: float) -> float:
        return surrogates[planned.arm].accuracy(planned.configuration, progress)

    times, processor_times, ended, seen, memory = [], [], 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        study = Location(folder)
        recorder = Recorder(study / "ledger")
        reader = LedgerReader(study / "ledger")
        simulation = Simulation(spec, curve, recorder, capacity=2, reports=20).run()
        while ended < trials:
            start, processor = time.perf_counter(), time.process_time()
            if next(simulation, None) is None:
                break
            times.append(1e3 * (time.perf_counter() - start))
            processor_times.append(1e3 * (time.process_time() - processor))
            ended += 1
            if ended % 50 == 0:
                seen += len(reader.poll())
            if ended in (trials // 4, trials):
                gc.collect()
                memory[ended] = resident_bytes()
        start = time.perf_counter()
        write_optuna_journal(study, spec, recorder.history)
        journal_seconds = time.perf_counter() - start
        recorder.close()
        seen += len(reader.poll())
        sizes = {path.name: path.stat().st_size for path in Path(folder).rglob("*.jsonl")}
    assert len(memory) == 2, f"only {ended} trials fitted the budget"
    growth = memory[trials] - memory[trials // 4]
    return {
        "trials": trials,
        "bookkeeping_ms_per_trial": statistics.fmean(times),
        "bookkeeping_ms_p99": float(np.quantile(times, 0.99)),
        "bookkeeping_ms_last_hundred": statistics.fmean(times[-100:]),
        "processor_ms_per_trial": statistics.fmean(processor_times),
        "processor_ms_p99": float(np.quantile(processor_times, 0.99)),
        "memory_growth_bytes": growth,
        "memory_growth_bytes_per_trial": growth / (trials - trials // 4),
        "optuna_journal_seconds": journal_seconds,
        "records_read_while_written": seen,
        "file_bytes": sizes,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = command_line(__doc__, "few seeds and trials")
    parser.add_argument("--algorithm", default="tpe")
    options = parser.parse_args(arguments)
    quick = options.quick
    pays = searching_pays(3 if quick else 50, options.algorithm, budget=200)
    books = bookkeeping(100 if quick else 2000, options.algorithm)
    found = {f"{budget} an arm": shares(budget, 2 if quick else 50) for budget in (3, 4, 8, 20)}
    found["8 an arm, 3 at a time"] = shares(8, 2 if quick else 50, concurrent=3)
    result = {"search_over_random": pays.pop("search_over_random"), **books, "searching": pays, "shares": found}
    name = "search" if options.algorithm == "tpe" else f"search-{options.algorithm}"
    publish(name, "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
