"""How a study fills the places of a cluster, and what searching side by side costs.

All in simulated time, with the product's own phases, on the surrogate learning curves of ``search.py``. A trial's pace
differs by 10% (a normal deviation, of the trial's own) and by arm (the vanilla one takes a fifth longer); an attempt
takes a fiftieth of a trial to start, in which its place does not train. Studies have two arms, halving and looks after
each seed from the 6th to the 14th, as by default.

- busy_share_16_slots: the share of the time of 16 places in which they train, in the mean of the seeds: of the
  search (8 trial budgets an arm, the default), of the confirmation, and of both together
- parallel_cost: how far the best that the search found, of the same spending, is below that of a search of one step at
  a time, relative to it; the median of the seeds
- table: both by trial budgets an arm and parallel steps

    python benchmarks/cluster.py            # some minutes on one core
    python benchmarks/cluster.py --quick    # a moment, to see that it runs
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from measure import command_line, publish
from search import PRIMARY, TOKENS, Simulation, Unwritten, noise, noisy, surrogates_of

from orchestrator.config.files import load_study
from orchestrator.config.search import SearchSpec
from orchestrator.config.study import StudySpec
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.trials import PlannedTrial, WritesDecisions

SLOTS = 16
PARALLEL = (1, 4, 8, 16)
SEEDS = {8: 50, 4: 8, 20: 8}  # by trial budgets an arm
SPREAD, SLOWER, START = 0.1, 1.2, 0.02


class Timed(Simulation):
    """Trials take their time."""

    def lasts(self, planned: PlannedTrial, start: float, end: float, *, begins: bool) -> float:
        """As the module says."""
        pace = max(0.5, 1 + SPREAD * noise(planned.trial, self.spec.seed, 0.0))
        return (end - start) * pace * (SLOWER if planned.arm == "vanilla" else 1.0) + START * begins


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


def shares(seed: int, budget: float, parallel: int) -> tuple[float, float, float, float]:
    """Of the search, the confirmation and both: the busy share; and the mean best that the arms found."""
    spec = study(seed, budget, parallel)
    surrogates, recorder = surrogates_of(spec), Unwritten()
    curves = noisy(surrogates, seed)
    search = Timed(spec, curves, recorder, SLOTS)
    for _ in search.run():
        pass
    found = []
    for arm, surrogate in surrogates.items():
        ended = [t for t in recorder.history.trials_of("search", arm) if t.outcome == "completed"]
        best = max(ended, key=lambda t: t.score(PRIMARY) or 0.0)
        found.append(surrogate.accuracy(best.configuration, 1.0))
    confirm = Timed(spec, curves, recorder, SLOTS)
    confirm.points = [1.0]
    confirm.phase = WritesDecisions(ConfirmPhase(spec, recorder.history, "corpus", SLOTS), recorder.record)
    for _ in confirm.run():
        pass
    whole = (search.busy + confirm.busy) / (search.clock + confirm.clock)
    own = search.busy / search.clock, confirm.busy / confirm.clock
    return own[0] / SLOTS, own[1] / SLOTS, whole / SLOTS, statistics.fmean(found)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    quick = command_line(__doc__, "few seeds").parse_args(arguments).quick
    table = []
    alone: dict[float, list[float]] = {}
    for budget, seeds in ({8: 2} if quick else SEEDS).items():
        for parallel in PARALLEL[:3] if quick else PARALLEL:
            rows = [shares(seed, budget, parallel) for seed in range(seeds)]
            search, confirm, whole, found = (list(column) for column in zip(*rows, strict=True))
            one = alone.setdefault(budget, found)
            costs = [(a - b) / a for a, b in zip(one, found, strict=True)]
            table.append(
                {
                    "budget_per_arm": budget,
                    "parallel": parallel,
                    "seeds": seeds,
                    "search": round(statistics.fmean(search), 4),
                    "confirmation": round(statistics.fmean(confirm), 4),
                    "both": round(statistics.fmean(whole), 4),
                    "parallel_cost": round(statistics.median(costs), 5),
                    "mean_parallel_cost": round(statistics.fmean(costs), 5),
                }
            )
            print(table[-1], flush=True)
    default = SearchSpec().parallel
    chosen = next((row for row in table if row["parallel"] == default), table[-1])
    result = {
        "busy_share_16_slots": {name: chosen[name] for name in ("search", "confirmation", "both")},
        "parallel_cost": chosen["parallel_cost"],
        "default_parallel": default,
        "table": table,
    }
    publish("cluster", "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
