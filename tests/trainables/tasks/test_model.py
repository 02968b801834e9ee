"""Scores of text against brute force in float64: one passage, one token and one row at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from tests.helpers import exports
from tests.helpers.language_models import ENCODERS, LENGTH, MODELS, WORDS, sentences, write_model
from trainables.errors import InputError
from trainables.tasks import model as module
from trainables.tasks.model import LanguageModel, Passage


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {family: str(write_model(root / family, family)) for family in MODELS}


def plain(folder, encoder):
    auto = AutoModelForMaskedLM if encoder else AutoModelForCausalLM
    return auto.from_pretrained(folder).double().eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def by_force(folder, passages, encoder):
    """Log-likelihoods and whether each token is the first choice, token by token."""
    model, tokenizer = plain(folder, encoder)
    found = []
    for text, start in passages:
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, words = encoded["input_ids"], encoded.word_ids()
        scored = [i for i, (_, end) in enumerate(encoded["offset_mapping"]) if end > start]
        total, is_first = 0.0, True
        for place in scored:
            if encoder:
                masked = list(ids)
                for other in range(place, len(ids)):
                    if words[other] == words[place]:
                        masked[other] = tokenizer.mask_token_id
                logits = model(torch.tensor([masked])).logits[0, place]
            else:
                prefix = [] if scored[0] else [tokenizer.eos_token_id or tokenizer.bos_token_id]
                logits = model(torch.tensor([prefix + ids[:place]])).logits[0, -1]
            total += logits.log_softmax(0)[ids[place]].item()
            is_first &= logits.argmax().item() == ids[place]
        found.append((total, is_first))
    log_P, is_first_P = zip(*found, strict=True)
    return np.array(log_P), np.array(is_first_P)


def some_passages():
    texts = sentences(12)
    return [Passage(text) for text in texts] + [Passage(text, len(text.rpartition(" ")[0])) for text in texts[::3]]


@pytest.mark.parametrize("family", MODELS)
def test_scores_are_those_of_brute_force(folders, family):
    """Of any model that transformers knows: its head is whatever it does with its body's output."""
    passages = some_passages()
    scored = LanguageModel.of_folder(folders[family]).score(passages)
    log_P, is_first_P = by_force(folders[family], passages, family in ENCODERS)
    assert np.allclose(scored.log_likelihood_P, log_P, rtol=1e-5, atol=1e-4)
    assert (scored.is_first_P == is_first_P).all()


