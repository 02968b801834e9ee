"""The same models in plain transformers, and their losses as one writes them by hand.

Letters: N sequences, L tokens each, K target positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from trainables.corpora.stream.token_stream import Batch, TokenStream
from trainables.models.config import Task
from trainables.objectives.corruption import corrupt
from trainables.objectives.learner import Learner


class Labelled(NamedTuple):
    """A corrupted batch as transformers wants it."""

    input_NL: Tensor
    label_NL: Tensor
    """An encoder's are -100 where nothing is to be recovered; a decoder's are the tokens, which transformers shifts."""
    place_K: Tensor
    """Target positions, counted through the whole batch."""
    target_K: Tensor


def labelled(task: Task, stream: TokenStream, batch: Batch, mask_rate: float, device: str) -> Labelled:
    """The batch corrupted as this project does it."""
    token_NL = batch.token_NL.astype("int64")
    found = corrupt(task, batch, stream.corpus.manifest, stream.seed, mask_rate)
    N, L = token_NL.shape
    place_K = (torch.from_numpy(found.position_NT.copy()) + L * torch.arange(N)[:, None]).flatten()
    target_K = torch.from_numpy(found.target_NT.copy()).flatten()
    label_NL = torch.from_numpy(token_NL)
    if task == "masked":
        label_NL = torch.full((N * L,), -100).scatter_(0, place_K, target_K).view(N, L)
    tensors = (torch.from_numpy(found.input_NL.copy()), label_NL, place_K, target_K)
    return Labelled(*(tensor.to(device) for tensor in tensors))


def plain_model(learner: Learner) -> PreTrainedModel:
    """Transformers' own model with a head and its own attention, with the learner's weights."""
    encoder = learner.objective.task == "masked"
    config = type(learner.config)(**learner.config.to_diff_dict())
    model: PreTrainedModel = (AutoModelForMaskedLM if encoder else AutoModelForCausalLM).from_config(
        config, attn_implementation="sdpa"
    )
    model.base_model.load_state_dict(learner.body.state_dict())
    if learner.head is not None:
        with torch.no_grad():
            model.get_output_embeddings().weight.copy_(learner.head.weight_VD)
        if learner.head.transform is not None:
            model.cls.predictions.transform.load_state_dict(learner.head.transform.state_dict())
    return model.train()


def target_hidden(model: PreTrainedModel, batch: Labelled) -> Tensor:
    """Last hidden states at the target positions, (K, D); the whole last layer is computed."""
    hidden_NLD: Tensor = model.base_model(input_ids=batch.input_NL).last_hidden_state
    if model.config.model_type != "bert":
        return hidden_NLD[:, :-1].flatten(0, 1)
    return hidden_NLD.flatten(0, 1).index_select(0, batch.place_K)


def all_positions(model: PreTrainedModel, batch: Labelled) -> Tensor:
    """The loss that the model itself computes: logits at every position."""
    loss: Tensor = model(input_ids=batch.input_NL, labels=batch.label_NL).loss
    return loss


def target_positions(model: PreTrainedModel, batch: Labelled) -> Tensor:
    """Logits at the target positions alone, stored."""
    hidden_KD = target_hidden(model, batch)
    encoder = model.config.model_type == "bert"
    logits_KV = model.cls(hidden_KD) if encoder else model.get_output_embeddings()(hidden_KD)
    return F.cross_entropy(logits_KV, batch.target_K)


def fused(model: PreTrainedModel, batch: Labelled) -> Tensor:
    """Liger's fused linear cross-entropy at the target positions.

    Raises:
        ImportError: it is not installed.
    """
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    hidden_KD, projection = target_hidden(model, batch), model.get_output_embeddings()
    if model.config.model_type == "bert":
        hidden_KD = model.cls.predictions.transform(hidden_KD)
    loss: Tensor = LigerFusedLinearCrossEntropyLoss()(projection.weight, hidden_KD, batch.target_K, projection.bias)
    return loss


def contrastive(
    model: PreTrainedModel, batch: Labelled, token_C: Tensor, log_count_C: Tensor, index_K: Tensor
) -> Tensor:
    """Contrastive weight tying over unique targets: logits stored, candidates looked up in the input embedding.

    Without the constant, which has no gradient.
    """
    weight_CD = F.embedding(token_C, model.get_input_embeddings().weight)
    return F.cross_entropy(target_hidden(model, batch) @ weight_CD.T + log_count_C, index_K)
