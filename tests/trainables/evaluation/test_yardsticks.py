"""Yardsticks against brute force: recovery ranks, minimal pairs, means."""

from __future__ import annotations

import math
from types import SimpleNamespace

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
from trainables.evaluation.held_out import HELD_OUT_SEED, HeldOut, targets_of
from trainables.evaluation.passes import Passes, Taking, Tokens, log_likelihoods, ranks_of, score_targets, take
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
def scores_of(learner, tokens, position, scorer=None):
    """Scores of the whole vocabulary from one position's hidden state, of one sequence alone, float64."""
    hidden = learner.hidden(torch.tensor(tokens)[None])[0, position]
    if scorer is None:
        return learner.logits(hidden[None])[0].double().numpy()
    unigram_V = learner.log_unigram_V if scorer == "embedding+unigram" else 0
    return (learner.objective.logits(learner, hidden[None])[0] + unigram_V).double().numpy()


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
def test_ranks_and_nats_by_brute_force(corpus, name):
    """By every scorer, one token at a time."""
    learner, manifest = make_scored_learner(name), corpus.manifest
    tokens = corpus.take("validation", "fr", np.arange(6)).astype(np.int64)
    tokens[0, :3] = manifest.separator_token  # an encoder's special tokens are not targets
    task, scorers = learner.objective.task, learner.objective.scorers
    targets = targets_of(tokens, np.arange(6), manifest, 0.3, task)
    found = score_targets(learner, targets, scorers)
    position_NT = masked_positions(tokens, np.arange(6), HELD_OUT_SEED, 0.3, manifest.special_tokens)
    places = position_NT.tolist() if task == "masked" else [range(1, LENGTH)] * 6
    assert [(n, place) for n in range(6) for place in places[n]] == list(
        zip(targets.sequence_K.tolist(), targets.place_K.tolist(), strict=True)
    )
    for k, (n, place) in enumerate(zip(targets.sequence_K, targets.place_K, strict=True)):
        seen, at = tokens[n].copy(), place - 1
        if task == "masked":
            seen[position_NT[n]], at = manifest.mask_token, place
        for scorer in scorers:
            scores = scores_of(learner, seen, at, scorer)
            own = scores[tokens[n, place]]
            # Scores closer than float32's rounding may fall either way.
            lowest, highest = (scores >= own + 1e-4).sum(), (scores >= own - 1e-4).sum()
            assert max(1, lowest) <= found[scorer].rank_K[k] <= highest
            assert found[scorer].nats_K[k] == pytest.approx(np.logaddexp.reduce(scores) - own, rel=1e-4, abs=1e-4)
            assert found[scorer].token_K[k] == tokens[n, place]
    ranks = [tokens.rank_K for tokens in found.values()]
    assert len(np.unique(ranks[0])) > 10, "the check is blind"
    assert len(ranks) == 1 or (ranks[0] != ranks[1]).any(), "the scorers differ"


@pytest.mark.parametrize("name", NAMES)
def test_slices_change_nothing(corpus, monkeypatch, name):
    learner = make_scored_learner(name)
    tokens = corpus.take("test", "en", np.arange(20)).astype(np.int64)
    whole = recovery_ranks(learner, tokens, corpus.manifest, 0.2)
    monkeypatch.setattr(passes, "slice_rows", lambda *_: 3)
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
    tokens, other, _, _ = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3)
    assert before.shape == (30, LENGTH - 1), "from the second token on"
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert (before[:, 8:] != after[:, 8:]).mean() > 0.5


@pytest.mark.parametrize("name", ["mlm", "headless_mlm"])
def test_an_encoder_sees_both_sides_but_no_target(corpus, monkeypatch, name):
    learner = make_scored_learner(name)
    tokens, other, position_NT, untouched_N = changed_inputs(corpus, 8)
    before = recovery_ranks(learner, tokens, corpus.manifest, 0.3)
    after = recovery_ranks(learner, other, corpus.manifest, 0.3)
    left_NT = (position_NT < 8) & untouched_N[:, None]
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
    scores = first(take(learner, held_out(corpus), ("recovery_accuracy", "recovery_mrr")))
    assert scores["recovery_accuracy"].overall == 0.0
    assert scores["recovery_mrr"].overall == pytest.approx(1 / VOCABULARY)
    assert list(scores["recovery_accuracy"].languages) == ["en", "fr", "sw"]


