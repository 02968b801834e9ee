"""Closed-form FLOPs of a training step, forward and backward: 2 a multiply-add, matrix products only.

Norms, activations, look-ups and the optimiser are left out, as is usual (arXiv 2001.08361, section 2.1); attention is
counted in full, as ``torch.utils.flop_counter`` does. These are the model's FLOPs; the hardware's have
:func:`recomputed_flops` on top, but not what a fused attention kernel computes twice inside itself. Letters: N
sequences, L tokens each, D hidden size, F feed-forward size, K target positions over all sequences, C candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

FORWARD_AND_BACKWARD = 3  # a product of the forward pass needs two of the same size in the backward pass


def body_flops(config: PreTrainedConfig, num_sequences: int, sequence_length: int, num_targets: int) -> int:
    """Forward and backward. An encoder's last layer has all but keys and values at the K target positions alone."""
    L, D, F = sequence_length, int(config.hidden_size), feed_forward_size(config)
    num_tokens, layers = num_sequences * L, int(config.num_hidden_layers)

    def layer(num_queries: int) -> int:
        keys_and_values = 2 * num_tokens * 2 * D * D
        queries_and_output = 2 * num_queries * 2 * D * D
        feed_forward = 2 * num_queries * 2 * D * F
        attention = 2 * 2 * num_queries * L * D
        return keys_and_values + queries_and_output + feed_forward + attention

    last = num_targets if config.model_type == "bert" else num_tokens
    return FORWARD_AND_BACKWARD * ((layers - 1) * layer(num_tokens) + layer(last))


def any_body_flops(body: nn.Module, num_tokens: int) -> int:
    """Forward and backward, of a model of any family: its matrices but for look-up tables, without attention's own
    products (arXiv 2001.08361, section 2.1)."""
    tables = {id(p) for m in body.modules() if "Embedding" in type(m).__name__ for p in m.parameters(recurse=False)}
    matrices = sum(p.numel() for p in body.parameters() if p.ndim == 2 and id(p) not in tables)
    return FORWARD_AND_BACKWARD * 2 * num_tokens * matrices


def scoring_flops(config: PreTrainedConfig, num_sequences: int, sequence_length: int, num_targets: int) -> int:
    """Forward alone, of K tokens of held-out text and their scores over the vocabulary: an encoder's last layer, which
    a step has at its targets alone, is whole here."""
    num_tokens = num_sequences * sequence_length
    forward = body_flops(config, num_sequences, sequence_length, num_tokens) + transform_flops(config, num_targets)
    return forward // FORWARD_AND_BACKWARD + 2 * num_targets * int(config.vocab_size) * int(config.hidden_size)


def recomputed_flops(config: PreTrainedConfig, num_sequences: int, sequence_length: int, num_targets: int) -> int:
    """FLOPs that activation checkpointing adds: a layer's forward pass once more, as far as its backward pass asks.

    A decoder's layer ends in a product whose result only a dropout would keep; without one torch stops short of it
    (``torch.utils.checkpoint``, early stop).
    """
    forward = body_flops(config, num_sequences, sequence_length, num_targets) // FORWARD_AND_BACKWARD
    last_dropout = {"gpt_neox": "hidden_dropout", "gpt2": "resid_pdrop"}.get(config.model_type)
    if last_dropout is None or getattr(config, last_dropout) > 0:
        return forward
    num_tokens, D, F = num_sequences * sequence_length, int(config.hidden_size), feed_forward_size(config)
    return forward - int(config.num_hidden_layers) * 2 * num_tokens * D * F


def loss_flops(hidden_size: int, num_targets: int, num_candidates: int, *, detached: bool = False) -> int:
    """Of the linear cross-entropy of K positions against C candidates: 6 K C D; 4 K C D if those get no gradient."""
    return (FORWARD_AND_BACKWARD - detached) * 2 * num_targets * num_candidates * hidden_size


def transform_flops(config: PreTrainedConfig, num_targets: int) -> int:
    """Of a head's transform at K positions: BERT's is a D x D layer, the others have none."""
    D = int(config.hidden_size) if config.model_type == "bert" else 0
    return FORWARD_AND_BACKWARD * 2 * num_targets * D * D


def classifier_flops(hidden_size: int, num_states: int, num_classes: int, *, dense: bool) -> int:
    """Of a classifier of hidden states, forward and backward: a product with the classes, and before it, where it is
    ``dense``, one with a D x D layer."""
    D = hidden_size
    return FORWARD_AND_BACKWARD * 2 * num_states * D * (num_classes + dense * D)


def feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward layers. GPT-2 says so as ``n_inner``, or not at all where it is 4 times the hidden."""
    if config.model_type == "gpt2":
        return int(config.n_inner or 4 * config.n_embd)
    return int(config.intermediate_size)
