"""Small models as tasks ask them: words are tokens, and each family has its body."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.models.body import embedding_of, make_body, run_body
from trainables.models.body_config import body_config
from trainables.models.config import TASKS, ModelConfig
from trainables.tasks.model import LanguageModel

SPECIAL = ("[PAD]", "[SEP]", "[MASK]")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def word_tokenizer(words):
    """One token a word, of words and marks between spaces."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, "[UNK]", *sorted(words)])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(("pad_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **names)


def piece_tokenizer(texts, size=300):
    """Pieces of words, as a study's own tokenizer has them."""
    return train_tokenizer(TrainTokenizer(type="bpe", vocabulary_size=size), iter(texts))


def small_body(family, tokenizer, length=32, seed=0, **changes):
    """Its configuration, and the body, whose weights are large enough that positions and neighbours matter."""
    model = ModelConfig(config={"model_type": family, **_named(family, SIZES | changes)})
    config = body_config(model, TASKS[family], vocabulary_size=len(tokenizer), sequence_length=length)
    torch.manual_seed(seed)
    return config, make_body(config).eval()


def language_model(family, tokenizer, body, config, length=32):
    """As a study's own: between separators, scored by the embedding."""
    separator, task = tokenizer.sep_token_id, TASKS[family]
    embedding_VD = embedding_of(body)
    return LanguageModel(
        tokenizer,
        task,
        body,
        lambda token_NL, mask_NL: run_body(body, F.embedding(token_NL, embedding_VD), attention_mask_NL=mask_NL),
        lambda hidden_KD: hidden_KD @ embedding_VD.T,
        before=[separator],
        after=[separator] if task == "masked" else [],
        most_tokens=length,
        vocabulary_size=len(tokenizer),
        hidden_size=config.hidden_size,
    )


def _named(family, sizes):
    if family != "gpt2":
        return sizes
    names = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {names.get(key, "n_inner"): value for key, value in sizes.items()}
