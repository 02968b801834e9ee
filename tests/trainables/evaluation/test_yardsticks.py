"""Yardsticks against brute force: recovery ranks, minimal pairs, means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trainables.models.learner import Learner
from trainables.models.shapes import ModelConfig, body_config

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from trainables.corpora.grammar import MinimalPair
from trainables.evaluation import EvaluationConfig, Evaluator, minimal_pairs, recovery
from trainables.evaluation.minimal_pairs import log_likelihoods
from trainables.evaluation.recovery import HELD_OUT_SEED, recovery_ranks, target_ranks
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.corruption import masked_positions

torch.set_num_threads(1)
CPU = torch.device("cpu")
NAMES = sorted(OBJECTIVES)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 200, "fr": 80, "sw": 40})


def make_learner(name, dropout=0.0):
    """A model with weights large enough that its scores differ."""
    objective = find_objective(name)
    config = body_config(
        ModelConfig(shape="tiny", dropout=dropout),
        objective.task,
        vocabulary_size=VOCABULARY,
        sequence_length=LENGTH,
    )
    torch.manual_seed(1)
    learner = Learner(config, objective, objective.options())
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0)
    return learner.eval()


@torch.no_grad()
def scores_of(learner, tokens, position):
    """Scores of the whole vocabulary from one position's hidden state, of one sequence alone, float64."""
    hidden = learner.hidden(torch.tensor(tokens)[None])[0, position]
    return learner.logits(hidden[None])[0].double().numpy()


# --- recovery -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=20), data=st.data())
def test_ranks_count_ties_against_the_target(values, data):
    target = data.draw(st.integers(0, len(values) - 1))
    logits = torch.tensor([values], dtype=torch.float32)
    # The last place the target can have in a sorting of the values.
    worst = max(place for place, value in enumerate(sorted(values, reverse=True), start=1) if value == values[target])
    assert target_ranks(logits, torch.tensor([target])).tolist() == [worst]


def test_a_model_of_nan_is_the_worst():
    assert target_ranks(torch.full((2, 9), torch.nan), torch.tensor([0, 4])).tolist() == [9, 9]


@pytest.mark.parametrize("name", NAMES)
def test_ranks_by_brute_force(corpus, name):
    learner, manifest = make_learner(name), corpus.manifest
    tokens = corpus.take("validation", "fr", np.arange(6)).astype(np.int64)
    tokens[0, :3] = manifest.separator_token  # special tokens are not targets
    ranks_NT = recovery_ranks(learner, tokens, manifest, 0.3, CPU)
    position_NT = masked_positions(tokens, np.arange(6), HELD_OUT_SEED, 0.3, manifest.special_tokens)
    assert ranks_NT.shape == position_NT.shape == (6, 5)
    num_compared = 0
    for n, positions in enumerate(position_NT):
        for k, position in enumerate(positions):
            if position == 0:
                assert ranks_NT[n, k] == 0
                continue
            seen, at = tokens[n].copy(), position - 1
            if learner.objective.task == "masked":
                seen[positions], at = manifest.mask_token, position
            scores = scores_of(learner, seen, at)
            own = scores[tokens[n, position]]
            # Scores closer than float32's rounding may fall either way.
            lowest, highest = (scores >= own + 1e-4).sum(), (scores >= own - 1e-4).sum()
            assert max(1, lowest) <= ranks_NT[n, k] <= highest
            num_compared += 1
    assert num_compared > 20
    assert len(np.unique(ranks_NT)) > 10, "the check is blind"


@pytest.mark.parametrize("name", NAMES)
def test_slices_change_nothing(corpus, monkeypatch, name):
    learner = make_learner(name)
    tokens = corpus.take("test", "en", np.arange(20)).astype(np.int64)
    whole = recovery_ranks(learner, tokens, corpus.manifest, 0.2, CPU)
    monkeypatch.setattr(recovery, "_SLICE_ELEMENTS", 3 * VOCABULARY)
    sliced = recovery_ranks(learner, tokens, corpus.manifest, 0.2, CPU)
    assert np.abs(whole - sliced).max() <= 1  # rounding of other matrix sizes
    assert (whole == sliced).mean() > 0.95


