"""Which model is trained: named sizes of BERT-like encoders and of GPT-NeoX- and GPT-2-like decoders, a Hugging Face
configuration, or a pretrained model to go on from.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from huggingface_hub.errors import StrictDataclassError
from pydantic import Field, model_validator
from transformers import AutoConfig, BertConfig, GPT2Config, GPTNeoXConfig, PreTrainedConfig

from trainables.config import Config
from trainables.errors import InputError, nearest
from trainables.objectives.registry import Task

Family = Literal["bert", "gpt_neox", "gpt2"]
"""Hugging Face's ``model_type``."""


class Shape(NamedTuple):
    """The size of a body."""

    family: Family
    layers: int
    hidden_size: int
    heads: int
    feed_forward_size: int


_SIZES: dict[str, tuple[int, int, int, int]] = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
}
_ENCODERS = {f"bert-{name}": Shape("bert", *size) for name, size in _SIZES.items()} | {
    "distil-mbert": Shape("bert", 6, 768, 12, 3072),
}
_DECODERS = {f"neox-{name}": Shape("gpt_neox", *size) for name, size in _SIZES.items()} | {
    "pythia-14m": Shape("gpt_neox", 6, 128, 4, 512),
    "pythia-31m": Shape("gpt_neox", 6, 256, 8, 1024),
    "pythia-70m": Shape("gpt_neox", 6, 512, 8, 2048),
    "pythia-160m": Shape("gpt_neox", 12, 768, 12, 3072),
    "gpt2": Shape("gpt2", 12, 768, 12, 3072),
    "gpt2-192": Shape("gpt2", 3, 192, 3, 768),
    "gpt2-tiny": Shape("gpt2", *_SIZES["tiny"]),
}
SHAPES: dict[str, dict[Task, Shape]] = {
    **{
        name: {"masked": Shape("bert", *size), "causal": Shape("gpt_neox", *size)}
        for name, size in _SIZES.items()
    },
    **{name: {"masked": shape} for name, shape in _ENCODERS.items()},
    **{name: {"causal": shape} for name, shape in _DECODERS.items()},
}
"""By name. A plain size (``mini``) is an encoder or a decoder, as the arm's objective needs."""

_TASKS: dict[str, Task] = {"bert": "masked", "gpt_neox": "causal", "gpt2": "causal"}
_POSITIONS = {"gpt2": "n_positions"}
"""What a family calls ``max_position_embeddings``."""
_NO_SPECIAL_TOKENS: dict[str, dict[str, Any]] = {"gpt2": {"bos_token_id": None, "eos_token_id": None}}
"""A family's defaults are ids of its released tokenizer, which other vocabularies do not have."""


class ModelConfig(Config):
    """Which model an arm trains: exactly one of a shape, a configuration and a pretrained model."""

    shape: str | None = None
    """A named shape; `h2h list` shows them."""
    config: dict[str, Any] | None = None
    """A Hugging Face configuration, `{model_type: bert | gpt_neox | gpt2, ...}`. The study sets vocabulary and
    length."""
    pretrained: str | None = Field(None, min_length=1)
    """A pretrained model to go on from, of one of these families: a local folder or a name on the Hugging Face hub.
    Vocabulary, length and dropout are its own; `tokenizer.pretrained` must be its tokenizer. Its code is never run."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Of a shape's hidden states and attention. Short pretraining on fresh text does without."""
    position_limit: int | None = Field(None, ge=8)
    """Longest sequence the model can take, in tokens; null: the study's sequence length. A pretrained model has its
    own."""

    @model_validator(mode="after")
    def _one_kind(self) -> ModelConfig:
        if sum(given is not None for given in (self.shape, self.config, self.pretrained)) != 1:
            raise ValueError("give exactly one of 'shape', 'config' and 'pretrained'")
        if self.shape is not None and self.shape not in SHAPES:
            raise ValueError(f"unknown shape '{self.shape}'; {nearest(self.shape, SHAPES)}")
        if self.config is not None and self.config.get("model_type") not in _TASKS:
            raise ValueError(f"config.model_type must be one of {', '.join(_TASKS)}")
        if self.config is not None and self.dropout:
            raise ValueError(
                "'dropout' is for a shape; in 'config' set hidden_dropout_prob and attention_probs_dropout_prob"
                " (bert), hidden_dropout and attention_dropout (gpt_neox), or resid_pdrop, embd_pdrop and attn_pdrop"
                " (gpt2)"
            )
        if self.pretrained is not None and self.dropout:
            raise ValueError("'dropout' is for a shape; a pretrained model keeps its own")
        if self.pretrained is not None and self.position_limit is not None:
            raise ValueError("'position_limit' is for a shape or a config; a pretrained model has its own")
        return self


