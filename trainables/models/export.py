"""A trained model in Hugging Face format: it loads with plain transformers, which knows nothing of this package."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from trainables.corpora.tokenizers import SPECIAL_ROLES, separator_token
from trainables.models.body import embedding_of
from trainables.models.head import Head
from trainables.models.pretrained import quiet_transformers
from trainables.models.widening import widened_body, widened_config, widened_projection
from trainables.storage import Location

CARD = "README.md"


def export_model(
    body: nn.Module,
    head: Head,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    folder: Location,
    card: str,
) -> tuple[str, ...]:
    """Write a model that ``AutoModelForMaskedLM`` or ``AutoModelForCausalLM`` loads and scores as the head does.

    The head is the trained one, or one made of what scored the vocabulary (:meth:`Head.over`). A decoder whose head has
    a bias is written wider (:mod:`trainables.models.widening`). Files of the same names are replaced; the card is
    Markdown. Returns the names of the files.
    """
    with tempfile.TemporaryDirectory() as scratch, quiet_transformers():
        _whole_model(body, head, config, tokenizer).save_pretrained(scratch)
        _tokenizer_as_trained(tokenizer, config).save_pretrained(scratch)
        (Path(scratch) / CARD).write_text(card, encoding="utf-8")
        names = sorted(path.name for path in Path(scratch).iterdir())
        # The configuration comes last: a folder that an interruption left half written does not load.
        for name in sorted(names, key=lambda name: name == "config.json"):
            (folder / name).write_bytes((Path(scratch) / name).read_bytes())
    return tuple(names)


def _whole_model(
    body: nn.Module, head: Head, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast
) -> PreTrainedModel:
    """Body and head as transformers' own model of their family, to be saved."""
    encoder = config.model_type == "bert"
    states, weight_VD = body.state_dict(), head.weight_VD.detach()
    tied = head.weight_VD is embedding_of(body)
    if head.bias is not None and not encoder:
        states, tied = widened_body(states, config), False
        weight_VD = widened_projection(weight_VD, head.bias.detach(), config)
        config = widened_config(config)
    config = copy.deepcopy(config)
    separator = separator_token(tokenizer)
    config.tie_word_embeddings = tied
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, separator
    # A document begins after the separator of the one before: so does a text that is generated from nothing.
    config.bos_token_id = None if encoder else separator
    auto_model = transformers.AutoModelForMaskedLM if encoder else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto_model.from_config(config, dtype=torch.float32)
    projection = next(name for name, module in model.named_modules() if module is model.get_output_embeddings())
    weights = {f"{model.base_model_prefix}.{name}": value for name, value in states.items()}
    weights[f"{projection}.weight"] = weight_VD
    if head.transform is not None and head.bias is not None:
        inside = projection.rpartition(".")[0]
        weights |= {f"{inside}.transform.{name}": value for name, value in head.transform.state_dict().items()}
        # Of untied weights transformers reads both biases, and saves but one of two that share their memory.
        weights |= {f"{inside}.bias": head.bias, f"{projection}.bias": head.bias.clone()}
    weights = {name: value.detach().float().cpu() for name, value in weights.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    model.tie_weights()
    if not encoder:
        model.generation_config = transformers.GenerationConfig(
            bos_token_id=separator, eos_token_id=separator, pad_token_id=tokenizer.pad_token_id
        )
    return model


def _tokenizer_as_trained(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig) -> PreTrainedTokenizerFast:
    """The tokenizer, adding no special tokens: the model was trained on none but the separator after a document."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    if backend.num_special_tokens_to_add(is_pair=False):
        backend.post_processor = None
    special: dict[str, Any] = {role: getattr(tokenizer, role) for role in SPECIAL_ROLES}
    separator = tokenizer.convert_ids_to_tokens(separator_token(tokenizer))
    special["eos_token"] = separator
    if config.model_type != "bert":
        special["bos_token"] = separator
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=int(config.max_position_embeddings),
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{role: token for role, token in special.items() if token is not None},
    )
