"""The body: a Hugging Face encoder or decoder without its head, run so that nothing is computed in vain. Letters: N
sequences, L tokens each, T targets a sequence, D hidden size, A heads.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import BertLayer, BertModel

ATTENTION = "headtohead_sdpa"
"""torch's scaled dot product attention. Under a name of our own transformers makes no mask, and so does not wait for
the device in every step to see whether positions restart; the masks that are needed are made here."""

MOST_LAYERS = 500  # of a model: to build a million of them, even without memory for their weights, would not end

ALL_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_attention_forward)


class LastLayer(BertLayer):  # type: ignore[misc]
    """A BERT layer that can be computed at some positions alone: of all others only keys and values are needed."""

    def forward(self, hidden_NLD: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        """(N, L, D), or (N, T, D) where ``target_position_NT`` names positions."""
        position_NT = kwargs.pop("target_position_NT", None)
        if position_NT is None:
            everywhere: Tensor = super().forward(hidden_NLD, attention_mask, *args, **kwargs)
            return everywhere
        attention = self.attention.self
        hidden_NTD = hidden_NLD.gather(1, position_NT[:, :, None].expand(-1, -1, hidden_NLD.shape[-1]))

        def heads(projected: Tensor) -> Tensor:
            return projected.view(*projected.shape[:2], attention.num_attention_heads, -1).transpose(1, 2)

        if attention_mask is not None:  # (N, 1, L, L): the rows of the targets
            rows_N1T1 = position_NT[:, None, :, None]
            attention_mask = attention_mask.gather(2, rows_N1T1.expand(-1, -1, -1, attention_mask.shape[-1]))
        attended_NATd = F.scaled_dot_product_attention(
            heads(attention.query(hidden_NTD)),
            heads(attention.key(hidden_NLD)),
            heads(attention.value(hidden_NLD)),
            attn_mask=attention_mask,
            dropout_p=attention.dropout.p if self.training else 0.0,
        )
        attended_NTD = attended_NATd.transpose(1, 2).flatten(2)
        targets: Tensor = self.feed_forward_chunk(self.attention.output(attended_NTD, hidden_NTD))
        return targets


def make_body(config: PreTrainedConfig, attention: str = ATTENTION) -> nn.Module:
    """A body with newly drawn weights. ValueError: it has no layers or too many, or transformers has no such model."""
    if not 1 <= config.num_hidden_layers <= MOST_LAYERS:
        raise ValueError(f"a model has 1 to {MOST_LAYERS} layers: num_hidden_layers is {config.num_hidden_layers}")
    extra = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    body: nn.Module = AutoModel.from_config(config, attn_implementation=attention, **extra)
    if config.model_type == "bert":
        layers_of(body)[-1].__class__ = LastLayer  # the same parameters, one more way to compute
    return body


def layers_of(body: nn.Module) -> nn.ModuleList:
    """The body's transformer layers."""
    return next(module for module in body.modules() if isinstance(module, nn.ModuleList))


def embedding_of(body: nn.Module) -> nn.Parameter:
    """The input embedding table, (V, D)."""
    weight = body.get_input_embeddings().weight  # type: ignore[operator]
    assert isinstance(weight, nn.Parameter)
    return weight


def final_norm(body: nn.Module) -> nn.LayerNorm | None:
    """The LayerNorm whose output an encoder's last hidden states are; None for a decoder."""
    norm = getattr(getattr(layers_of(body)[-1], "output", None), "LayerNorm", None)
    return norm if isinstance(norm, nn.LayerNorm) else None


def run_body(
    body: nn.Module,
    embedded_NLD: Tensor,
    *,
    attention_mask_NL: Tensor | None = None,
    document_NL: Tensor | None = None,
    target_position_NT: Tensor | None = None,
) -> Tensor:
    """Last hidden states, (N, L, D), or (N, T, D) where target positions are named: ascending, a decoder's the first T.
    The attention mask is 0 where a position is padding. Documents have ascending numbers: attention stays inside a
    document, and positions restart with it."""
    causal = not isinstance(body, BertModel)
    arguments: dict[str, Any] = {"attention_mask": None}
    if attention_mask_NL is not None:
        length = attention_mask_NL.shape[1]
        arguments["attention_mask"] = _mask(attention_mask_NL.bool()[:, None, :].expand(-1, length, -1), causal)
    if document_NL is not None:
        assert attention_mask_NL is None, "packed sequences have no padding"
        arguments["attention_mask"] = _mask(document_NL[:, :, None] == document_NL[:, None, :], causal)
        arguments["position_ids"] = _place_in_document(document_NL)
    if causal:
        arguments["use_cache"] = False
    elif target_position_NT is not None:
        arguments["target_position_NT"] = target_position_NT
    hidden: Tensor = body(inputs_embeds=embedded_NLD, **arguments).last_hidden_state
    # A decoder's targets are all positions but the last: a slice, whose gradient needs no scatter.
    return hidden[:, : target_position_NT.shape[1]] if causal and target_position_NT is not None else hidden


def documents(token_NL: Tensor, separator: int) -> Tensor:
    """The number of each token's document within its sequence, (N, L): a separator ends its document."""
    ends_NL = (token_NL == separator).long()
    return ends_NL.cumsum(1) - ends_NL


def _mask(mask_NLL: Tensor, causal: bool) -> Tensor:
    return (mask_NLL.tril() if causal else mask_NLL)[:, None]


def _place_in_document(document_NL: Tensor) -> Tensor:
    place_L = torch.arange(document_NL.shape[1], device=document_NL.device)
    starts_NL = F.pad(document_NL.diff(dim=1) > 0, (1, 0), value=True)
    return place_L - torch.where(starts_NL, place_L, 0).cummax(dim=1).values