def body_config(
    model: ModelConfig, task: Task, *, vocabulary_size: int, sequence_length: int, where: str = "model"
) -> PreTrainedConfig:
    """The Hugging Face configuration of the body.

    A pretrained model's is as it was published, but for its number type: training starts in float32.

    Raises:
        InputError: the shape, configuration or pretrained model is of the other kind than the task needs; there is
            no such pretrained model, or it takes fewer tokens, or shorter sequences, than the study has.
    """
    if model.pretrained is not None:
        return _pretrained_config(model.pretrained, task, vocabulary_size, sequence_length, where)
    positions = model.position_limit or sequence_length
    if model.config is not None:
        given = dict(model.config)
        family = given.pop("model_type")
        if _TASKS[family] != task:
            raise _wrong_kind(f"a {family} model", task, where)
        set_by_study = {
            "vocab_size": vocabulary_size,
            _POSITIONS.get(family, "max_position_embeddings"): positions,
        }
        return AutoConfig.for_model(family, **_NO_SPECIAL_TOKENS.get(family, {}) | given | set_by_study)
    assert model.shape is not None
    kinds = SHAPES[model.shape]
    if task not in kinds:
        raise _wrong_kind(f"the shape {model.shape}", task, where)
    shape, dropout = kinds[task], model.dropout
    if shape.family == "gpt2":
        return GPT2Config(
            vocab_size=vocabulary_size,
            n_positions=positions,
            n_embd=shape.hidden_size,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_inner=shape.feed_forward_size,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            **_NO_SPECIAL_TOKENS["gpt2"],
        )
    common: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward_size,
        "max_position_embeddings": positions,
    }
    if shape.family == "bert":
        return BertConfig(**common, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return GPTNeoXConfig(
        **common, hidden_dropout=dropout, attention_dropout=dropout, tie_word_embeddings=False
    )


def feed_forward_size(config: PreTrainedConfig) -> int:
    """Width of the feed-forward layers. GPT-2 says so as ``n_inner``, or not at all where it is 4 times the hidden."""
    if config.model_type == "gpt2":
        return int(config.n_inner or 4 * config.n_embd)
    return int(config.intermediate_size)


def _pretrained_config(
    name: str, task: Task, vocabulary_size: int, sequence_length: int, where: str
) -> PreTrainedConfig:
    key = f"{where}.pretrained"
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        raise InputError(
            f"there is no pretrained model {name}",
            where=key,
            why=str(error).strip().split("\n")[0],
            remedy="a folder with config.json and model.safetensors, or a name on the hub (which needs the network)",
        ) from error
    if config.model_type not in _TASKS:
        raise InputError(
            f"{name} is a {config.model_type} model",
            where=key,
            why=f"only models of the families {', '.join(_TASKS)} can be gone on with",
            remedy="one of them, such as bert-base-multilingual-cased, EleutherAI/pythia-70m or gpt2",
        )
    if _TASKS[config.model_type] != task:
        raise _wrong_kind(f"{name}, a {config.model_type} model,", task, where)
    if config.vocab_size < vocabulary_size:
        raise InputError(
            f"the tokenizer has {vocabulary_size:,} pieces, {name} has embeddings for {config.vocab_size:,}",
            where=key,
            why="a pretrained model knows its own tokenizer's pieces only",
            remedy=f"--set tokenizer='{{pretrained: {name}}}'",
        )
    if config.max_position_embeddings < sequence_length:
        raise InputError(
            f"{name} takes {config.max_position_embeddings} tokens, a sequence has {sequence_length}",
            where=key,
            remedy=f"--set corpora.sequence_length={config.max_position_embeddings}",
        )
    # Many are published in float16, in which AdamW's updates would be rounded away.
    config.dtype = None
    return config


def _wrong_kind(what: str, task: Task, where: str) -> InputError:
    need = "an encoder (BERT-like)" if task == "masked" else "a decoder (GPT-NeoX- or GPT-2-like)"
    fitting = ", ".join(name for name, kinds in SHAPES.items() if task in kinds)
    return InputError(
        f"{what} does not fit the arm's objective",
        where=where,
        why=f"it needs {need}",
        remedy=f"one of: {fitting}",
    )
