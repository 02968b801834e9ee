"""What any objective keeps, to be inherited by the test class of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.learners import FAMILIES, VARIATIONS, make_learner
from tests.helpers.shapes import full_size_configs
from trainables.corpora.stream.token_stream import TokenStream
from trainables.errors import InputError
from trainables.objectives import find_objective
from trainables.objectives import loss as loss_module
from trainables.objectives.learner import Learner
from trainables.training.batch import BatchMaker
from trainables.training.config import TrainingConfig
from trainables.training.stepper import Stepper
from trainables.training.world import World

FIRST, MASK_RATE = 40, 0.3


class ObjectiveConformance:
    """A member's class has its ``name`` and ``definition``, and ``variations`` where it has options."""

    name: str
    exported = True
    """Whether its models can be given a head that scores as they do."""

    @property
    def objective(self):
        """Its class."""
        return find_objective(self.name)

    @property
    def variations(self):
        """Its options, in several ways."""
        return VARIATIONS.get(self.objective.Options, [{}])

    def definition(self, learner, hidden_KD, part, log_frequency_V):
        """The loss written out, position by position, summed over positions.

        Args:
            learner: in float64.
            hidden_KD: its hidden states at the target positions, of whole sequences.
            part: the micro-batch, with its candidates.
            log_frequency_V: of the tokens in the training text.
        """
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc):
        if "options" in metafunc.fixturenames:
            cases = [(f, o) for f in FAMILIES[self.objective.task] for o in self.variations]
            metafunc.parametrize(("family", "options"), cases, ids=[f"{f}-{o}" for f, o in cases])
        elif "family" in metafunc.fixturenames:
            metafunc.parametrize("family", FAMILIES[self.objective.task])

    @pytest.fixture(scope="class")
    def stream(self, tmp_path_factory):
        corpus = write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60})
        return TokenStream(corpus, 3, 0.3, 4.0)

    def test_it_has_its_name_and_its_options_refuse_what_they_do_not_have(self):
        objective = self.objective
        assert objective.name == self.name
        assert objective.of({}).options == objective.Options()
        with pytest.raises(ValidationError, match="no_such_option"):
            objective.of({"no_such_option": 1})

    def test_loss_and_gradients_are_the_definition_s(self, stream, family, options):
        learner = make_learner(self.objective, family, options)
        if learner.head is not None and learner.head.bias is not None:
            torch.nn.init.normal_(learner.head.bias)
        maker = BatchMaker(learner, stream, MASK_RATE, World())
        log_frequency_V = stream.log_unigram()
        for part in maker.prepare(take(stream), FIRST, num_parts=2):
            hidden_KD = hidden_states(learner, part)
            same_loss_and_gradients(
                learner, learner(maker.send(part)), self.definition(learner, hidden_KD, part, log_frequency_V)
            )

    def test_every_parameter_learns(self, stream, family, options):
        learner = make_learner(self.objective, family, options)
        maker = BatchMaker(learner, stream, MASK_RATE, World())
        (part,) = maker.prepare(take(stream), FIRST)
        learner(maker.send(part)).backward()
        assert [name for name, parameter in learner.named_parameters() if parameter.grad is None] == []

    def test_a_step_does_not_depend_on_its_micro_batches(self, stream, family, options):
        """Unless the objective says so."""
        learner = make_learner(self.objective, family, options)
        maker = BatchMaker(learner, stream, MASK_RATE, World())
        with torch.no_grad():
            whole, parts = (
                sum(float(learner(maker.send(part))) for part in maker.prepare(take(stream), FIRST, number))
                for number in (1, 3)
            )
        same = parts == pytest.approx(whole, rel=1e-6)
        assert same == learner.objective.gathered

    def test_a_step_is_a_pure_function_of_its_place(self, stream, family, options):
        learner = make_learner(self.objective, family, options)
        maker, other = (BatchMaker(learner, stream, MASK_RATE, World()) for _ in range(2))
        other.prepare(take(stream, 100), 100)
        (one,), (again,) = maker.prepare(take(stream), FIRST), other.prepare(take(stream), FIRST)
        assert repr(one) == repr(again)
        assert one.num_targets == 6 * maker.targets_per_sequence

    def test_flops_are_what_the_counter_counts(self, monkeypatch, stream, family, options):
        learner = make_learner(self.objective, family, options, torch.float32)
        maker = BatchMaker(learner, stream, MASK_RATE, World())
        (part,) = maker.prepare(take(stream, count=12), FIRST)
        stated = learner.flops(12, LENGTH, part.num_targets, part.num_candidates)
        assert stated == pytest.approx(count_flops(monkeypatch, learner, maker.send(part)), rel=0.01)

    @pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["smallest", "every"])
    def test_flops_of_every_shape(self, monkeypatch, stream, every):
        """In full size, without memory for it."""
        objective = self.objective
        shapes = list(full_size_configs(objective))
        for shape, config in shapes if every else shapes[:1]:
            with torch.device("meta"):
                learner = Learner(config, objective.of({}))
            maker = BatchMaker(learner, stream, MASK_RATE, World())
            (part,) = maker.prepare(take(stream, count=12), FIRST)
            stated = learner.flops(12, LENGTH, part.num_targets, part.num_candidates)
            counted = count_flops(monkeypatch, learner, on_meta(maker.send(part)))
            assert stated == pytest.approx(counted, rel=0.01), shape

    def test_no_position_has_more_candidates_than_it_says(self, stream, family, options):
        learner = make_learner(self.objective, family, options)
        maker = BatchMaker(learner, stream, MASK_RATE, World())
        (part,) = maker.prepare(take(stream, count=12), FIRST)
        most = learner.objective.most_candidates(part.num_targets, VOCABULARY)
        assert part.num_candidates <= most
        searched = learner.objective.most_candidates(part.num_targets, VOCABULARY, options)
        assert part.num_candidates <= searched

    def test_rows_are_updated_as_the_whole_table_is(self, stream, family, options):
        """A table that the step is said only to look up: its other rows have no gradient."""
        weights = []
        for update in ("auto", "dense"):
            learner = make_learner(self.objective, family, options)
            tables = learner.tables
            training = TrainingConfig(mask_rate=MASK_RATE, epsilon=1e-14, embedding_update=update)
            if update == "auto":
                training = training.model_copy(update={"embedding_update": "rows" if tables else "dense"})
            stepper = Stepper(learner, stream, training, World())
            for step in range(3):
                stepper.step(stepper.prepare(take(stream, FIRST + 6 * step), FIRST + 6 * step), 0.01)
            stepper.settle()
            weights.append(dict(learner.named_parameters()))
        for name, value in weights[0].items():
            torch.testing.assert_close(value, weights[1][name], rtol=1e-6, atol=1e-6, msg=name)

    def test_its_scorers_differ_by_the_unigram_alone(self, family, options):
        learner = make_learner(self.objective, family, options)
        learner.log_unigram_V.normal_()
        hidden = learner.hidden(torch.arange(5, 5 + LENGTH)[None])[0]
        scorers = learner.objective.scorers
        scores = learner.scores(hidden, scorers)
        assert list(scores) == list(scorers)
        assert set(scorers) in ({"head"}, {"embedding", "embedding+unigram"})
        for name, scores_KV in scores.items():
            unigram_V = learner.log_unigram_V if name.endswith("+unigram") else 0
            torch.testing.assert_close(scores_KV, learner.objective.logits(learner, hidden) + unigram_V)
        assert torch.equal(learner.logits(hidden), scores[scorers[0]])

    def test_a_head_scores_as_the_model_does(self, family, options):
        """What is exported, and what a restored model begins as."""
        learner = make_learner(self.objective, family, options)
        hidden = learner.hidden(torch.arange(5, 5 + LENGTH)[None])[0]
        scores = learner.logits(hidden)
        assert scores.shape == (LENGTH, VOCABULARY)
        if not self.exported:
            with pytest.raises(InputError, match=self.name):
                learner.objective.scoring_head(learner)
            return
        head = learner.objective.scoring_head(learner)
        torch.testing.assert_close(head.logits(hidden), scores, rtol=1e-6, atol=1e-6)
        if learner.objective.restorable:
            learner.restore_head()
            torch.testing.assert_close(learner.logits(hidden), scores, rtol=1e-6, atol=1e-6)
            assert learner.objective.name == ("mlm" if learner.objective.task == "masked" else "clm")


