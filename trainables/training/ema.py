"""The average of a model's weights over the steps, on which yardsticks may be taken instead."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.training.checkpoint_tensors import module_tensors

Model = TypeVar("Model", bound=nn.Module)


class WeightAverage(Generic[Model]):
    """An exponential moving average of a model's parameters.

    It starts as the plain mean of the steps so far, and forgets once that is longer than the decay's memory of
    1 / (1 - decay) steps; so the initial weights are never in it, however short the run. ``AveragedModel`` of torch
    starts from the first step's weights at full decay, and on CUDA waits for the device at every update.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.model: Model = copy.deepcopy(model).eval().requires_grad_(False)
        """The model with the averaged weights."""

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step of its optimiser."""
        self.steps += 1
        average = get_ema_multi_avg_fn(min(self.decay, 1 - 1 / self.steps))  # type: ignore[no-untyped-call]
        average(list(self.model.parameters()), [p.detach() for p in model.parameters()], None)

    def tensors(self) -> dict[str, Tensor]:
        """The averaged weights and the number of steps they are of."""
        return {**module_tensors(self.model), "steps": torch.tensor(self.steps)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from :meth:`tensors`."""
        self.steps = int(tensors["steps"])
        self.model.load_state_dict(tensors, strict=False)  # tied weights are there once