def changed_inputs(corpus, column):
    """Sequences, and the same with another token in one column where that is no target of theirs."""
    tokens = corpus.take("validation", "en", np.arange(30)).astype(np.int64)
    other = tokens.copy()
    other[:, column] = 5 + (other[:, column] - 5 + 77) % (VOCABULARY - 5)
    position_NT = masked_positions(tokens, np.arange(30), HELD_OUT_SEED, 0.3, (0, 1, 2, 3, 4))
    untouched_N = ~(position_NT == column).any(axis=1)
    return tokens, other, position_NT, untouched_N


@pytest.mark.parametrize("name", ["clm", "headless_clm"])
def test_a_decoder_sees_the_left_only(corpus, name):
    learner = make_learner(name)
    tokens, other, position_NT, untouched_N = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3, CPU)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3, CPU)
    left_NT = (position_NT < 8) & untouched_N[:, None]
    right_NT = (position_NT > 8) & untouched_N[:, None]
    assert left_NT.sum() > 20
    np.testing.assert_array_equal(before[left_NT], after[left_NT])
    assert (before[right_NT] != after[right_NT]).mean() > 0.5


@pytest.mark.parametrize("name", ["mlm", "headless_mlm"])
def test_an_encoder_sees_both_sides_but_no_target(corpus, monkeypatch, name):
    learner = make_learner(name)
    tokens, other, position_NT, untouched_N = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3, CPU)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3, CPU)
    left_NT = (position_NT < 8) & (position_NT > 0) & untouched_N[:, None]
    assert (before[left_NT] != after[left_NT]).mean() > 0.5

    seen = []
    original = Learner.hidden

    def spy(self, input_NL, *rest):
        seen.append(input_NL.numpy().copy())
        return original(self, input_NL, *rest)

    monkeypatch.setattr(Learner, "hidden", spy)
    recovery_ranks(learner, tokens, corpus.manifest, 0.3, CPU)
    expected = tokens.copy()
    np.put_along_axis(expected, position_NT, corpus.manifest.mask_token, axis=1)
    np.testing.assert_array_equal(np.concatenate(seen), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_a_collapsed_model_scores_nothing(corpus, name, value):
    learner = make_learner(name)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.fill_(value)
    scores = evaluator(corpus).take(learner, ("recovery_accuracy", "recovery_mrr"))
    assert scores["recovery_accuracy"]["overall"] == 0.0
    assert scores["recovery_mrr"]["overall"] == pytest.approx(1 / VOCABULARY)
    assert list(scores["recovery_accuracy"]["languages"]) == ["en", "fr", "sw"]


# --- means --------------------------------------------------------------------------------------------------


def evaluator(corpus, split="validation", sequences=9):
    return Evaluator(corpus, EvaluationConfig(sequences_per_language=sequences, mask_rate=0.3), split, CPU)


def test_means_per_language_and_over_languages(corpus, monkeypatch):
    """Languages of different sizes: each counts the same, and left-out targets count in none."""
    asked = []

    def ranks(learner, token_NL, manifest, mask_rate, device):
        asked.append((token_NL, mask_rate))
        return np.array([[1, 1, 0]] * 9 + [[2, 4, 1]] * 9 + [[0, 0, 10]] * 9)

    monkeypatch.setattr("trainables.evaluation.yardsticks.recovery_ranks", ranks)
    scores = evaluator(corpus).take(make_learner("mlm"), ("recovery_accuracy", "recovery_mrr"))
    assert scores["recovery_accuracy"]["languages"] == pytest.approx({"en": 1.0, "fr": 1 / 3, "sw": 0.0})
    assert scores["recovery_accuracy"]["overall"] == pytest.approx((1.0 + 1 / 3) / 3)
    mrr = {"en": 1.0, "fr": (1 / 2 + 1 / 4 + 1) / 3, "sw": 0.1}
    assert scores["recovery_mrr"]["languages"] == pytest.approx(mrr)
    assert scores["recovery_mrr"]["overall"] == pytest.approx(sum(mrr.values()) / 3)
    ((tokens, mask_rate),) = asked
    assert mask_rate == 0.3
    expected = [corpus.take("validation", language, np.arange(9)) for language in ("en", "fr", "sw")]
    np.testing.assert_array_equal(tokens, np.concatenate(expected))


def test_the_split_is_the_one_asked_for_and_a_small_language_gives_what_it_has(corpus):
    learner = make_learner("clm")
    names = ("recovery_mrr",)
    validation = evaluator(corpus, "validation", 1000).take(learner, names)
    test = evaluator(corpus, "test", 1000).take(learner, names)
    assert validation != test
    assert list(validation) == ["recovery_mrr"]
    one_language = recovery_ranks(
        learner,
        corpus.take("test", "en", np.arange(50)).astype(np.int64),
        corpus.manifest,
        0.3,
        CPU,
    )
    # en comes first, so its sequences have the numbers 0 to 49 in both.
    used = one_language[one_language > 0]
    assert test["recovery_mrr"]["languages"]["en"] == pytest.approx((1 / used).mean(), rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("training", [True, False])
def test_evaluating_leaves_the_model_and_the_generator_alone(corpus, name, training):
    learner = make_learner(name, dropout=0.3)
    learner.train(training)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    weights = {key: value.clone() for key, value in learner.state_dict().items()}
    once = evaluator(corpus).take(learner, ("recovery_mrr",))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training == training for module in learner.modules())
    assert all(torch.equal(value, weights[key]) for key, value in learner.state_dict().items())
    assert all(parameter.grad is None for parameter in learner.parameters())
    assert evaluator(corpus).take(learner, ("recovery_mrr",)) == once, "dropout was on"


# --- minimal pairs ------------------------------------------------------------------------------------------


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, VOCABULARY, rng.integers(1, LENGTH - 1)).tolist() for _ in range(count)]


