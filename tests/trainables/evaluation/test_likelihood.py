"""Perplexity and bits per byte against transformers' own losses; yardsticks of which lower is better, end to end."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from trainables.models.learner import Learner
from trainables.models.shapes import ModelConfig, body_config
from transformers import AutoModelForCausalLM, BertForMaskedLM, PreTrainedTokenizerFast

from orchestrator.analysis.comparison import best_of_search, chosen_runs, compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.config.files import dump_study
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import LedgerWriter, read_ledger
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.search import best_trials
from orchestrator.study import Study
from tests.helpers import ledgers, phases
from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.tokenizers import SPECIAL_TOKENS, token_bytes
from trainables.evaluation import YARDSTICKS, EvaluationConfig, Evaluator, likelihood
from trainables.evaluation.likelihood import LARGEST, TargetNats, bits_per_byte, perplexity, target_nats
from trainables.evaluation.recovery import HELD_OUT_SEED
from trainables.objectives import find_objective
from trainables.objectives.corruption import masked_positions
from trainables.storage import Location

torch.set_num_threads(1)
CPU = torch.device("cpu")
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
    options = objective.options(temperature=0.5) if objective.headless else objective.options()
    learner = Learner(config, objective, options)
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3.0)
    return learner.eval()


def reference(learner):
    """The same model as transformers has it, in float64."""
    whole = BertForMaskedLM if learner.config.model_type == "bert" else AutoModelForCausalLM
    model = (whole if whole is BertForMaskedLM else whole.from_config)(learner.config).double().eval()
    model.base_model.load_state_dict(learner.body.state_dict())
    output = model.get_output_embeddings()
    with torch.no_grad():
        if learner.head is None:  # scored by the input embedding: no transform, no bias, a temperature
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
    found = target_nats(learner, token_NL, manifest, 0.3, CPU)
    model = reference(learner)
    for n, tokens in enumerate(token_NL):
        seen, labels = torch.tensor(tokens), torch.tensor(tokens)
        if learner.objective.task == "masked":
            positions = masked_positions(token_NL, np.arange(7), HELD_OUT_SEED, 0.3, manifest.special_tokens)
            seen[positions[n]] = manifest.mask_token
            labels = torch.full_like(seen, -100)
            scored = [p for p in positions[n] if p > 0]
            labels[scored] = torch.tensor(tokens)[scored]
        else:
            scored = list(range(1, LENGTH))
        with torch.no_grad():
            expected = model(input_ids=seen[None], labels=labels[None]).loss
        own_K = found.sequence_K == n
        assert found.target_K[own_K].tolist() == tokens[scored].tolist()
        assert found.nats_K[own_K].mean() == pytest.approx(float(expected), rel=1e-5)
    assert found.nats_K.std() > 0.5, "the check is blind"


@pytest.mark.parametrize(("name", "shape"), CASES[:4])
def test_slices_change_nothing(corpus, monkeypatch, name, shape):
    learner = make_learner(name, shape)
    token_NL = corpus.take("test", "en", np.arange(20)).astype(np.int64)
    whole = target_nats(learner, token_NL, corpus.manifest, 0.3, CPU)
    for elements in (3 * VOCABULARY, 3 * LENGTH * 128 * 16):  # slices of logits, of sequences
        monkeypatch.setattr(likelihood, "_SLICE_ELEMENTS", elements)
        sliced = target_nats(learner, token_NL, corpus.manifest, 0.3, CPU)
        np.testing.assert_allclose(sliced.nats_K, whole.nats_K, rtol=1e-4)
        np.testing.assert_array_equal(sliced.target_K, whole.target_K)
        np.testing.assert_array_equal(sliced.sequence_K, whole.sequence_K)


# --- means --------------------------------------------------------------------------------------------------

BOTH = ("perplexity", "bits_per_byte")


def evaluator(corpus, sequences=2):
    return Evaluator(corpus, EvaluationConfig(sequences_per_language=sequences), "test", CPU)


def test_means_over_tokens_bytes_and_languages(corpus, monkeypatch):
    """Two sequences a language; token 3 is a separator, which costs but has no bytes."""
    nats = np.array([1.0, 3.0, 2.0, 2.0, 2.0, 9.0])
    found = TargetNats(nats, np.array([10, 3, 11, 11, 3, 12]), np.array([0, 1, 2, 3, 3, 5]))
    monkeypatch.setattr("trainables.evaluation.yardsticks.target_nats", lambda *_: found)
    monkeypatch.setattr(corpus, "tokenizer", lambda: None)
    sizes = np.zeros(VOCABULARY, dtype=np.int64)
    sizes[[10, 11, 12]] = 4, 1, 9
    monkeypatch.setattr("trainables.evaluation.yardsticks.token_bytes", lambda _: sizes)
    scores = evaluator(corpus).take(make_learner("clm", "gpt2-tiny"), BOTH)
    languages = {"en": math.exp(2), "fr": math.exp(2), "sw": math.exp(9)}
    assert scores["perplexity"]["languages"] == pytest.approx(languages)
    assert scores["perplexity"]["overall"] == pytest.approx(np.prod(list(languages.values())) ** (1 / 3))
    bits = {"en": 4 / math.log(2) / 4, "fr": 6 / math.log(2) / 2, "sw": 9 / math.log(2) / 9}
    assert scores["bits_per_byte"]["languages"] == pytest.approx(bits)
    assert scores["bits_per_byte"]["overall"] == pytest.approx(sum(bits.values()) / 3)


def test_each_language_has_its_own_sequences(corpus):
    learner = make_learner("clm", "neox-tiny")
    scores = evaluator(corpus, 4).take(learner, ("perplexity",))
    assert list(scores) == ["perplexity"], "which needs no tokenizer"
    for language in corpus.languages:
        token_NL = corpus.take("test", language, np.arange(4)).astype(np.int64)
        nats = target_nats(learner, token_NL, corpus.manifest, 0.15, CPU).nats_K
        assert scores["perplexity"]["languages"][language] == pytest.approx(np.exp(nats.mean()), rel=1e-4)


@pytest.mark.parametrize(("name", "shape"), CASES[:3])
@pytest.mark.parametrize("weight", [math.nan, 1e8])
def test_a_model_beyond_all_bounds_is_the_worst_there_is_and_can_be_written_down(
    corpus, monkeypatch, tmp_path, name, shape, weight
):
    learner = make_learner(name, shape)
    with torch.no_grad():
        learner.embedding_VD.mul_(weight)
        if learner.head is not None and learner.head.weight_VD is not learner.embedding_VD:
            learner.head.weight_VD.mul_(weight)
    sizes = np.full(VOCABULARY, 1)
    monkeypatch.setattr(corpus, "tokenizer", lambda: None)
    monkeypatch.setattr("trainables.evaluation.yardsticks.token_bytes", lambda _: sizes)
    scores = evaluator(corpus).take(learner, BOTH)
    assert scores["perplexity"]["overall"] == pytest.approx(LARGEST)
    if math.isnan(weight):
        assert scores["bits_per_byte"] == {
            "overall": pytest.approx(LARGEST),
            "languages": dict.fromkeys(("en", "fr", "sw"), LARGEST),
        }
    writer = LedgerWriter(Location(str(tmp_path)))
    writer.append("measure", yardsticks=scores)
    writer.close()
    assert read_ledger(Location(str(tmp_path)))[0]["yardsticks"] == scores


def test_bounds():
    assert perplexity(math.inf) == perplexity(1e4) == pytest.approx(LARGEST)
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert bits_per_byte(np.array([1.0, 2.0]), np.array([0, 0])) == LARGEST
    assert bits_per_byte(np.array([math.log(2), 0.0]), np.array([1, 3])) == pytest.approx(0.25)


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


# --- lower is better ----------------------------------------------------------------------------------------


def searched(monkeypatch, primary, score, *overrides):
    """A search and a confirmation driven by made-up scores."""
    monkeypatch.setattr(phases, "PRIMARY", primary)

    class Driver(phases.Driver):
        def score(self, planned, progress):
            return score(super().score(planned, progress))

    spec = phases.study(f"yardsticks.primary={primary}", "search.budget_per_arm=8", *overrides)
    driver = Driver(spec, seed=5).run()
    confirmed = Driver(spec, ConfirmPhase, seed=5, history=driver.history, trouble=False).run()
    return driver, confirmed


@pytest.mark.parametrize("algorithm", ["random", "tpe"])
def test_a_search_for_the_lowest_mirrors_one_for_the_highest(monkeypatch, algorithm):
    """Suggestions, stopped trials, the best and what is confirmed are the same for scores turned upside down."""
    options = (f"search.algorithm={algorithm}", "confirm.top=2")
    up, up_confirmed = searched(monkeypatch, "recovery_accuracy", lambda score: score, *options)
    down, down_confirmed = searched(monkeypatch, "perplexity", lambda score: 10 - score, *options)
    assert up.begun == down.begun
    assert up_confirmed.begun == down_confirmed.begun
    outcomes = [{t.trial: t.outcome for t in d.history.trials.values()} for d in (up, down)]
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0].values()) >= {"completed", "pruned"}
    for arm in up.spec.arms:
        best = best_trials(down.history, arm, "perplexity", 2)
        completed = [t for t in down.history.trials_of("search", arm) if t.outcome == "completed"]
        lowest = sorted(t.score("perplexity") for t in completed)
        assert [t.score("perplexity") for t in best] == lowest[:2]
        assert len(lowest) > 2, "the check is blind"


def mirrored(scores, lower, *extra):
    """A made-up study's ledger, its scores upside down where lower is better."""
    record = ledgers.study()
    if lower:
        record["yardsticks"]["lower_is_better"] = ["accuracy"]
    records = [record]
    for arm, values in scores.items():
        for seed, value in enumerate(values):
            records += ledgers.run(arm, seed, 1 - value if lower else value, evaluations=1)
    for arm, seed, value, configuration in extra:
        phase = "search" if seed < 0 else "confirm"
        records += ledgers.run(
            arm, abs(seed), 1 - value if lower else value, phase=phase, configuration={"x": configuration}
        )
    return History.of(records)


