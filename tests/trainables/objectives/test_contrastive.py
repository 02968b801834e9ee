"""Contrastive objectives: against the targets of the batch, and what their options add to or take from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.helpers.corpus import VOCABULARY, write_corpus
from tests.helpers.learners import make_learner
from tests.helpers.objectives import ObjectiveConformance, contrastive_definition, take
from trainables.corpora.stream.token_stream import TokenStream
from trainables.objectives import find_objective
from trainables.objectives.candidates import target_candidates
from trainables.objectives.contrastive import ContrastiveOptions, HeadlessCausal
from trainables.objectives.loss import linear_cross_entropy
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)


def temperature_of(learner):
    if learner.objective.options.learn_temperature:
        return learner.log_temperature.exp()
    return learner.objective.options.temperature


class TiedConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        weight_VD = learner.embedding_VD
        weight_VD = weight_VD.detach() if learner.objective.options.detached else weight_VD
        return contrastive_definition(learner, hidden_KD, part, log_frequency_V, weight_VD, temperature_of(learner))


class UntiedConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        return contrastive_definition(
            learner, hidden_KD, part, log_frequency_V, learner.table_VD, temperature_of(learner)
        )


class TestHeadlessMasked(TiedConformance):
    name = "headless_mlm"


class TestHeadlessCausal(TiedConformance):
    name = "headless_clm"


class TestUntiedMasked(UntiedConformance):
    name = "nce_untied"


class TestUntiedCausal(UntiedConformance):
    name = "nce_untied_clm"


def test_a_queue_has_the_targets_that_came_before(tmp_path):
    stream = TokenStream(write_corpus(tmp_path, {"en": 300, "fr": 60}), 3, 0.3, 4.0)
    learner = make_learner("headless_clm", "gpt2", {"negatives": 100, "beyond_batch": "queue"})
    maker = BatchMaker(learner, stream, 0.3, World())
    (part,) = maker.prepare(take(stream, 40, 2), 40)
    before = stream.take(np.arange(30, 40)).token_NL[:, 1:].ravel()[-70:].tolist()
    counts = np.bincount(before + part.corrupted.target_NT.ravel().tolist(), minlength=VOCABULARY)
    token_C = part.candidates.token_C
    assert np.array_equal(np.flatnonzero(counts), token_C)
    assert np.allclose(np.exp(part.candidates.bias_C), counts[token_C])


@pytest.mark.parametrize(
    ("objective", "options", "first"),
    [
        ("headless_mlm", {}, "embedding+unigram"),
        ("headless_clm", {"negatives": 9, "temperature": 0.5}, "embedding+unigram"),
        ("nce_untied", {}, "embedding+unigram"),
        ("headless_clm", {"log_q": True}, "embedding"),
        ("mlm+cwt", {}, "head"),
        ("sampled_softmax_clm", {}, "head"),
        ("clm", {}, "head"),
    ],
)
def test_the_scorer_that_the_loss_implies(objective, options, first):
    assert find_objective(objective).of(options).scorers[0] == first


@pytest.mark.parametrize("log_q", [False, True])
def test_at_the_optimum_the_scorer_gives_probabilities(log_q):
    """Three contexts, a score of each token in each that is free, and batches as large as their expectation."""
    rng = np.random.default_rng(0)
    p_cw = rng.dirichlet(np.ones(6) * 0.7, size=3)
    context_K = np.repeat([0, 1, 2], [2000, 3000, 5000])
    target_K = np.concatenate([rng.choice(6, size=n, p=p) for n, p in zip((2000, 3000, 5000), p_cw, strict=True)])
    frequency_V = np.bincount(target_K, minlength=6) / len(target_K)
    p_cw = np.array([np.bincount(target_K[context_K == c], minlength=6) / (context_K == c).sum() for c in range(3)])
    found = target_candidates(target_K, np.log(frequency_V) if log_q else None).of(target_K)
    hidden_KD = torch.nn.functional.one_hot(torch.from_numpy(context_K), 3).double()
    score_VD = torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([score_VD], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        bias_C, index_K = torch.from_numpy(found.bias_C), torch.from_numpy(found.index_K)
        loss = linear_cross_entropy(hidden_KD, score_VD[found.token_C], index_K, bias_C) / len(target_K)
        loss.backward()
        return loss

    optimiser.step(closure)
    prior_V = 0 if HeadlessCausal.of({"log_q": log_q}).scorers[0] == "embedding" else np.log(frequency_V)
    probability = torch.softmax(torch.from_numpy(score_VD.detach().numpy().T + prior_V), dim=1).numpy()
    np.testing.assert_allclose(probability, p_cw, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"beyond_batch": "queue"}, "negatives"),
        ({"negatives": 0}, "negatives"),
        ({"temperature": 0}, "temperature"),
        ({"beyond_batch": "moon"}, "beyond_batch"),
    ],
)
def test_options_that_are_refused(options, hint):
    with pytest.raises(ValueError, match=hint):
        ContrastiveOptions.model_validate(options)