def alone(learner, sentence, manifest):
    """One sentence's (pseudo-)log-likelihood, a forward pass a token, no padding."""
    framed = [manifest.separator_token, *sentence, manifest.separator_token]
    total = 0.0
    scored = range(1, len(framed) - 1) if learner.objective.task == "masked" else range(1, len(framed))
    for position in scored:
        if learner.objective.task == "masked":
            seen = [*framed[:position], manifest.mask_token, *framed[position + 1 :]]
            scores = scores_of(learner, seen, position)
        else:
            scores = scores_of(learner, framed[:position], -1)
        total += scores[framed[position]] - np.logaddexp.reduce(scores)
    return total


@pytest.mark.parametrize("name", NAMES)
def test_log_likelihoods_against_a_loop_over_tokens(corpus, monkeypatch, name):
    """Many batches of mixed lengths, in an order that sorting by length must undo."""
    learner, manifest = make_learner(name), corpus.manifest
    given = sentences(9)
    monkeypatch.setattr(minimal_pairs, "_ROWS", 4)
    got = log_likelihoods(learner, given, manifest, CPU)
    expected = [alone(learner, sentence, manifest) for sentence in given]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect(corpus, name):
    learner, manifest = make_learner(name), corpus.manifest
    short = [[7, 8, 9], [10]]
    by_themselves = [log_likelihoods(learner, [sentence], manifest, CPU)[0] for sentence in short]
    beside_a_long_one = log_likelihoods(learner, [*short, list(range(20, 34))], manifest, CPU)[:2]
    np.testing.assert_allclose(beside_a_long_one, by_themselves, rtol=1e-4)


class WordTokenizer:
    """Words are numbers."""

    def __call__(self, texts, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}


@pytest.mark.parametrize("name", ["mlm", "headless_clm"])
def test_minimal_pair_accuracy(corpus, monkeypatch, name):
    """A pair is right where its good sentence is likelier, not where both are equal."""
    learner = make_learner(name)
    texts = [" ".join(map(str, sentence)) for sentence in sentences(12, seed=4)]
    score = {text: alone(learner, list(map(int, text.split())), corpus.manifest) for text in texts}

    def pair(language, one, other, right):
        better, worse = sorted((one, other), key=score.__getitem__, reverse=True)
        good, bad = (better, worse) if right else (worse, better)
        return MinimalPair(language=language, phenomenon="any", good=good, bad=bad)

    pairs = [
        pair("fr", texts[0], texts[1], True),
        pair("en", texts[2], texts[3], True),
        pair("en", texts[4], texts[5], False),
        pair("en", texts[6], texts[7], True),
        pair("fr", texts[8], texts[8], True),
        pair("en", texts[10], texts[11], True),
    ]
    monkeypatch.setattr(corpus, "minimal_pairs", lambda: pairs)
    monkeypatch.setattr(corpus, "tokenizer", WordTokenizer)
    found = evaluator(corpus).take(learner, ("minimal_pair_accuracy",))
    assert found == {
        "minimal_pair_accuracy": {
            "overall": pytest.approx((0.75 + 0.5) / 2),
            "languages": {"en": 0.75, "fr": 0.5},
        }
    }
