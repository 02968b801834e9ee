"""The yardsticks by name. A new one is a file, and a line here or an entry point of another package."""

from trainables.config import Registry
from trainables.evaluation.likelihood import BitsPerByte, Perplexity
from trainables.evaluation.minimal_pairs import MinimalPairAccuracy
from trainables.evaluation.recovery import RecoveryAccuracy, RecoveryMeanReciprocalRank
from trainables.evaluation.yardstick import Yardstick

YARDSTICKS: Registry[Yardstick] = Registry(
    "yardstick",
    "headtohead.yardsticks",
    Yardstick,
    (RecoveryAccuracy, RecoveryMeanReciprocalRank, Perplexity, BitsPerByte, MinimalPairAccuracy),
)


def find_yardstick(name: str, where: str = "") -> Yardstick:
    """The yardstick of that name. Raises InputError where there is none, or its package cannot be imported."""
    return YARDSTICKS.find(name, where)()
