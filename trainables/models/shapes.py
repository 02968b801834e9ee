"""Model shapes: named sizes of BERT-like encoders and GPT-NeoX-like decoders, or Hugging Face configurations."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field, model_validator
from transformers import AutoConfig, BertConfig, GPTNeoXConfig, PreTrainedConfig

from trainables.config import Config
from trainables.errors import InputError, nearest
from trainables.objectives.registry import Task


class Shape(NamedTuple):
    """The size of a body."""

    layers: int
    hidden_size: int
    heads: int
    feed_forward_size: int


_SIZES: dict[str, Shape] = {
    "tiny": Shape(2, 128, 2, 512),
    "mini": Shape(4, 256, 4, 1024),
    "small": Shape(4, 512, 8, 2048),
    "medium": Shape(8, 512, 8, 2048),
    "base": Shape(12, 768, 12, 3072),
}
_ENCODERS = {f"bert-{name}": shape for name, shape in _SIZES.items()} | {
    "distil-mbert": Shape(6, 768, 12, 3072),
}
_DECODERS = {f"neox-{name}": shape for name, shape in _SIZES.items()} | {
    "pythia-14m": Shape(6, 128, 4, 512),
    "pythia-31m": Shape(6, 256, 8, 1024),
    "pythia-70m": Shape(6, 512, 8, 2048),
    "pythia-160m": Shape(12, 768, 12, 3072),
}
SHAPES: dict[str, dict[Task, Shape]] = {
    **{name: {"masked": shape, "causal": shape} for name, shape in _SIZES.items()},
    **{name: {"masked": shape} for name, shape in _ENCODERS.items()},
    **{name: {"causal": shape} for name, shape in _DECODERS.items()},
}
"""By name. A plain size (``mini``) is an encoder or a decoder, as the arm's objective needs."""

_MODEL_TYPES: dict[str, Task] = {"bert": "masked", "gpt_neox": "causal"}


class ModelConfig(Config):
    """Which model an arm trains: exactly one of the two."""

    shape: str | None = None
    """A named shape; `h2h list` shows them."""
    config: dict[str, Any] | None = None
    """A Hugging Face configuration: `{model_type: bert | gpt_neox, ...}`. The study sets vocabulary and length."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Of a shape's hidden states and attention. Short pretraining on fresh text does without."""
    position_limit: int | None = Field(None, ge=8)
    """Longest sequence the model can take, in tokens; null: the study's sequence length."""

    @model_validator(mode="after")
    def _one_kind(self) -> ModelConfig:
        if (self.shape is None) == (self.config is None):
            raise ValueError("give exactly one of 'shape' and 'config'")
        if self.shape is not None and self.shape not in SHAPES:
            raise ValueError(f"unknown shape '{self.shape}'; {nearest(self.shape, SHAPES)}")
        if self.config is not None and self.config.get("model_type") not in _MODEL_TYPES:
            raise ValueError(f"config.model_type must be one of {', '.join(sorted(_MODEL_TYPES))}")
        if self.config is not None and self.dropout:
            raise ValueError(
                "'dropout' is for a shape; in 'config' set hidden_dropout_prob and attention_probs_dropout_prob"
                " (bert) or hidden_dropout and attention_dropout (gpt_neox)"
            )
        return self


def body_config(
    model: ModelConfig, task: Task, *, vocabulary_size: int, sequence_length: int, where: str = "model"
) -> PreTrainedConfig:
    """The Hugging Face configuration of the body.

    Raises:
        InputError: the shape or configuration is of the other kind than the task needs.
    """
    positions = model.position_limit or sequence_length
    if model.config is not None:
        given = dict(model.config)
        model_type = given.pop("model_type")
        if _MODEL_TYPES[model_type] != task:
            raise _wrong_kind(f"a {model_type} model", task, where)
        return AutoConfig.for_model(
            model_type, **given | {"vocab_size": vocabulary_size, "max_position_embeddings": positions}
        )
    assert model.shape is not None
    kinds = SHAPES[model.shape]
    if task not in kinds:
        raise _wrong_kind(f"the shape {model.shape}", task, where)
    shape = kinds[task]
    common: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward_size,
        "max_position_embeddings": positions,
    }
    if task == "masked":
        return BertConfig(
            **common, hidden_dropout_prob=model.dropout, attention_probs_dropout_prob=model.dropout
        )
    return GPTNeoXConfig(
        **common, hidden_dropout=model.dropout, attention_dropout=model.dropout, tie_word_embeddings=False
    )


def _wrong_kind(what: str, task: Task, where: str) -> InputError:
    need = "an encoder (BERT-like)" if task == "masked" else "a decoder (GPT-NeoX-like)"
    fitting = ", ".join(name for name, kinds in SHAPES.items() if task in kinds)
    return InputError(
        f"{what} does not fit the arm's objective",
        where=where,
        why=f"it needs {need}",
        remedy=f"one of: {fitting}",
    )
