"""Small language models that score text, and what is known of them by plain means."""

from __future__ import annotations

import random

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer

LENGTH = 24
WORDS = [first + second + third for first in "bdkmst" for second in "aeiou" for third in "lnr"]
_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
_ENCODER = {**_WIDE, "max_position_embeddings": LENGTH}
MODELS = {
    "bert": lambda size: BertForMaskedLM(BertConfig(vocab_size=size, **_ENCODER)),
    "roberta": lambda size: RobertaForMaskedLM(
        RobertaConfig(vocab_size=size, **_WIDE, max_position_embeddings=LENGTH + 2, pad_token_id=1)
    ),
    "distilbert": lambda size: DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=size, dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=LENGTH)
    ),
    "gpt2": lambda size: GPT2LMHeadModel(
        GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=2, n_positions=LENGTH)
    ),
    "gpt_neox": lambda size: GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=size, **_ENCODER)),
    "llama": lambda size: LlamaForCausalLM(LlamaConfig(vocab_size=size, **_ENCODER)),
    "gemma2": lambda size: Gemma2ForCausalLM(
        Gemma2Config(vocab_size=size, **_ENCODER, head_dim=16, num_key_value_heads=2, final_logit_softcapping=2.0)
    ),
}
ENCODERS = ("bert", "roberta", "distilbert")


def make_tokenizer(kind="bpe"):
    """Few pieces, so that most words have several."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=8)) + "." for _ in range(400)]
    return train_tokenizer(TrainTokenizer(type=kind, vocabulary_size=120), iter(texts))


def write_model(folder, family, kind="bpe", seed=0):
    """A model with weights of some size, and its tokenizer."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(kind)
    model = MODELS[family](len(tokenizer)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer.model_max_length = LENGTH
    tokenizer.save_pretrained(folder)
    return folder


def sentences(number, seed=0, most=7):
    """Some of them begin alike, and some are there twice."""
    chance = random.Random(seed)
    found = [" ".join(chance.choices(WORDS, k=chance.randint(1, most))) for _ in range(number)]
    return [*found, *(f"{text} {chance.choice(WORDS)}" for text in found[::2]), *found[:3]]
