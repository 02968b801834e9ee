"""Closed-form FLOPs of a training step, forward and backward: 2 a multiply-add, matrix products only.

Norms, activations, look-ups and the optimiser are left out, as is usual (arXiv 2001.08361, section 2.1); attention is
counted in full, as ``torch.utils.flop_counter`` does. Letters: L tokens a sequence, D hidden size, F feed-forward
size, K target positions, C candidates.
"""

from __future__ import annotations

from transformers import PreTrainedConfig

FORWARD_AND_BACKWARD = 3
"""A product of the forward pass needs two of the same size in the backward pass."""


def body_flops(config: PreTrainedConfig, sequence_length: int) -> int:
    """FLOPs of the body for one sequence, forward and backward."""
    L, D, F = sequence_length, int(config.hidden_size), int(config.intermediate_size)
    projections = 2 * L * (4 * D * D + 2 * D * F)
    attention = 2 * 2 * L * L * D
    return FORWARD_AND_BACKWARD * int(config.num_hidden_layers) * (projections + attention)


def loss_flops(hidden_size: int, num_targets: int, num_candidates: int) -> int:
    """FLOPs of the linear cross-entropy of K positions against C candidates: 6 K C D."""
    return FORWARD_AND_BACKWARD * 2 * num_targets * num_candidates * hidden_size


def transform_flops(hidden_size: int, num_targets: int) -> int:
    """FLOPs of BERT's head transform (a D x D layer) at K positions."""
    return FORWARD_AND_BACKWARD * 2 * num_targets * hidden_size * hidden_size
