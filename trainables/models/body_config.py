"""The Hugging Face configuration of a study's model."""

from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from trainables.errors import InputError
from trainables.models.config import SHAPES, TASKS, ModelConfig, Shape, Task

_DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "gpt_neox": ("hidden_dropout", "attention_dropout"),
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
}


def body_config(
    model: ModelConfig, task: Task, *, vocabulary_size: int, sequence_length: int, where: str = "model"
) -> PreTrainedConfig:
    """The Hugging Face configuration of the body. A pretrained model's is its own, but starts in float32.

    Raises InputError: it is of the other kind than the task needs; there is no such pretrained model, or it takes fewer
    tokens, or shorter sequences, than the study has.
    """
    if model.pretrained is not None:
        return _pretrained_config(model.pretrained, task, vocabulary_size, sequence_length, where)
    if model.config is not None:
        given = dict(model.config)
        family = given.pop("model_type")
        if TASKS[family] != task:
            raise _wrong_kind(f"a {family} model", task, where)
    else:
        assert model.shape is not None
        kinds = SHAPES[model.shape]
        if task not in kinds:
            raise _wrong_kind(f"the shape {model.shape}", task, where)
        family, given = kinds[task].family, _settings(kinds[task], model.dropout)
    # GPT-2's defaults are ids of its released tokenizer, which other vocabularies do not have.
    defaults = {"bos_token_id": None, "eos_token_id": None} if family == "gpt2" else {}
    set_by_study = {"vocab_size": vocabulary_size, "max_position_embeddings": model.position_limit or sequence_length}
    return AutoConfig.for_model(family, **defaults | given | set_by_study)


def _settings(shape: Shape, dropout: float) -> dict[str, Any]:
    """A shape in the words of its family."""
    return {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "n_inner" if shape.family == "gpt2" else "intermediate_size": shape.feed_forward_size,
        "tie_word_embeddings": shape.family != "gpt_neox",
        **dict.fromkeys(_DROPOUTS[shape.family], dropout),
    }


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
    if config.model_type not in TASKS:
        raise InputError(
            f"{name} is a {config.model_type} model",
            where=key,
            why=f"only models of the families {', '.join(TASKS)} can be gone on with",
            remedy="one of them, such as bert-base-multilingual-cased, EleutherAI/pythia-70m or gpt2",
        )
    if TASKS[config.model_type] != task:
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
        f"{what} does not fit the arm's objective", where=where, why=f"it needs {need}", remedy=f"one of: {fitting}"
    )
