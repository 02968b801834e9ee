"""Which model is trained: named sizes of BERT-like encoders and of GPT-NeoX- and GPT-2-like decoders, a Hugging Face
configuration, or a pretrained model to go on from.
"""

from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.errors import InputError, nearest

Task = Literal["masked", "causal"]
"""What is recovered: masked tokens from both sides (an encoder), or the next token (a decoder)."""

Family = Literal["bert", "gpt_neox", "gpt2"]  # Hugging Face's ``model_type``


class Shape(NamedTuple):
    """The size of a body."""

    family: Family
    layers: int
    hidden_size: int
    heads: int
    feed_forward_size: int

    @property
    def parameters(self) -> int:
        """Weights, biases and norms without embeddings and head: the same for all families."""
        D, F = self.hidden_size, self.feed_forward_size
        attention, feed_forward, norms = 4 * (D * D + D), 2 * D * F + F + D, 4 * D
        return self.layers * (attention + feed_forward + norms) + 2 * D


_SIZES: dict[str, tuple[int, int, int, int]] = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
}
_ENCODERS = {f"bert-{name}": Shape("bert", *size) for name, size in _SIZES.items()} | {
    "distil-mbert": Shape("bert", 6, 768, 12, 3072)
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
    **{name: {"masked": Shape("bert", *size), "causal": Shape("gpt_neox", *size)} for name, size in _SIZES.items()},
    **{name: {"masked": shape} for name, shape in _ENCODERS.items()},
    **{name: {"causal": shape} for name, shape in _DECODERS.items()},
}
"""By name. A plain size (``mini``) is an encoder or a decoder, as the arm's objective needs."""

TASKS: dict[str, Task] = {"bert": "masked", "gpt_neox": "causal", "gpt2": "causal"}  # of each family


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
    def _one_kind(self) -> Self:
        if sum(given is not None for given in (self.shape, self.config, self.pretrained)) != 1:
            alone = f"{{pretrained: {self.pretrained}}}" if self.pretrained else f"{{shape: {self.shape or 'small'}}}"
            raise InputError(
                "give exactly one of 'shape', 'config' and 'pretrained'",
                remedy=f"model: {alone}; on the command line the whole of it: --set model='{alone}'",
            )
        if self.shape is not None and self.shape not in SHAPES:
            raise InputError(f"unknown shape '{self.shape}'", where="shape", remedy=nearest(self.shape, SHAPES))
        if self.config is not None and self.config.get("model_type") not in tuple(TASKS):
            raise ValueError(f"config.model_type must be one of {', '.join(TASKS)}")
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
