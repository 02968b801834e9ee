"""Yardsticks against brute force: recovery ranks, minimal pairs, means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.yardsticks import YardstickConformance, make_scored_learner, recovery_ranks, write_spoken_corpus
from trainables.corpora.config import CorporaConfig
from trainables.corpora.grammar import MinimalPair
from trainables.errors import InputError
from trainables.evaluation import EvaluationConfig, Score, find_yardstick, passes
from trainables.evaluation.held_out import HELD_OUT_SEED, HeldOut
from trainables.evaluation.passes import log_likelihoods, ranks_of, take
from trainables.objectives import OBJECTIVES
from trainables.objectives.corruption import masked_positions
from trainables.objectives.learner import Learner

torch.set_num_threads(1)
NAMES = sorted(OBJECTIVES.names())


class TestRecoveryAccuracy(YardstickConformance):
    name = "recovery_accuracy"


class TestRecoveryMeanReciprocalRank(YardstickConformance):
    name = "recovery_mrr"


class TestPerplexity(YardstickConformance):
    name = "perplexity"


class TestBitsPerByte(YardstickConformance):
    name = "bits_per_byte"


class TestMinimalPairAccuracy(YardstickConformance):
    name = "minimal_pair_accuracy"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 200, "fr": 80, "sw": 40})


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
    assert ranks_of(logits, torch.tensor([target])).tolist() == [worst]


def test_a_model_of_nan_is_the_worst():
    assert ranks_of(torch.full((2, 9), torch.nan), torch.tensor([0, 4])).tolist() == [9, 9]


@pytest.mark.parametrize("name", NAMES)
def test_ranks_by_brute_force(corpus, name):
    learner, manifest = make_scored_learner(name), corpus.manifest
    tokens = corpus.take("validation", "fr", np.arange(6)).astype(np.int64)
    tokens[0, :3] = manifest.separator_token  # special tokens are not targets
    ranks_NT = recovery_ranks(learner, tokens, manifest, 0.3)
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
    learner = make_scored_learner(name)
    tokens = corpus.take("test", "en", np.arange(20)).astype(np.int64)
    whole = recovery_ranks(learner, tokens, corpus.manifest, 0.2)
    monkeypatch.setattr(passes, "SLICE_ELEMENTS", 3 * VOCABULARY)
    sliced = recovery_ranks(learner, tokens, corpus.manifest, 0.2)
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
    learner = make_scored_learner(name)
    tokens, other, position_NT, untouched_N = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3)
    left_NT = (position_NT < 8) & untouched_N[:, None]
    right_NT = (position_NT > 8) & untouched_N[:, None]
    assert left_NT.sum() > 20
    np.testing.assert_array_equal(before[left_NT], after[left_NT])
    assert (before[right_NT] != after[right_NT]).mean() > 0.5


@pytest.mark.parametrize("name", ["mlm", "headless_mlm"])
def test_an_encoder_sees_both_sides_but_no_target(corpus, monkeypatch, name):
    learner = make_scored_learner(name)
    tokens, other, position_NT, untouched_N = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3)
    left_NT = (position_NT < 8) & (position_NT > 0) & untouched_N[:, None]
    assert (before[left_NT] != after[left_NT]).mean() > 0.5

    seen = []
    original = Learner.hidden

    def spy(self, input_NL, *rest):
        seen.append(input_NL.numpy().copy())
        return original(self, input_NL, *rest)

    monkeypatch.setattr(Learner, "hidden", spy)
    recovery_ranks(learner, tokens, corpus.manifest, 0.3)
    expected = tokens.copy()
    np.put_along_axis(expected, position_NT, corpus.manifest.mask_token, axis=1)
    np.testing.assert_array_equal(np.concatenate(seen), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_a_collapsed_model_scores_nothing(corpus, name, value):
    learner = make_scored_learner(name)
    learner.log_unigram_V.zero_()  # which knows something
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.fill_(value)
    scores = take(learner, held_out(corpus), ("recovery_accuracy", "recovery_mrr"))
    assert scores["recovery_accuracy"].overall == 0.0
    assert scores["recovery_mrr"].overall == pytest.approx(1 / VOCABULARY)
    assert list(scores["recovery_accuracy"].languages) == ["en", "fr", "sw"]


# --- means --------------------------------------------------------------------------------------------------


def held_out(corpus, split="validation", sequences=9):
    return HeldOut(corpus, EvaluationConfig(sequences_per_language=sequences, mask_rate=0.3), split)


def test_means_per_language_and_over_languages(corpus, monkeypatch):
    """Languages of different sizes: each counts the same, and left-out targets count in none."""
    text = held_out(corpus)
    targets = text.masked("masked")
    expected = [corpus.take("validation", language, np.arange(9)) for language in ("en", "fr", "sw")]
    np.testing.assert_array_equal(text.token_NL, np.concatenate(expected))
    position_NT = masked_positions(text.token_NL, np.arange(27), HELD_OUT_SEED, 0.3, (0, 1, 2, 3, 4))
    assert len(targets.target_K) == (position_NT > 0).sum() < position_NT.size
    rank_of = {"en": [1, 1], "fr": [2, 4, 1], "sw": [10]}

    def ranks(learner, targets):
        languages = text.language_N[targets.sequence_K]
        counts = dict.fromkeys(rank_of, 0)
        found = []
        for language in languages:
            found.append(rank_of[language][counts[language] % len(rank_of[language])])
            counts[language] += 1
        every = {language: np.resize(rank_of[language], count) for language, count in counts.items()}
        asked.append(every)
        return np.array(found)

    asked = []
    monkeypatch.setattr(passes, "target_ranks", ranks)
    scores = take(make_scored_learner("mlm"), text, ("recovery_accuracy", "recovery_mrr"))
    assert len(asked) == 1, "one pass for both"
    accuracy = {language: (rank_K == 1).mean() for language, rank_K in asked[0].items()}
    assert accuracy["en"] == 1.0
    assert 0.2 < accuracy["fr"] < 0.5
    assert scores["recovery_accuracy"].languages == pytest.approx(accuracy)
    assert scores["recovery_accuracy"].overall == pytest.approx(sum(accuracy.values()) / 3)
    mrr = {language: (1 / rank_K).mean() for language, rank_K in asked[0].items()}
    assert mrr["sw"] == pytest.approx(0.1)
    assert scores["recovery_mrr"].languages == pytest.approx(mrr)
    assert scores["recovery_mrr"].overall == pytest.approx(sum(mrr.values()) / 3)


def test_the_split_is_the_one_asked_for_and_a_small_language_gives_what_it_has(corpus):
    learner = make_scored_learner("clm")
    names = ("recovery_mrr",)
    validation = take(learner, held_out(corpus, "validation", 1000), names)
    test = take(learner, held_out(corpus, "test", 1000), names)
    assert validation != test
    assert list(validation) == ["recovery_mrr"]
    one_language = recovery_ranks(
        learner, corpus.take("test", "en", np.arange(50)).astype(np.int64), corpus.manifest, 0.3
    )
    # en comes first, so its sequences have the numbers 0 to 49 in both.
    used = one_language[one_language > 0]
    assert test["recovery_mrr"].languages["en"] == pytest.approx((1 / used).mean(), rel=1e-3)


# --- minimal pairs ------------------------------------------------------------------------------------------


def drawn_sentences(count, seed=0):
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
    learner, manifest = make_scored_learner(name), corpus.manifest
    given = drawn_sentences(9)
    monkeypatch.setattr("trainables.evaluation.held_out.ROWS", 4)
    got = log_likelihoods(learner, given, manifest)
    expected = [alone(learner, sentence, manifest) for sentence in given]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect(corpus, name):
    learner, manifest = make_scored_learner(name), corpus.manifest
    short = [[7, 8, 9], [10]]
    by_themselves = [log_likelihoods(learner, [sentence], manifest)[0] for sentence in short]
    beside_a_long_one = log_likelihoods(learner, [*short, list(range(20, 34))], manifest)[:2]
    np.testing.assert_allclose(beside_a_long_one, by_themselves, rtol=1e-4)


class WordTokenizer:
    """Words are numbers."""

    def __call__(self, texts, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}


@pytest.mark.parametrize("name", ["mlm", "headless_clm"])
def test_minimal_pair_accuracy(corpus, monkeypatch, name):
    """A pair is right where its good sentence is likelier, not where both are equal."""
    learner = make_scored_learner(name)
    texts = [" ".join(map(str, sentence)) for sentence in drawn_sentences(12, seed=4)]
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
    found = take(learner, held_out(corpus), ("minimal_pair_accuracy",))
    assert found == {"minimal_pair_accuracy": Score(overall=(0.75 + 0.5) / 2, languages={"en": 0.75, "fr": 0.5})}


def test_a_text_without_pairs_is_refused():
    source = {"language": "en", "files": "text.txt"}
    corpora = CorporaConfig.model_validate({"sources": [source]})
    with pytest.raises(InputError, match="no minimal pairs to take minimal_pair_accuracy on"):
        find_yardstick("minimal_pair_accuracy").require(corpora)
    find_yardstick("recovery_mrr").require(corpora)
    grammar = {"language": "veldan", "grammar": "veldan", "documents": 10}
    find_yardstick("minimal_pair_accuracy").require(CorporaConfig.model_validate({"sources": [source, grammar]}))


def test_yardsticks_share_their_passes(tmp_path, monkeypatch):
    text = held_out(write_spoken_corpus(tmp_path))
    passed, hidden = [], Learner.hidden
    monkeypatch.setattr(Learner, "hidden", lambda self, *given: passed.append(1) or hidden(self, *given))
    learner = make_scored_learner("clm")
    take(learner, text, ("recovery_accuracy", "perplexity"))
    alone, passed[:] = len(passed), []
    take(learner, text, ("recovery_accuracy", "recovery_mrr", "perplexity", "bits_per_byte"))
    assert len(passed) == alone