def take(stream, first=FIRST, count=6):
    return stream.take(np.arange(first, first + count))


def hidden_states(learner, part):
    """Those at the target positions, of whole sequences."""
    hidden_NLD = learner.hidden(torch.from_numpy(part.corrupted.input_NL))
    return at_targets(hidden_NLD, part)


def at_targets(hidden_NLD, part):
    position_NT = torch.from_numpy(part.corrupted.position_NT)
    return hidden_NLD[torch.arange(len(hidden_NLD))[:, None], position_NT].flatten(0, 1)


def same_loss_and_gradients(learner, value, expected, other=None):
    """Args: other: the learner that the expected loss is of, if it is another with the same weights."""
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    wanted = torch.autograd.grad(expected, list((other or learner).parameters()), allow_unused=True)
    got = torch.autograd.grad(value, list(learner.parameters()), allow_unused=True)
    for (label, _), a, b in zip(learner.named_parameters(), got, wanted, strict=True):
        a = torch.zeros(1) if a is None else a
        b = torch.zeros(1) if b is None else b
        scale = max(float(b.abs().max()), 1e-6)
        assert float((a - b).abs().max()) <= 1e-5 * scale, label  # biases are sent in float32


def cross_entropy_definition(learner, hidden_KD, part):
    """Against the whole vocabulary, by the head."""
    bias = 0 if learner.head.bias is None else learner.head.bias
    logits = learner.head(hidden_KD) @ learner.head.weight_VD.T + bias
    return functional.cross_entropy(logits, torch.from_numpy(part.corrupted.target_NT.ravel()), reduction="sum")


