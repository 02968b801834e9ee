"""A decoder whose scores have a bias, as one of its family, which has none: the bias becomes a weight.

The family's projection has no bias, so the body gets a hidden dimension whose last value is always 1, and the
projection the bias as that dimension's weights. It must be a whole head's worth of dimensions, as the size of a head is
the hidden size over the number of heads, and all but the one stay 0. LayerNorm takes mean and variance over all
dimensions: what is written into the residual stream is first centred, which no LayerNorm sees, so that the mean is 0
with the zeros or without; the variance is then less by D / (D + E), which the norms' weights and epsilon undo. In exact
arithmetic the hidden states and scores are the same. Letters: V vocabulary, D hidden size, E dimensions more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedConfig

from trainables.models.flops import feed_forward_size

WRITERS = ("attention.dense", "mlp.dense_4h_to_h", "attn.c_proj", "mlp.c_proj")  # into the residual stream
TABLES = ("embed_in", "wte", "wpe")  # likewise, row by row
NORMS = ("input_layernorm", "post_attention_layernorm", "final_layer_norm", "ln_1", "ln_2", "ln_f")
FINAL_NORMS = ("final_layer_norm", "ln_f")


def widened_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration with one head more, whose projection has weights of its own."""
    wide, gpt2 = copy.deepcopy(config), config.model_type == "gpt2"
    heads, D = config.num_attention_heads, config.hidden_size
    epsilon = "layer_norm_epsilon" if gpt2 else "layer_norm_eps"
    setattr(wide, epsilon, getattr(config, epsilon) * heads / (heads + 1))
    setattr(wide, "n_inner" if gpt2 else "intermediate_size", feed_forward_size(config))
    setattr(wide, "n_embd" if gpt2 else "hidden_size", D + D // heads)
    setattr(wide, "n_head" if gpt2 else "num_attention_heads", heads + 1)
    return wide


def widened_body(weights: Mapping[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """The weights of a body of :func:`widened_config`, from those of one of the configuration, by their names."""
    return {name: _widened(name, value, config) for name, value in weights.items()}


def widened_projection(weight_VD: Tensor, bias_V: Tensor, config: PreTrainedConfig) -> Tensor:
    """The projection's weights, (V, D + E)."""
    D = config.hidden_size
    wide = F.pad(weight_VD, (0, D // config.num_attention_heads))
    wide[:, D] = bias_V
    return wide


def _widened(name: str, value: Tensor, config: PreTrainedConfig) -> Tensor:
    module, _, kind = name.rpartition(".")
    heads, D = config.num_attention_heads, config.hidden_size
    E = D // heads
    if module.endswith(NORMS):
        wide = F.pad(value, (0, E))
        if kind == "weight":
            return wide * math.sqrt(heads / (heads + 1))
        if module.endswith(FINAL_NORMS):
            wide[D] = 1.0
        return wide
    if module.endswith(TABLES):
        return F.pad(value - value.mean(1, keepdim=True), (0, E))
    conv = config.model_type == "gpt2" and kind == "weight"  # transformers' Conv1D has (in, out)
    wide = value.T if conv else value
    if module.endswith(WRITERS):
        wide = _more_rows(wide - wide.mean(0), E)  # the outputs
    elif module.endswith("c_attn"):  # queries of all heads, then keys, then values
        wide = torch.cat([_more_rows(part, E) for part in torch.split(wide, D)])
    elif module.endswith("query_key_value"):  # all three of the first head, then of the second
        wide = _more_rows(wide, 3 * E)
    if kind == "weight" and not module.endswith("mlp.c_proj" if conv else "mlp.dense_4h_to_h"):
        wide = F.pad(wide, (0, E))  # the inputs, but of the feed-forward layer's
    return wide.T if conv else wide


def _more_rows(value: Tensor, count: int) -> Tensor:
    """With rows of zeros at the end."""
    return torch.cat([value, value.new_zeros(count, *value.shape[1:])])