@pytest.mark.parametrize(("headless", "verdict"), [(0.45, "headless"), (0.35, "vanilla"), (0.401, "equivalent")])
def test_each_verdict_upside_down(headless, verdict):
    scores = {"vanilla": (0.4,) * 6, "headless": ledgers.around(headless)}
    up, down = compare(mirrored(scores, lower=False)), compare(mirrored(scores, lower=True))
    pairs = [comparison["pairs"][0] for comparison in (up, down)]
    assert [pair["verdict"] for pair in pairs] == [verdict] * 2
    rows = [pair["yardsticks"]["accuracy"] for pair in pairs]
    assert rows[1]["difference"] == pytest.approx(-rows[0]["difference"])
    assert rows[1]["p"] == rows[0]["p"]
    assert [row["lower_is_better"] for row in rows] == [False, True]
    assert ["lower is better" in verdict_in_words(comparison) for comparison in (up, down)] == [False, True]
    json.dumps(down, allow_nan=False)


def test_words_name_the_winner_and_its_smaller_value_first():
    words = verdict_in_words(compare(mirrored({"vanilla": (0.2,) * 6, "headless": (0.4,) * 6}, lower=True)))
    assert words.startswith("headless is ahead of vanilla on accuracy (lower is better) at 2.0M tokens a trial: ")
    assert "0.600 against 0.800, difference -0.200 [-0.200, -0.200]" in words


