"""Features of texts and words against a plain forward pass of transformers, sentence by sentence."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, GPT2Model, GPTNeoXModel
from transformers.models.bert.modeling_bert import BertModel

from tests.helpers.word_models import language_model, piece_tokenizer, small_body
from trainables.tasks import features as features_module
from trainables.tasks.examples import Example
from trainables.tasks.features import features, of_texts, of_words
from trainables.tasks.kinds import KINDS
from trainables.tasks.model import LanguageModel

torch.set_num_threads(1)
LENGTH = 16
WHOLE = {"bert": lambda config: BertModel(config, add_pooling_layer=False), "gpt_neox": GPTNeoXModel, "gpt2": GPT2Model}
OTHERS = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "albert": {"hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    | {"intermediate_size": 64},  # one layer, passed through three times
    "roberta": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "llama": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
}


@pytest.fixture(scope="module")
def sentences():
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(60)]
    return [draw.choices(words, k=draw.randint(1, 14)) for _ in range(20)]


@pytest.fixture(scope="module")
def tokenizer(sentences):
    return piece_tokenizer([" ".join(words) for words in sentences], size=100)


def loud(module):
    """Weights large enough that neighbours and positions matter."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0)
    return module


@pytest.fixture(params=[*WHOLE, *OTHERS])
def models(request, tokenizer):
    """A model, and transformers' own body with its weights."""
    family = request.param
    if family in WHOLE:
        config, body = small_body(family, tokenizer, LENGTH)
        whole = WHOLE[family](config).eval()
        whole.load_state_dict(loud(body).state_dict())
        return language_model(family, tokenizer, body, config, LENGTH), whole
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), max_position_embeddings=LENGTH + 8, **OTHERS[family]
    )
    body = loud(AutoModel.from_config(config)).eval()

    def hidden(token_NL, mask_NL):
        return body(input_ids=token_NL, attention_mask=mask_NL).last_hidden_state

    separator = tokenizer.sep_token_id
    return (
        LanguageModel(
            tokenizer,
            "causal" if family == "llama" else "masked",
            body,
            hidden,
            lambda hidden_KD: hidden_KD,
            before=[separator],
            after=[] if family == "llama" else [separator],
            most_tokens=LENGTH,
            vocabulary_size=len(tokenizer),
            hidden_size=32,
        ),
        body,
    )


def by_hand(model, whole, text, parts):
    """One text's parts, (H, S, D), in pieces of at most a row's length."""
    found = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = found["input_ids"], found["offset_mapping"]
    front, back = model._before, model._after
    room = LENGTH - len(front) - len(back)
    states = []
    for cut in range(0, len(ids), room):
        row = torch.tensor([[*front, *ids[cut : cut + room], *back]])
        with torch.no_grad():
            layers = whole(input_ids=row, output_hidden_states=True).hidden_states
        states.append(torch.stack(layers)[:, 0, len(front) : row.shape[1] - len(back)])
    state_HLD = torch.cat(states, dim=1)
    means = []
    for start, end in parts:
        own = [place for place, (first, last) in enumerate(offsets) if first < end and last > start]
        means.append(state_HLD[:, own].mean(1))
    return torch.stack(means, dim=1).numpy()


def test_words(models, sentences, monkeypatch):
    monkeypatch.setattr(features_module, "ROWS", 6)
    model, whole = models
    found_HSD, begin = of_words(model, sentences), 0
    texts = [" ".join(words) for words in sentences]
    assert max(map(len, model.tokenizer(texts, add_special_tokens=False)["input_ids"])) > LENGTH
    for words in sentences:
        text, parts, at = " ".join(words), [], 0
        for word in words:
            parts.append((at, at + len(word)))
            at += len(word) + 1
        expected_HSD = by_hand(model, whole, text, parts)
        np.testing.assert_allclose(found_HSD[:, begin : begin + len(words)], expected_HSD, atol=2e-5)
        begin += len(words)
    assert begin == found_HSD.shape[1]
    assert found_HSD.dtype == np.float32


def test_texts(models, sentences):
    model, whole = models
    texts = [" ".join(words) for words in sentences]
    expected = [by_hand(model, whole, text, [(0, len(text))]) for text in texts]
    np.testing.assert_allclose(of_texts(model, texts), np.concatenate(expected, axis=1), atol=2e-5)


@pytest.fixture
def small(tokenizer):
    config, body = small_body("gpt2", tokenizer, LENGTH)
    return language_model("gpt2", tokenizer, loud(body), config, LENGTH)


def test_a_token_that_two_words_share_is_of_both(small):
    """As in a script without spaces; a part that no token touches is zero."""
    text = "abc def"
    found = small.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    start, end = found[-1]
    assert end - start > 1
    alone, parts = features(small, [text], [[(start, end)]]), [(start, end - 1), (end - 1, end), (len(text), len(text))]
    shared = features(small, [text], [parts])
    np.testing.assert_array_equal(shared[:, :2], np.repeat(alone, 2, axis=1))
    assert alone.any()
    assert not shared[:, 2].any()


def test_a_pair_is_told_by_both_their_difference_and_their_product(small):
    pairs = [("ab", "cd ef"), ("gh", "a")]
    examples = [Example(pair, (0,), str(number)) for number, pair in enumerate(pairs)]
    found = KINDS.find("classify")().features(small, examples)
    u, v = of_texts(small, [first for first, _ in pairs]), of_texts(small, [second for _, second in pairs])
    np.testing.assert_allclose(found, np.concatenate([u, v, abs(u - v), u * v], axis=-1), atol=1e-5)
    alone = [Example((first,), (0,), "") for first, _ in pairs]
    np.testing.assert_array_equal(KINDS.find("classify")().features(small, alone), u)


def test_hooks_are_gone_afterwards(small):
    of_texts(small, ["ab"])
    assert not any(module._forward_pre_hooks for module in small.body.modules())
