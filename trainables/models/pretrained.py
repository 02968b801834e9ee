"""Continued pretraining: the weights of a Hugging Face model, put into a body and its head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedConfig
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform
from transformers.utils import logging

from trainables.errors import InputError
from trainables.models.body import embedding_of
from trainables.models.head import Head

WHERE = "model.pretrained"

_DECISIVE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "activation_function",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "use_parallel_residual",
    "rope_parameters",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
)
"""Settings by which the same weights compute something else; not all of them show in the weights' shapes."""


def load_pretrained(body: nn.Module, head: Head | None, config: PreTrainedConfig, path_or_name: str) -> None:
    """Copy a Hugging Face model's weights into a body, and into its head where both have one.

    A head that the checkpoint lacks stays as it was drawn. Only safetensors are read, and no code of the checkpoint is
    run. torch's random state is left as it was.

    Args:
        body: of the checkpoint's family and shape.
        head: of the vocabulary; None where there is none.
        config: of the body.
        path_or_name: a local folder, or a name on the Hugging Face hub.

    Raises:
        InputError: there is no such model, or it is of another family, shape or vocabulary.
    """
    auto_model = AutoModelForMaskedLM if config.model_type == "bert" else AutoModelForCausalLM
    with _reading(path_or_name), quiet_transformers():
        given = AutoConfig.from_pretrained(path_or_name, trust_remote_code=False)
        _require_same(config, given, path_or_name, headful=head is not None)
        with torch.random.fork_rng(devices=[]):  # transformers draws what the checkpoint lacks
            model, report = auto_model.from_pretrained(
                path_or_name,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
    missing = {name for name in report["missing_keys"] if name.startswith(f"{model.base_model_prefix}.")}
    _load_body(body, model, missing, path_or_name)
    if head is not None:
        _load_head(head, model, report["missing_keys"] - missing, embedding_of(body))


def _load_body(body: nn.Module, model: Any, missing: set[str], path_or_name: str) -> None:
    own, weights = body.state_dict(), model.base_model.state_dict()
    different = [name for name in own if name not in weights or weights[name].shape != own[name].shape]
    if missing or different:
        raise InputError(
            f"the weights of {path_or_name} are not those of the study's model",
            where=WHERE,
            why=f"{'missing' if missing else 'of another shape'}: {', '.join(sorted(missing or different)[:3])}",
            remedy="a whole checkpoint of the study's configuration, position embeddings included",
        )
    body.load_state_dict(weights)


@torch.no_grad()
def _load_head(head: Head, model: Any, missing: set[str], embedding_VD: nn.Parameter) -> None:
    """Nothing where the checkpoint has no head: a tied projection is then the embedding, the rest as it was drawn."""
    output = model.get_output_embeddings()
    if any("transform" in name for name in missing):
        return
    if head.weight_VD is not embedding_VD and not any(name.endswith(".weight") for name in missing):
        head.weight_VD.copy_(output.weight)
    if head.bias is not None and isinstance(head.transform, BertPredictionHeadTransform):
        predictions = model.cls.predictions
        head.transform.load_state_dict(predictions.transform.state_dict())
        # Of an untied checkpoint transformers wants both biases; older ones have the second alone.
        bias = predictions.bias if "cls.predictions.decoder.bias" in missing else output.bias
        head.bias.copy_(bias)
        head.find_offset()


def _require_same(own: PreTrainedConfig, given: PreTrainedConfig, path_or_name: str, *, headful: bool) -> None:
    if given.model_type != own.model_type:
        raise InputError(
            f"{path_or_name} is a {given.model_type} model, the study's is a {own.model_type} model",
            where=WHERE,
            remedy=f"a {own.model_type} checkpoint, or a model of its family that fits the arm's objective",
        )
    keys = (*_DECISIVE, "tie_word_embeddings") if headful else _DECISIVE
    for key in keys:
        if getattr(given, key, None) != getattr(own, key, None):
            raise InputError(
                f"{path_or_name} has another {key} than the study's model",
                where=WHERE,
                why=f"{getattr(given, key, None)}, not {getattr(own, key, None)}",
                remedy="leave the configuration to the checkpoint: set nothing but model.pretrained",
            )
    if given.vocab_size != own.vocab_size:
        raise InputError(
            f"{path_or_name} has a vocabulary of {given.vocab_size}, the study one of {own.vocab_size}",
            where="tokenizer",
            why="a model goes on with the tokenizer that it began with",
            remedy=f"--set tokenizer='{{pretrained: {path_or_name}}}'",
        )


@contextmanager
def _reading(path_or_name: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, StrictDataclassError, SafetensorError) as error:
        raise InputError(
            f"there is no model {path_or_name} that can be read",
            where=WHERE,
            why=str(error).strip().split("\n")[0],
            remedy="a folder with config.json and model.safetensors (pickles, *.bin, are not read), or a name on the "
            "hub, which needs the network",
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and reports of transformers': what is wrong with a checkpoint, our own messages say."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