# --- means --------------------------------------------------------------------------------------------------


def held_out(corpus, split="validation", sequences=9):
    return HeldOut(corpus, EvaluationConfig(sequences_per_language=sequences, mask_rate=0.3), split)


def first(taken):
    """The scores by the scorer that the objective implies."""
    return next(iter(taken.values())).scores


def test_held_out_text_is_the_first_of_a_shuffled_order(corpus):
    """Fewer are some of more, with the same masks; all are all."""
    text, fewer, whole = (held_out(corpus, sequences=number) for number in (9, 4, 1000))
    assert len(text.token_NL) == 27
    targets, of_fewer = text.targets("masked"), fewer.targets("masked")
    for language in corpus.languages:
        size = corpus.sequences("validation", language)
        every = {tuple(tokens) for tokens in corpus.take("validation", language, np.arange(size)).tolist()}
        own = text.token_NL[text.language_N == language]
        assert {tuple(tokens) for tokens in own.tolist()} <= every
        assert {tuple(t) for t in whole.token_NL[whole.language_N == language].tolist()} == every
        assert not np.array_equal(own, corpus.take("validation", language, np.arange(len(own))))
        np.testing.assert_array_equal(fewer.token_NL[fewer.language_N == language], own[:4])
        np.testing.assert_array_equal(
            of_fewer.input_NL[fewer.language_N == language], targets.input_NL[text.language_N == language][:4]
        )
    assert len(text.targets("causal").target_K) == 27 * (LENGTH - 1)
    assert (text.targets("causal").position_K + 1 == text.targets("causal").place_K).all()


def test_documents_end_with_their_separators(corpus, monkeypatch):
    """Told apart over all of a language's sequences, of which only some are looked at; a shard begins another."""
    rng = np.random.default_rng(0)
    rows = {language: rng.integers(5, 20, (40, LENGTH)) for language in corpus.languages}
    for row_NL in rows.values():
        row_NL[rng.random(row_NL.shape) < 0.04] = corpus.manifest.separator_token
    shards = {
        (language, number): rows[language][20 * number : 20 * number + 20] for language in rows for number in (0, 1)
    }
    names = [SimpleNamespace(language=language, number=number) for language, number in shards]
    counts = {
        language: SimpleNamespace(shards=[name for name in names if name.language == language], sequences=40)
        for language in rows
    }
    splits = {"validation": counts}
    monkeypatch.setattr(corpus, "manifest", corpus.manifest.model_copy(update={"splits": splits}))
    monkeypatch.setattr(corpus, "_map", lambda shard: shards[shard.language, shard.number])
    monkeypatch.setattr(corpus, "take", lambda split, language, index: rows[language][index])
    text = held_out(corpus, sequences=11)
    for language, row_NL in rows.items():
        expected, document = [], 0
        for number, tokens in enumerate(row_NL.tolist()):
            document += number == 20
            expected.append([])
            for token in tokens:
                expected[-1].append(document)
                document += token == corpus.manifest.separator_token
        taken = text._index_of[language]
        np.testing.assert_array_equal(text.document_NL[text.language_N == language], np.array(expected)[taken])
        assert len(taken) == 11