@pytest.mark.parametrize("family", ["bert", "gpt_neox"])
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(WORDS[:4]), min_size=1, max_size=6), min_size=1, max_size=12))
def test_scores_do_not_depend_on_what_else_is_scored(folders, family, texts):
    """What texts share is computed once; chunks, batches and slices are cut anywhere."""
    model = LanguageModel.of_folder(folders[family])
    passages = [Passage(" ".join(words)) for words in texts]
    alone = [model.score([passage]).log_likelihood_P[0] for passage in passages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", 5)
        patch.setattr(module, "BATCH_TOKENS", 40)
        patch.setattr(module, "INPUT_ELEMENTS", 100)
        model._slice = 3
        assert np.allclose(model.score(passages).log_likelihood_P, alone, rtol=1e-6, atol=1e-5)


def test_a_beginning_is_computed_once(folders):
    model = LanguageModel.of_folder(folders["gpt_neox"])
    head, states = model._logits, []
    model._logits = lambda hidden_KD: states.append(len(hidden_KD)) or head(hidden_KD)
    text = " ".join(WORDS[:5])
    (pieces,) = {len(model.tokenizer(text, add_special_tokens=False)["input_ids"])}
    model.score([Passage(text)] * 9 + [Passage(f"{text} {word}") for word in WORDS[:9]])
    more = {tuple(model.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) for word in WORDS[:9]}
    beginnings = {pieces[:end] for pieces in more for end in range(len(pieces))}
    assert sum(states) <= pieces + len(beginnings)


@pytest.mark.parametrize("family", ["bert", "gpt_neox"])
def test_of_a_long_text_the_end_is_kept(folders, family):
    model, text = LanguageModel.of_folder(folders[family]), " ".join(WORDS[:40])
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    kept = ids[-LENGTH:] if family == "bert" else ids[-LENGTH - 1 :]
    scored = model.score([Passage(text, len(text) - len(WORDS[39]))])
    whole, _ = plain(folders[family], family == "bert")
    words = model.tokenizer(text, add_special_tokens=False).word_ids()
    total = 0.0
    for place in [place for place in range(len(ids)) if words[place] == words[-1]]:
        own = place - len(ids) + len(kept)
        if family == "bert":
            masked = [*kept[:own], *[model.tokenizer.mask_token_id] * (len(kept) - own)]
            total += whole(torch.tensor([masked])).logits[0, own].log_softmax(0)[ids[place]].item()
        else:
            logits = whole(torch.tensor([kept[:-1]])).logits[0, own - 1]
            total += logits.log_softmax(0)[ids[place]].item()
    assert scored.log_likelihood_P[0] == pytest.approx(total, abs=1e-4)


def test_nothing_to_score(folders):
    model = LanguageModel.of_folder(folders["gpt_neox"])
    assert len(model.score([]).log_likelihood_P) == 0
    scored = model.score([Passage(""), Passage("bal", 3)])
    assert scored.log_likelihood_P.tolist() == [0, 0]


def test_a_model_that_gives_nan_finds_nothing(folders):
    model = LanguageModel.of_folder(folders["gpt2"])
    head = model._logits
    model._logits = lambda hidden_KD: head(hidden_KD) * torch.nan
    scored = model.score([Passage("bal bel")])
    assert scored.log_likelihood_P[0] == -np.inf
    assert not scored.is_first_P[0]


def test_special_tokens_are_those_of_the_tokenizer(tmp_path):
    folder = write_model(tmp_path, "bert", "wordpiece")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = tokenizer("bal")["input_ids"]
    model = LanguageModel.of_folder(str(folder))
    assert [*model._before, *tokenizer("bal", add_special_tokens=False)["input_ids"], *model._after] == expected


@pytest.mark.parametrize("case", ["nothing", "no weights", "pickled", "another kind", "no tokenizer"])
def test_a_folder_that_is_no_model_is_one_message(tmp_path, case):
    folder = write_model(tmp_path, "bert")
    if case == "nothing":
        folder = tmp_path / "none"
    elif case == "no weights":
        (folder / "model.safetensors").unlink()
    elif case == "pickled":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif case == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForTokenClassification"]}))
    with pytest.raises(InputError, match="there is no model"):
        LanguageModel.of_folder(str(folder))


@pytest.mark.parametrize(("family", "objective"), [("bert", "mlm"), ("gpt_neox", "clm")])
def test_a_learners_texts_stand_between_separators(family, objective):
    """And an encoder's last layer, computed at one place alone, gives what it gives at all."""
    learner, tokenizer = exports.make_learner(family, objective, {}, {}), exports.make_tokenizer()
    separator, encoder = 3, objective == "mlm"
    model = LanguageModel.of_learner(learner, "head", tokenizer, separator, exports.LENGTH)
    texts = ["ab ac", "ab ad fg", "lm ab ac"]
    found = model.score([Passage(text) for text in texts]).log_likelihood_P
    for text, own in zip(texts, found, strict=True):
        encoded, total = tokenizer(text, add_special_tokens=False), 0.0
        ids, words = [separator, *encoded["input_ids"], separator], [None, *encoded.word_ids(), None]
        for place in range(1, len(ids) - 1):
            seen = list(ids)
            for other in range(place, len(ids)):
                if encoder and words[other] == words[place]:
                    seen[other] = tokenizer.mask_token_id
            with torch.no_grad():
                hidden_LD = learner.hidden(torch.tensor([seen]))[0]
                logits_V = learner.logits(hidden_LD[[place if encoder else place - 1]])[0]
            total += logits_V.log_softmax(0)[ids[place]].item()
        assert own == pytest.approx(total, abs=1e-4)
