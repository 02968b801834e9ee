"""Yardsticks: metrics that mean the same for every arm of a task."""

from trainables.evaluation.registry import YARDSTICKS, find_yardstick
from trainables.evaluation.yardstick import EvaluationConfig, Items, Score, Yardstick

__all__ = ["YARDSTICKS", "EvaluationConfig", "Items", "Score", "Yardstick", "find_yardstick"]
