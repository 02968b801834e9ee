"""Pretraining objectives: what a model recovers, from what it is told apart, and the loss of that."""

from trainables.objectives.objective import Objective
from trainables.objectives.registry import OBJECTIVES, find_objective, vanilla_objective

__all__ = ["OBJECTIVES", "Objective", "find_objective", "vanilla_objective"]
