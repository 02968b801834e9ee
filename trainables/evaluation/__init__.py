"""Yardsticks: metrics that mean the same for every arm of a task."""

from trainables.errors import InputError, nearest
from trainables.evaluation.yardsticks import YARDSTICKS, EvaluationConfig, Evaluator, Yardstick

__all__ = ["YARDSTICKS", "EvaluationConfig", "Evaluator", "Yardstick", "find_yardstick"]


def find_yardstick(name: str, where: str = "") -> Yardstick:
    """The yardstick of that name.

    Raises:
        InputError: there is none.
    """
    if name not in YARDSTICKS:
        raise InputError(f"unknown yardstick '{name}'", where=where, remedy=nearest(name, YARDSTICKS))
    return YARDSTICKS[name]