def test_the_configuration_that_stands_for_an_arm_is_the_lowest():
    extra = [("vanilla", -1, 0.2, 1), ("vanilla", -2, 0.6, 2), ("vanilla", -3, 0.4, 3)]
    extra += [("vanilla", 1, 0.2, 1), ("vanilla", 1, 0.6, 2), ("vanilla", 1, 0.4, 3)]
    for lower in (False, True):
        state = mirrored({}, lower, *extra)
        best = best_of_search(state, "vanilla")
        assert best is not None
        assert best.configuration == {"x": 2}
        assert chosen_runs(state, "vanilla")[1].configuration == {"x": 2}


def test_a_study_writes_down_which_way_is_up(tmp_path):
    study = Study(phases.study("yardsticks={primary: bits_per_byte, others: [recovery_mrr, perplexity]}"))
    study.folder = Location(str(tmp_path))
    (study.folder / "study.yaml").write_bytes(dump_study(study.spec).encode())
    assert study._description()["yardsticks"]["lower_is_better"] == ["bits_per_byte", "perplexity"]


def test_every_yardstick_says_what_it_is():
    assert {name for name, yardstick in YARDSTICKS.items() if not yardstick.higher_is_better} == set(BOTH)
    assert all(yardstick.description for yardstick in YARDSTICKS.values())
