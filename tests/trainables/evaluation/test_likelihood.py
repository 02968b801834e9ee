"""Perplexity and bits per byte against transformers' own losses."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoModelForCausalLM, BertForMaskedLM, PreTrainedTokenizerFast

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.tokenizers import SPECIAL_TOKENS, token_bytes
from trainables.evaluation import YARDSTICKS, EvaluationConfig, Score, find_yardstick, passes
from trainables.evaluation.held_out import HELD_OUT_SEED, HeldOut, targets_of
from trainables.evaluation.passes import score_targets, take
from trainables.evaluation.yardstick import WORST, Items
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.objectives import find_objective
from trainables.objectives.corruption import masked_positions
from trainables.objectives.learner import Learner

torch.set_num_threads(1)
CASES = [
    ("mlm", "bert-tiny"),
    ("headless_mlm", "bert-tiny"),
    ("clm", "neox-tiny"),
    ("headless_clm", "neox-tiny"),
    ("clm", "gpt2-tiny"),
    ("headless_clm", "gpt2-tiny"),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 200, "fr": 80, "sw": 40})


def make_learner(name, shape):
    """A model with weights large enough that its scores differ."""
    objective = find_objective(name)
    config = body_config(ModelConfig(shape=shape), objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH)
    torch.manual_seed(1)
    prior_V = torch.linspace(-7, -2, VOCABULARY)
    learner = Learner(config, objective.of({"temperature": 0.5} if objective.headless else {}), log_unigram_V=prior_V)
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3.0)
    return learner.eval()


def nats_of(learner, targets):
    """By the scorer that the objective implies."""
    scorer = learner.objective.scorers[0]
    return score_targets(learner, targets, (scorer,))[scorer].nats_K


def reference(learner):
    """The same model as transformers has it, in float64."""
    whole = BertForMaskedLM if learner.config.model_type == "bert" else AutoModelForCausalLM
    model = (whole if whole is BertForMaskedLM else whole.from_config)(learner.config).double().eval()
    model.base_model.load_state_dict(learner.body.state_dict())
    output = model.get_output_embeddings()
    with torch.no_grad():
        if learner.head is None:  # scored by the input embedding: no transform, a temperature, the unigram's prior
            output.bias = torch.nn.Parameter(learner.log_unigram_V.double())
            output.weight = torch.nn.Parameter(learner.embedding_VD.double() / 0.5)
            if whole is BertForMaskedLM:
                model.cls.predictions.transform = torch.nn.Identity()
        else:
            output.weight = torch.nn.Parameter(learner.head.weight_VD.double())
            if whole is BertForMaskedLM:
                model.cls.predictions.transform.load_state_dict(learner.head.transform.state_dict())
                output.bias.copy_(learner.head.bias)
    return model


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_nats_are_transformers_loss(corpus, name, shape):
    learner, manifest = make_learner(name, shape), corpus.manifest
    token_NL = corpus.take("validation", "fr", np.arange(7)).astype(np.int64)
    token_NL[0, 3:6] = manifest.separator_token
    targets = targets_of(token_NL, np.arange(7), manifest, 0.3, learner.objective.task)
    nats_K = nats_of(learner, targets)
    model = reference(learner)
    for n, tokens in enumerate(token_NL):
        seen, labels = torch.tensor(tokens), torch.tensor(tokens)
        if learner.objective.task == "masked":
            positions = masked_positions(token_NL, np.arange(7), HELD_OUT_SEED, 0.3, manifest.special_tokens)
            seen[positions[n]] = manifest.mask_token
            labels = torch.full_like(seen, -100)
            scored = positions[n].tolist()
            labels[scored] = torch.tensor(tokens)[scored]
        else:
            scored = list(range(1, LENGTH))
        with torch.no_grad():
            expected = model(input_ids=seen[None], labels=labels[None]).loss
        own_K = targets.sequence_K == n
        assert targets.target_K[own_K].tolist() == tokens[scored].tolist()
        assert nats_K[own_K].mean() == pytest.approx(float(expected), rel=1e-5)
    assert nats_K.std() > 0.5, "the check is blind"


@pytest.mark.parametrize(("name", "shape"), CASES[:4])
def test_slices_change_nothing(corpus, monkeypatch, name, shape):
    learner = make_learner(name, shape)
    token_NL = corpus.take("test", "en", np.arange(20)).astype(np.int64)
    targets = targets_of(token_NL, np.arange(20), corpus.manifest, 0.3, learner.objective.task)
    whole = nats_of(learner, targets)
    for rows, elements in ((3, passes.SLICE_ELEMENTS), (1000, 3 * LENGTH * 128 * 16)):
        monkeypatch.setattr(passes, "slice_rows", lambda *_, rows=rows: rows)
        monkeypatch.setattr(passes, "SLICE_ELEMENTS", elements)
        np.testing.assert_allclose(nats_of(learner, targets), whole, rtol=1e-4)


# --- means --------------------------------------------------------------------------------------------------

BOTH = ("perplexity", "bits_per_byte")


def held_out(corpus, sequences=2):
    return HeldOut(corpus, EvaluationConfig(sequences_per_language=sequences), "test")


def first(taken):
    return next(iter(taken.values())).scores


def test_each_language_has_its_own_sequences(corpus):
    learner = make_learner("clm", "neox-tiny")
    scores = first(take(learner, held_out(corpus, 1000), ("perplexity",)))
    assert list(scores) == ["perplexity"], "which needs no tokenizer"
    for language in corpus.languages:
        number_N = np.arange(corpus.sequences("test", language))
        token_NL = corpus.take("test", language, number_N).astype(np.int64)
        nats = nats_of(learner, targets_of(token_NL, number_N, corpus.manifest, 0.15, "causal"))
        assert scores["perplexity"].languages[language] == pytest.approx(np.exp(nats.mean()), rel=1e-4)


@pytest.mark.parametrize(("name", "shape"), CASES[:3])
@pytest.mark.parametrize("weight", [math.nan, 1e8])
def test_a_model_beyond_all_bounds_is_the_worst_there_is_and_can_be_written_down(corpus, name, shape, weight):
    learner = make_learner(name, shape)
    with torch.no_grad():
        learner.embedding_VD.mul_(weight)
        if learner.head is not None and learner.head.weight_VD is not learner.embedding_VD:
            learner.head.weight_VD.mul_(weight)
    text = held_out(corpus)
    text.token_bytes_V = np.full(VOCABULARY, 1)
    scores = first(take(learner, text, BOTH))
    assert scores["perplexity"].overall == pytest.approx(WORST)
    if math.isnan(weight):
        assert scores["bits_per_byte"].overall == pytest.approx(WORST)
        assert scores["bits_per_byte"].languages == dict.fromkeys(("en", "fr", "sw"), WORST)
    for score in scores.values():
        assert Score.model_validate_json(json.dumps(score.model_dump(), allow_nan=False)) == score


@pytest.mark.parametrize(
    ("name", "value", "weight", "expected"),
    [
        ("perplexity", [math.inf, 1.0], [1, 1], WORST),
        ("perplexity", [1e4, 1e4], [1, 1], WORST),
        ("perplexity", [math.log(50), math.log(50)], [1, 1], 50.0),
        ("bits_per_byte", [1.0, 2.0], [0, 0], WORST),
        ("bits_per_byte", [1.0, 0.0], [1, 3], 0.25),
    ],
)
def test_bounds(monkeypatch, name, value, weight, expected):
    items = {"en": Items(np.arange(2), np.array(value), np.array(weight, dtype=float))}
    yardstick = find_yardstick(name)
    monkeypatch.setattr(type(yardstick), "items", lambda self, taking: items)
    assert yardstick.measure(None).overall == pytest.approx(expected)


# --- bytes of tokens ----------------------------------------------------------------------------------------


def texts():
    generator = random.Random(0)
    syllables = ["ka", "lo", "mi", "sun", "тре", "ба", "日", "本", "語", "हि", "न्दी", "é", "🙂"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(900)]
    return [" ".join(generator.choices(words, k=30)) + ". Two  spaces\nand a line" for _ in range(300)]


@pytest.mark.parametrize("type", ["unigram", "bpe", "byte_bpe", "wordpiece"])
def test_tokens_add_up_to_the_text(type):
    sample = texts()
    tokenizer = train_tokenizer(TrainTokenizer.model_validate({"type": type, "vocabulary_size": 400}), iter(sample))
    size_V = token_bytes(tokenizer)
    assert size_V.shape == (len(tokenizer),)
    assert not size_V[tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS)].any()
    for text in [*sample[:20], "mi  lo . mi", "日本語", "ｋａ mi"]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        normal = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
        if type == "wordpiece":  # words and punctuation marks, a space before each
            pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(normal)
            normal = "".join(" " + piece for piece, _ in pieces)
        elif type != "byte_bpe":
            normal = " " + normal
        assert size_V[ids].sum() == len(normal.encode()), text


def test_bytes_that_stand_for_themselves():
    """As Llama's tokenizers: a marked space, and pieces for the bytes of characters they lack."""
    vocabulary = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, **{f"<0x{byte:02X}>": 4 + byte for byte in range(256)}}
    backend = Tokenizer(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    text = "a aä語🙂 a"
    assert token_bytes(tokenizer)[tokenizer(text)["input_ids"]].sum() == len(text.encode()) + 1


def test_added_tokens_that_are_text():
    """As GPT-NeoX's tokenizer: byte-level, with runs of spaces as tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({piece: token for token, piece in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["    ", "日"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    text = "if:\n    é日 x"
    ids = tokenizer(text + "<|endoftext|>")["input_ids"]
    assert len(ids) < len(text.encode())
    assert token_bytes(tokenizer)[ids].sum() == len(text.encode())


# --- the yardsticks -------------------------------------------------------------------------------------------


def test_every_yardstick_says_what_it_is():
    assert {yardstick.name for yardstick in YARDSTICKS if not yardstick.higher_is_better} == set(BOTH)
    assert all(yardstick.description for yardstick in YARDSTICKS)
