"""The optimiser and its settings."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from trainables.config import Config
from trainables.training.schedule import Schedule


class TrainingConfig(Config):
    """How a model is trained; an arm may override any of it, and a search space may vary it."""

    learning_rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    schedule: Schedule = "linear"
    """How the learning rate falls after the warm-up: a function of budget progress."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the budget over which the learning rate rises."""
    learning_rate_floor: float = Field(0.0, ge=0, le=1)
    """Share of the peak learning rate at the end."""
    batch_sequences: int = Field(64, ge=1)
    """Sequences an optimiser step, over all workers."""
    micro_batch_sequences: int | None = Field(None, ge=1)
    """Sequences a forward pass of one worker (CWT's negatives come from there); null: a worker's whole share."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's; matrices only, not biases and norms."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment decay."""
    beta2: float = Field(0.98, ge=0, lt=1)
    """AdamW's second moment decay."""
    epsilon: float = Field(1e-8, gt=0)
    """AdamW's."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of the tokens that a masked objective recovers; every sequence has the same number."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products under autocast; auto: bfloat16 on CUDA, float32 on a CPU."""


def make_optimiser(model: nn.Module, training: TrainingConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW, fused on CUDA; weight decay on matrices (embeddings included) only."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        eps=training.epsilon,
        fused=device.type == "cuda",
    )
