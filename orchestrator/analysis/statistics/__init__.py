"""Small pure statistics, over numbers alone: no ledger, no study in them.

Most are of paired differences: one number a seed, arm A's yardstick minus arm B's. Everything is deterministic:
where chance is used (permutations too many to enumerate; boundaries found by simulation), the
generator's seed is fixed, so that a ledger always yields the same verdict.

================  ==================================================================================
``paired``         a fixed number of pairs: interval, permutation test, equivalence, Holm's adjustment
``planning``       power, the smallest difference that can be found, seeds still needed
``sequential``     seeds added one pair at a time until the question is answered
``tuning_curves``  the best of n search trials, with a confidence band
``time_to_target`` how much less one arm spends to get as far as the other
================  ==================================================================================
"""

from orchestrator.analysis.statistics.paired import Interval, fewest_pairs, holm, mean_interval, permutation_p
from orchestrator.analysis.statistics.planning import POWER, minimum_detectable_effect, power, seeds_needed
from orchestrator.analysis.statistics.sequential import Decision, Sequential
from orchestrator.analysis.statistics.time_to_target import Curves, TimeToTarget, time_to_target
from orchestrator.analysis.statistics.tuning_curves import TuningCurve, tuning_curve
from orchestrator.config.confirmation import ALPHA

__all__ = [
    "ALPHA",
    "POWER",
    "Curves",
    "Decision",
    "Interval",
    "Sequential",
    "TimeToTarget",
    "TuningCurve",
    "fewest_pairs",
    "holm",
    "mean_interval",
    "minimum_detectable_effect",
    "permutation_p",
    "power",
    "seeds_needed",
    "time_to_target",
    "tuning_curve",
]
