"""Continued pretraining: the weights of a Hugging Face model, put into a body and its head."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform
from transformers.utils import logging

from trainables.errors import InputError
from trainables.models.body import embedding_of
from trainables.models.head import Head

WHERE = "model.pretrained"
_ENDINGS = ("ForMaskedLM", "ForCausalLM", "LMHeadModel")
_UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, StrictDataclassError, SafetensorError)


class _Given(nn.Module):
    """A body whose last hidden states are known."""

    def __init__(self, hidden_KD: torch.Tensor) -> None:
        super().__init__()
        self._output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_KD[None])

    def forward(self, *_: Any, **__: Any) -> Any:
        """As a body's."""
        return self._output


def load_whole(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A Hugging Face model with its head, as its configuration names it, in float32, and its tokenizer. Only
    safetensors are read, and no code is run. Raises InputError: there are none, or the model is neither an encoder nor
    a decoder of text."""
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
            names = config.architectures or ()
            auto_model = AutoModelForMaskedLM if any("MaskedLM" in name for name in names) else AutoModelForCausalLM
            if config.is_encoder_decoder or not any(name.endswith(_ENDINGS) for name in names):
                raise ValueError(
                    f"its architecture is {', '.join(names) or 'not named'}, none of *{', *'.join(_ENDINGS)}"
                )
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            if not isinstance(tokenizer, PreTrainedTokenizerFast):
                raise ValueError("its tokenizer has no tokenizer.json")
            if auto_model is AutoModelForMaskedLM and tokenizer.mask_token_id is None:
                raise ValueError("its tokenizer has no mask token")
            model, report = auto_model.from_pretrained(
                path, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
            )
            if report["missing_keys"]:
                raise ValueError(f"weights are missing: {', '.join(sorted(report['missing_keys'])[:3])}")
    except _UNREADABLE as error:
        raise _unreadable(path, error, "the model") from error
    return model, tokenizer


def head_of(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """Of last hidden states, (K, D), the model's scores of the whole vocabulary, (K, V): what it does with its body's
    output, whatever that is."""
    body = model.base_model

    def logits(hidden_KD: torch.Tensor) -> torch.Tensor:
        setattr(model, model.base_model_prefix, _Given(hidden_KD))
        try:
            logits_1KV: torch.Tensor = model(input_ids=torch.zeros(1, len(hidden_KD), dtype=torch.long)).logits
        finally:
            setattr(model, model.base_model_prefix, body)
        return logits_1KV[0]

    return logits


def load_pretrained(body: nn.Module, head: Head | None, config: PreTrainedConfig, path_or_name: str) -> None:
    """Copy a Hugging Face model's weights into a body of its configuration, and into its head where both have one.

    A head that the checkpoint lacks stays as it was drawn, torch's random state as it was. Only safetensors are read,
    and no code is run. Raises InputError: there is no such model, or weights of the body are missing.
    """
    auto_model = AutoModelForMaskedLM if config.model_type == "bert" else AutoModelForCausalLM
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):  # transformers draws what the checkpoint lacks
            model, report = auto_model.from_pretrained(
                path_or_name,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        missing = {name for name in report["missing_keys"] if name.startswith(f"{model.base_model_prefix}.")}
        if not missing:
            body.load_state_dict(model.base_model.state_dict())
    except _UNREADABLE as error:
        raise _unreadable(path_or_name, error) from error
    if missing:
        raise InputError(
            f"the weights of {path_or_name} are not those of the study's model",
            where=WHERE,
            why=f"missing: {', '.join(sorted(missing)[:3])}",
            remedy="a whole checkpoint, position embeddings included",
        )
    if head is not None:
        _load_head(head, model, report["missing_keys"] - missing, embedding_of(body))


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


def _unreadable(path_or_name: str, error: Exception, where: str = WHERE) -> InputError:
    return InputError(
        f"there is no model {path_or_name} that can be read",
        where=where,
        why=str(error).strip().split("\n")[0],
        remedy="a folder with config.json and model.safetensors (pickles, *.bin, are not read), or a name on the "
        "hub, which needs the network",
    )


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
