"""What any yardstick keeps, to be inherited by the test class of each, and models to take them of."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from trainables.corpora.tokenizers import SPECIAL_TOKENS
from trainables.evaluation import EvaluationConfig, Yardstick, find_yardstick, passes
from trainables.evaluation.held_out import HeldOut, targets_of
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.objectives import find_objective
from trainables.objectives.learner import Learner

TASKS = {"masked": "headless_mlm", "causal": "headless_clm"}


class YardstickConformance:
    """A member's class has its ``name``."""

    name: str

    @pytest.fixture(scope="class")
    def held_out(self, tmp_path_factory):
        corpus = write_spoken_corpus(tmp_path_factory.mktemp("corpus"))
        return HeldOut(corpus, EvaluationConfig(sequences_per_language=9, mask_rate=0.2), "validation")

    @property
    def yardstick(self):
        return find_yardstick(self.name)

    def taken(self, learner, held_out):
        """By scorer."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(passes, "find_yardstick", lambda name: self.yardstick)
            return passes.take(learner, held_out, [self.name])

    def take(self, learner, held_out):
        """By the scorer that the objective implies."""
        return next(iter(self.taken(learner, held_out).values())).scores[self.name]

    def test_it_has_its_name_and_says_what_it_is(self):
        yardstick = self.yardstick
        assert yardstick.name == self.name
        assert yardstick.description
        assert "\n" not in yardstick.description

    @pytest.mark.parametrize("task", TASKS)
    def test_a_better_model_has_a_better_score_within_its_range(self, held_out, task):
        worse, none, better = (self.take(Oracle(task, s), held_out) for s in (-4.0, 0.0, 4.0))
        up = self.yardstick.higher_is_better
        assert all(better.languages[name] != none.languages[name] for name in better.languages)
        assert (better.overall > none.overall) == (better.overall > worse.overall) == up
        for score in (worse, none, better):
            assert list(score.languages) == list(held_out.corpus.languages)
            values = score.languages.values()
            assert min(values) - 1e-9 <= score.overall <= max(values) * (1 + 1e-9)
            assert all(0 <= value <= (1 if up else math.inf) for value in values)

    @pytest.mark.parametrize("task", TASKS)
    @pytest.mark.parametrize("strength", [math.nan, math.inf, -math.inf])
    def test_a_broken_model_is_no_better_than_none(self, held_out, task, strength):
        broken, none = self.take(Oracle(task, strength), held_out), self.take(Oracle(task, 0.0), held_out)
        assert math.isfinite(broken.overall)
        difference = broken.overall - none.overall
        assert (difference if self.yardstick.higher_is_better else -difference) <= 1e-9

    @pytest.mark.parametrize("task", TASKS)
    def test_slices_change_nothing(self, held_out, monkeypatch, task):
        learner = make_scored_learner(TASKS[task])
        whole = self.take(learner, held_out)
        for rows, elements in ((3, passes.SLICE_ELEMENTS), (1000, 3 * LENGTH * 128 * 16)):
            monkeypatch.setattr(passes, "slice_rows", lambda *_, rows=rows: rows)
            monkeypatch.setattr(passes, "SLICE_ELEMENTS", elements)
            monkeypatch.setattr("trainables.evaluation.held_out.ROWS", 4)
            assert self.take(learner, held_out).languages == pytest.approx(whole.languages, rel=1e-3)

    @pytest.mark.parametrize("task", TASKS)
    def test_its_items_make_its_score(self, held_out, task):
        """A language's score is a ratio of sums, or what exp makes of it; the overall one that of the mean ratio."""
        for scorer, (scores, items) in self.taken(make_scored_learner(TASKS[task]), held_out).items():
            if self.name not in items:
                assert type(self.yardstick).measure is not Yardstick.measure, "it says how it is measured"
                continue
            assert list(items[self.name]) == list(held_out.corpus.languages)
            ratios = {}
            for language, (item_I, value_I, weight_I, _) in items[self.name].items():
                assert len(item_I) == len(value_I) == len(weight_I) == len(set(item_I.tolist())) > 0, scorer
                assert np.isfinite(value_I).all()
                assert (weight_I >= 0).all()
                ratios[language] = value_I.sum() / weight_I.sum()
            transform = {"identity": float, "exp": math.exp}[self.yardstick.transform]
            expected = {language: transform(ratio) for language, ratio in ratios.items()}
            assert scores[self.name].languages == pytest.approx(expected)
            assert scores[self.name].overall == pytest.approx(transform(np.mean(list(ratios.values()))))

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("task", TASKS)
    def test_taking_it_leaves_the_model_and_the_generator_alone(self, held_out, task, training):
        learner = make_scored_learner(TASKS[task], dropout=0.3)
        learner.train(training)
        torch.manual_seed(3)
        state = torch.get_rng_state()
        weights = {key: value.clone() for key, value in learner.state_dict().items()}
        once = self.take(learner, held_out)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(module.training == training for module in learner.modules())
        assert all(torch.equal(value, weights[key]) for key, value in learner.state_dict().items())
        assert all(parameter.grad is None for parameter in learner.parameters())
        assert self.take(learner, held_out) == once, "dropout was on"

    @pytest.mark.parametrize("task", TASKS)
    def test_it_costs_what_it_says(self, held_out, monkeypatch, task):
        passed, hidden = [], Learner.hidden

        def spy(self, token_NL, *mask):
            passed.append(token_NL.numel())
            return hidden(self, token_NL, *mask)

        monkeypatch.setattr(Learner, "hidden", spy)
        self.take(make_scored_learner(TASKS[task]), held_out)
        assert sum(passed) == self.yardstick.tokens(held_out, task)


