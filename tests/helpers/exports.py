"""Small models to export, with a tokenizer, and held-out text to judge them by."""

from __future__ import annotations

import numpy as np
import torch
from transformers import BertConfig, GPT2Config, GPTNeoXConfig

from tests.helpers.corpus import LENGTH, VOCABULARY
from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.evaluation.held_out import HELD_OUT_SEED
from trainables.objectives import find_objective
from trainables.objectives.corruption import masked_positions
from trainables.objectives.learner import Learner

MASK_RATE = 0.15
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {"intermediate_size": 64, "max_position_embeddings": LENGTH}
FAMILIES = {
    "bert": lambda **more: BertConfig(**SIZE | WIDE | more),
    "gpt_neox": lambda **more: GPTNeoXConfig(**SIZE | WIDE | {"tie_word_embeddings": False} | more),
    "gpt2": lambda **more: GPT2Config(
        **SIZE | {"n_inner": 64, "n_positions": LENGTH, "bos_token_id": None, "eos_token_id": None} | more
    ),
}


def make_learner(family, objective, options, more, seed=0):
    """A learner whose weights are all, norms and biases too, of some size."""
    found = find_objective(objective)
    torch.manual_seed(seed)
    log_unigram_V = torch.linspace(-9, -2, VOCABULARY)
    learner = Learner(FAMILIES[family](**more), found.of(options), log_unigram_V=log_unigram_V).eval()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return learner


def make_tokenizer():
    letters = [first + second for first in "abcdefghijklmnop" for second in "abcdefghijklmnop"]
    texts = [" ".join(letters[i % 256 : i % 256 + 9]) for i in range(600)]
    return train_tokenizer(TrainTokenizer(type="bpe", vocabulary_size=VOCABULARY), iter(texts))


def held_out(corpus):
    token_NL = np.concatenate([corpus.take("test", language, np.arange(8)) for language in corpus.languages]).astype(
        np.int64
    )
    position_NT = masked_positions(
        token_NL, np.arange(len(token_NL)), HELD_OUT_SEED, MASK_RATE, corpus.manifest.special_tokens
    )
    masked_NL = token_NL.copy()
    np.put_along_axis(masked_NL, position_NT, corpus.manifest.mask_token, axis=1)
    return token_NL, masked_NL, position_NT
