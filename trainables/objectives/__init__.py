"""Pretraining objectives: a corruption of the tokens (mask, shift) and a candidate set, over one loss."""

from trainables.objectives.registry import OBJECTIVES, Objective, find_objective

__all__ = ["OBJECTIVES", "Objective", "find_objective"]