class Oracle(nn.Module):
    """Knows that token t + 1 follows t in these corpora, and says so as loudly as its strength."""

    def __init__(self, task, strength):
        super().__init__()
        self.objective, self.strength = SimpleNamespace(task=task, scorers=("head",)), strength
        self.config = SimpleNamespace(hidden_size=VOCABULARY, vocab_size=VOCABULARY)
        self.embedding_VD = torch.zeros(VOCABULARY, VOCABULARY)

    def hidden(self, token_NL, attention_mask_NL=None):
        next_NL = 5 + (token_NL - 5 + 1) % (VOCABULARY - 5)
        if self.objective.task == "masked":  # a masked token follows the one before it
            next_NL = functional.pad(next_NL[:, :-1], (1, 0))
        return functional.one_hot(next_NL, VOCABULARY).float()

    def scores(self, hidden_KD, scorers):
        return dict.fromkeys(scorers, hidden_KD * self.strength)


def make_scored_learner(name, dropout=0.0):
    """A model with weights large enough that its scores differ."""
    objective = find_objective(name)
    config = body_config(
        ModelConfig(shape="tiny", dropout=dropout), objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH
    )
    torch.manual_seed(1)
    learner = Learner(config, objective.of({}), log_unigram_V=torch.linspace(-9, -2, VOCABULARY))
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0)
    return learner.eval()


def write_spoken_corpus(folder):
    """A corpus with a tokenizer, whose words are ``w5`` and so on, and minimal pairs, good if words follow."""
    corpus = write_corpus(folder, {"en": 200, "fr": 80, "sw": 40})
    words = {word: token for token, word in enumerate(SPECIAL_TOKENS)}
    words |= {f"w{token}": token for token in range(len(words), VOCABULARY)}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    roles = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    tokenizer.save_pretrained(folder / "tokenizer")
    rng = np.random.default_rng(0)
    with (folder / "minimal_pairs.jsonl").open("w") as file:
        for language in corpus.languages:
            for _ in range(12):
                good = rng.integers(5, VOCABULARY - 20) + np.arange(rng.integers(3, 12))
                bad = good.copy()
                place = rng.integers(1, len(bad))
                bad[place] = 5 + (bad[place] + rng.integers(1, VOCABULARY - 5) - 5) % (VOCABULARY - 5)
                texts = [" ".join(f"w{token}" for token in part) for part in (good, bad)]
                pair = {"language": language, "phenomenon": "order", "good": texts[0], "bad": texts[1]}
                file.write(json.dumps(pair) + "\n")
    return corpus


def recovery_ranks(learner, token_NL, manifest, mask_rate):
    """Ranks of the targets of recovery, (N, T): of a decoder every token but the first, of an encoder masked ones."""
    targets = targets_of(token_NL, np.arange(len(token_NL)), manifest, mask_rate, learner.objective.task)
    scorer = learner.objective.scorers[0]
    return passes.score_targets(learner, targets, (scorer,))[scorer].rank_K.reshape(len(token_NL), -1)