def contrastive_definition(learner, hidden_KD, part, log_frequency_V, weight_VD, temperature):
    """Against a pool of tokens, each as often as it is in it, and a position's own target where it is not."""
    log_q = learner.objective.options.log_q
    correction_V = torch.from_numpy(log_frequency_V) if log_q else torch.zeros(VOCABULARY)
    bias_C = part.candidates.bias_C + (log_frequency_V[part.candidates.token_C] if log_q else 0)
    pool = np.repeat(part.candidates.token_C, np.rint(np.exp(bias_C)).astype(int)).tolist()
    total = torch.zeros((), dtype=hidden_KD.dtype)
    for query, target in zip(hidden_KD, part.corrupted.target_NT.ravel(), strict=True):
        tokens = pool if target in pool else [*pool, target]
        scores = weight_VD[tokens] @ query / temperature - correction_V[tokens]
        own = weight_VD[target] @ query / temperature - correction_V[target]
        total = total + scores.logsumexp(0) - own
    return total


def stored_logits(hidden_KD, weight_CD, target_K, bias_C=None, own_logit_K=None):
    """The same loss in plain torch, all of whose products the counter sees."""
    logits_KC = hidden_KD @ weight_CD.T
    if bias_C is not None:
        logits_KC = logits_KC + bias_C
    if own_logit_K is not None:  # its last column is the position's own candidate
        logits_KC = torch.cat([logits_KC, own_logit_K[:, None]], dim=1)
    return functional.cross_entropy(logits_KC, target_K, reduction="sum")


def count_flops(monkeypatch, learner, micro_batch):
    monkeypatch.setattr(loss_module, "linear_cross_entropy", stored_logits)
    # The counter knows nothing of the CPU's flash attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        learner(micro_batch).backward()
    return counter.get_total_flops()


def on_meta(value):
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, tuple):
        return type(value)(*map(on_meta, value))
    return value