def test_means_over_documents_tokens_and_languages(corpus):
    """Languages of different sizes: each counts the same, of a language every token. Token 3 has no bytes."""
    sizes = np.zeros(VOCABULARY, dtype=np.int64)
    sizes[[10, 11, 12]] = 4, 1, 9
    tokens = {
        "en": Tokens(np.array([1, 1]), np.array([1.0, 3.0]), np.array([10, 3])),
        "fr": Tokens(np.array([2, 4, 1]), np.array([2.0, 2.0, 2.0]), np.array([11, 11, 3])),
        "sw": Tokens(np.array([10]), np.array([9.0]), np.array([12])),
    }
    learner = make_scored_learner("mlm")
    passes_of = Passes(learner, SimpleNamespace(token_bytes_V=sizes), ("head",))
    passes_of.documents = {
        "en": (np.array([4, 7]), np.array([1, 0])),
        "fr": (np.array([0, 2]), np.array([0, 1, 0])),
        "sw": (np.array([5]), np.array([0])),
    }
    taking = Taking(passes_of, "head")
    taking.tokens = tokens
    names = ("recovery_accuracy", "recovery_mrr", "perplexity", "bits_per_byte")
    scores = {name: find_yardstick(name).measure(taking) for name in names}
    nats = {"en": 2.0, "fr": 2.0, "sw": 9.0}
    expected = {
        "recovery_accuracy": {"en": 1.0, "fr": 1 / 3, "sw": 0.0},
        "recovery_mrr": {"en": 1.0, "fr": (1 / 2 + 1 / 4 + 1) / 3, "sw": 0.1},
        "perplexity": {language: math.exp(mean) for language, mean in nats.items()},
        "bits_per_byte": {"en": 4 / math.log(2) / 4, "fr": 6 / math.log(2) / 2, "sw": 9 / math.log(2) / 9},
    }
    for name, languages in expected.items():
        assert scores[name].languages == pytest.approx(languages)
        mean = np.prod(list(languages.values())) ** (1 / 3) if name == "perplexity" else sum(languages.values()) / 3
        assert scores[name].overall == pytest.approx(mean)
    items = find_yardstick("recovery_mrr").items(taking)["fr"]
    assert [part.tolist() for part in items[:3]] == [[0, 2], [1.5, 0.25], [2.0, 1.0]]
    items = find_yardstick("bits_per_byte").items(taking)["en"]
    assert items.item_I.tolist() == [4, 7]
    assert items.weight_I.tolist() == [0.0, 4.0], "bytes"


def test_the_split_is_the_one_asked_for_and_a_small_language_gives_what_it_has(corpus):
    learner = make_scored_learner("clm")
    names = ("recovery_mrr",)
    validation = first(take(learner, held_out(corpus, "validation", 1000), names))
    test = first(take(learner, held_out(corpus, "test", 1000), names))
    assert validation != test
    assert list(validation) == ["recovery_mrr"]
    everything = corpus.take("test", "en", np.arange(corpus.sequences("test", "en"))).astype(np.int64)
    ranks = recovery_ranks(learner, everything, corpus.manifest, 0.3)
    assert test["recovery_mrr"].languages["en"] == pytest.approx((1 / ranks).mean(), rel=1e-3)


# --- minimal pairs ------------------------------------------------------------------------------------------


def drawn_sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, VOCABULARY, rng.integers(1, LENGTH - 1)).tolist() for _ in range(count)]


def likelihoods(learner, sentences, manifest):
    scorer = learner.objective.scorers[0]
    return log_likelihoods(learner, sentences, manifest, (scorer,))[scorer]


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
    monkeypatch.setattr(passes, "slice_rows", lambda *_: 7)
    got = likelihoods(learner, given, manifest)
    expected = [alone(learner, sentence, manifest) for sentence in given]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect(corpus, name):
    learner, manifest = make_scored_learner(name), corpus.manifest
    short = [[7, 8, 9], [10]]
    by_themselves = [likelihoods(learner, [sentence], manifest)[0] for sentence in short]
    beside_a_long_one = likelihoods(learner, [*short, list(range(20, 34))], manifest)[:2]
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
    found = first(take(learner, held_out(corpus), ("minimal_pair_accuracy",)))
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
    learner = make_scored_learner("headless_clm")
    take(learner, text, ("recovery_accuracy",), ("embedding",))
    alone, passed[:] = len(passed), []
    take(learner, text, ("recovery_accuracy", "recovery_mrr", "perplexity", "bits_per_byte"))
    assert len(passed) == alone
