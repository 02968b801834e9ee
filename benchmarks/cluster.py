"""How a study fills the places of a cluster, what searching side by side costs, and what many trials ask of its driver.

The first two are in simulated time, with the product's own phases, on the surrogate learning curves of ``search.py``.
A trial's pace differs by 10% (a normal deviation, of the trial's own) and by arm (the vanilla one takes a fifth
longer); an attempt takes a fiftieth of a trial to start, in which its place does not train. Studies have two arms,
halving and looks after each seed from the 6th to the 14th, as by default.

- busy_share_16_slots: the share of the time of 16 places in which they train, in the mean of the seeds: of the
  search (8 trial budgets an arm, the default), of the confirmation, and of both together
- confirmation_bound: what no order of the same runs could go beyond: with more runs than places some have two
- search_bound: what a search could not go beyond in which the trials that turned out best begin when they did, and are
  run to their end. Sixteen trial budgets on 16 places are a trial's length: a share of 0.9 is a search that ends 1.1
  lengths after it began, so that no trial that is run to its end can begin after any result
- search_limits: the share of the search if attempts took no time to start, if besides the arms were alike, and if
  besides all trials had one pace, so that each step ended when it was foreseen. The rest is the search's end, when the
  budget is given out and the last long steps run
- parallel_cost: how far the best that the search found, of the same spending, is below that of a search of one step at
  a time, relative to it; the median of the seeds
- table: both by trial budgets an arm and parallel steps
- bookkeeping_10000_seconds, driver_growth_mb, driver_growth_at_the_end_mb, result_throughput_seconds: of real trial
  processes that only sleep, as ``scale.py`` says, which also measures more

    python benchmarks/cluster.py                # half an hour on two cores
    python benchmarks/cluster.py --simulated    # without trial processes: six minutes on one core; records nothing
    python benchmarks/cluster.py --quick        # a minute, to see that it runs
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import scale
from measure import command_line, publish
from search import TOKENS, Simulation, Unwritten, noise, noisy, surrogates_of

from orchestrator.analysis.selection import best_trials
from orchestrator.config.files import load_study
from orchestrator.config.search import SearchSpec
from orchestrator.config.study import StudySpec
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.trials import PlannedTrial, WritesDecisions

Curves = Callable[[PlannedTrial, float], float | None]

SLOTS = 16
PARALLEL = (1, 4, 8, 16)
SEEDS = {8: 50, 4: 8, 20: 8}  # by trial budgets an arm


class Pace(NamedTuple):
    """How long trials take, in the time of a usual one."""

    spread: float = 0.1
    """Between trials: a normal deviation."""
    slower: float = 1.2
    """Of the vanilla arm."""
    start: float = 0.02
    """Of an attempt, until it trains."""


LIMITS = {
    "no_starts": Pace(start=0.0),
    "and_arms_alike": Pace(start=0.0, slower=1.0),
    "and_one_pace": Pace(start=0.0, slower=1.0, spread=0.0),
}


class Timed(Simulation):
    """Trials take their time."""

    length = Pace()

    def __init__(self, spec: StudySpec, curves: Curves, recorder: Unwritten, capacity: int) -> None:
        super().__init__(spec, curves, recorder, capacity)
        self.began: dict[str, float] = {}
        """When each trial did."""

    def lasts(self, planned: PlannedTrial, start: float, end: float, *, begins: bool) -> float:
        """As the module says."""
        self.began.setdefault(planned.trial, self.clock)
        return (end - start) * self.pace(planned) + self.length.start * begins

    def pace(self, trial: PlannedTrial | TrialHistory) -> float:
        """How long a whole one trains."""
        own = max(0.5, 1 + self.length.spread * noise(trial.trial, self.spec.seed, 0.0))
        return own * (self.length.slower if trial.arm == "vanilla" else 1.0)

    @property
    def share(self) -> float:
        """Of the time of all places that in which they trained."""
        return self.busy / self.clock / SLOTS

    def bound_by(self, best: Sequence[TrialHistory]) -> float:
        """The most that the share could be of a search in which these are run to their end from when they began."""
        least = max(self.began[trial.trial] + self.pace(trial) + self.length.start for trial in best)
        return min(1.0, self.busy / SLOTS / least)

    @property
    def bound(self) -> float:
        """The most that the share of as many runs could have been: of those that some places have two of, the
        shortest."""
        runs = self.recorder.history.trials_of("confirm")
        lengths = sorted(self.pace(run) + self.length.start for run in runs)
        double = len(lengths) - SLOTS
        least = sum(lengths[: 2 * double]) / double if 0 < double <= SLOTS else lengths[-1]
        return min(1.0, self.busy / SLOTS / least)


def study(seed: int, budget: float, parallel: int) -> StudySpec:
    """One of two arms, with the defaults of a study but for these."""
    return load_study(
        "demo",
        [
            f"budget.tokens={TOKENS}",
            f"seed={seed}",
            f"search.budget_per_arm={budget}",
            f"search.parallel={parallel}",
            "search.halving={}",
            "confirm.seeds=14",
            "confirm.stopping.minimum=6",
        ],
    )


class Shares(NamedTuple):
    """What one study came to."""

    search: float
    confirmation: float
    both: float
    search_bound: float
    confirmation_bound: float
    found: float
    """The mean best of the arms."""


def shares(seed: int, budget: float, parallel: int) -> Shares:
    """The busy shares of a study, and what it found."""
    spec = study(seed, budget, parallel)
    surrogates, recorder = surrogates_of(spec), Unwritten()
    curves = noisy(surrogates, seed)
    search = searched(spec, curves, recorder, Pace())
    best = [best_trials(recorder.history, arm, 1)[0] for arm in surrogates]
    found = [surrogates[trial.arm].accuracy(trial.configuration, 1.0) for trial in best]
    confirm = Timed(spec, curves, recorder, SLOTS)
    confirm.points = [1.0]
    confirm.phase = WritesDecisions(ConfirmPhase(spec, recorder.history, "corpus", SLOTS), recorder.record)
    for _ in confirm.run():
        pass
    whole = (search.busy + confirm.busy) / (search.clock + confirm.clock)
    bounds = search.bound_by(best), confirm.bound
    return Shares(search.share, confirm.share, whole / SLOTS, *bounds, statistics.fmean(found))


def searched(spec: StudySpec, curves: Curves, recorder: Unwritten, length: Pace) -> Timed:
    """The search, gone through."""
    search = Timed(spec, curves, recorder, SLOTS)
    search.length = length
    for _ in search.run():
        pass
    return search


def limits(seeds: int) -> dict[str, float]:
    """The busy share of default searches, the less of what makes steps uneven."""
    found = {}
    for name, length in LIMITS.items():
        own = []
        for seed in range(seeds):
            spec = study(seed, 8, SearchSpec().parallel)
            own.append(searched(spec, noisy(surrogates_of(spec), seed), Unwritten(), length).share)
        found[name] = round(statistics.fmean(own), 4)
    return found


def measured(quick: bool) -> dict[str, float]:
    """What trial processes that sleep ask of a study's driver."""
    share, slots = (scale.QUICK_SHARE, scale.QUICK_SLOTS) if quick else (1.0, SLOTS)
    found = scale.run(share, slots, ("bookkeeping", "result_throughput"))
    return {name: value for name, value in found.items() if isinstance(value, float)}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = command_line(__doc__, "few seeds and trials")
    parser.add_argument("--simulated", action="store_true", help="without trial processes; nothing is recorded then")
    options = parser.parse_args(arguments)
    quick = options.quick
    table = []
    alone: dict[float, list[float]] = {}
    for budget, seeds in ({8: 2} if quick else SEEDS).items():
        for parallel in PARALLEL[:3] if quick else PARALLEL:
            rows = [shares(seed, budget, parallel) for seed in range(seeds)]
            found = [row.found for row in rows]
            means = {
                name: round(statistics.fmean(getattr(row, name) for row in rows), 4) for name in Shares._fields[:-1]
            }
            one = alone.setdefault(budget, found)
            costs = [(a - b) / a for a, b in zip(one, found, strict=True)]
            table.append(
                {
                    "budget_per_arm": budget,
                    "parallel": parallel,
                    "seeds": seeds,
                    **means,
                    "parallel_cost": round(statistics.median(costs), 5),
                    "mean_parallel_cost": round(statistics.fmean(costs), 5),
                }
            )
            print(table[-1], flush=True)
    default = SearchSpec().parallel
    chosen = next((row for row in table if row["parallel"] == default), table[-1])
    result = {
        "busy_share_16_slots": {name: chosen[name] for name in ("search", "confirmation", "both")},
        "search_bound": chosen["search_bound"],
        "confirmation_bound": chosen["confirmation_bound"],
        "search_limits": limits(2 if quick else 20),
        "parallel_cost": chosen["parallel_cost"],
        "default_parallel": default,
        "table": table,
    }
    if not options.simulated:
        result |= measured(quick)
    publish("cluster", "cpu", result, quick=quick or options.simulated)
    return result


if __name__ == "__main__":
    main()
