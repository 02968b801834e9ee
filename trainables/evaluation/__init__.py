"""Yardsticks: metrics that mean the same for every arm of a task."""

from trainables.evaluation.yardsticks import YARDSTICKS, EvaluationConfig, Evaluator

__all__ = ["YARDSTICKS", "EvaluationConfig", "Evaluator"]
