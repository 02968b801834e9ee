"""What every entry of the registry must keep: its loss is its definition, its gradients too, its FLOPs are counted.

A new objective is covered by being there; one of a new kind of term needs its definition in ``definition``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from trainables.models.learner import Learner

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.learners import CASES, make_learner
from tests.helpers.shapes import full_size_configs
from trainables.corpora.stream.frequencies import log_frequencies
from trainables.corpora.stream.token_stream import TokenStream
from trainables.models import learner as learner_module
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.candidates import sampled_candidates
from trainables.objectives.registry import ContrastiveOptions
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60})
    return TokenStream(corpus, 3, 0.3, 4.0)


def take(stream, first=40, count=6):
    return stream.take(np.arange(first, first + count))


@cache
def frequencies_of(stream):
    return log_frequencies(stream)


def definition(learner, maker, part, micro_batch, hidden_NLD=None):
    """The loss written out, position by position, from hidden states of the whole sequences."""
    task, options = learner.objective.task, learner.options
    if hidden_NLD is None:
        hidden_NLD = learner.hidden(torch.from_numpy(part.corrupted.input_NL))
    hidden_KD = hidden_NLD[
        torch.arange(len(hidden_NLD))[:, None], torch.from_numpy(part.corrupted.position_NT)
    ].flatten(0, 1)
    targets = part.corrupted.target_NT.ravel()
    total = torch.zeros((), dtype=hidden_KD.dtype)
    for term in learner.objective.terms:
        if term.candidates == "vocabulary":
            total = total + functional.cross_entropy(
                learner.head(hidden_KD) @ learner.head.weight_VD.T
                + (0 if learner.head.bias is None else learner.head.bias),
                torch.from_numpy(targets),
                reduction="sum",
            )
            continue
        frequency_V = frequencies_of(maker.stream)
        if term.candidates == "samples":
            if options.proposal == "uniform":
                frequency_V = np.full(VOCABULARY, -np.log(VOCABULARY))
            included_V = 1 - (1 - np.exp(frequency_V)) ** options.samples
            query_KD, weight_VD = learner.head(hidden_KD), learner.head.weight_VD
            for query, target in zip(query_KD, targets, strict=True):
                tokens = sorted({*part.candidates.token_C.tolist(), int(target)})
                scores = weight_VD[tokens] @ query - torch.from_numpy(np.log(included_V[tokens]))
                if learner.head.bias is not None:
                    scores = scores + learner.head.bias[tokens]
                total = total + scores.logsumexp(0) - scores[tokens.index(target)]
            continue
        weight_VD = learner.embedding_VD if term.weights == "embedding" else learner.table_VD
        weight_VD = weight_VD.detach() if getattr(options, "detached", False) else weight_VD
        correction_V = torch.from_numpy(frequency_V) if options.log_q else torch.zeros(VOCABULARY)
        bias_C = part.candidates.bias_C + (frequency_V[part.candidates.token_C] if options.log_q else 0)
        pool = np.repeat(part.candidates.token_C, np.rint(np.exp(bias_C)).astype(int)).tolist()
        contrastive = torch.zeros((), dtype=hidden_KD.dtype)
        for query, target in zip(hidden_KD, targets, strict=True):
            tokens = pool if target in pool else [*pool, target]
            scores = weight_VD[tokens] @ query / learner.temperature - correction_V[tokens]
            own = weight_VD[target] @ query / learner.temperature - correction_V[target]
            contrastive = contrastive + scores.logsumexp(0) - own
        total = total + getattr(options, "contrastive_weight", 1.0) * contrastive
    assert task in ("masked", "causal")
    return total, len(targets)


@pytest.mark.parametrize(("name", "family", "options"), CASES)
def test_loss_and_gradients_are_the_definition_s(stream, name, family, options):
    learner = make_learner(name, family, options)
    if learner.head is not None and learner.head.bias is not None:
        torch.nn.init.normal_(learner.head.bias)
    maker = BatchMaker(learner, stream, 0.3, World())
    parts = maker.prepare(take(stream), 40, num_parts=2)
    for part in parts:
        micro_batch = maker.send(part)
        expected, _ = definition(learner, maker, part, micro_batch)
        value = learner(micro_batch)
        assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
        parameters = list(learner.parameters())
        wanted = torch.autograd.grad(expected, parameters, allow_unused=True)
        got = torch.autograd.grad(value, parameters, allow_unused=True)
        for (label, _), a, b in zip(learner.named_parameters(), got, wanted, strict=True):
            a = torch.zeros(1) if a is None else a
            b = torch.zeros(1) if b is None else b
            scale = max(float(b.abs().max()), 1e-6)
            assert float((a - b).abs().max()) <= 1e-5 * scale, label  # biases are sent in float32


def stored_logits(hidden_KD, weight_CD, target_K, bias_C=None, own_logit_K=None):
    """The same loss in plain torch, all of whose products the counter sees."""
    logits_KC = hidden_KD @ weight_CD.T
    if bias_C is not None:
        logits_KC = logits_KC + bias_C
    if own_logit_K is not None:  # its last column is the position's own candidate
        logits_KC = torch.cat([logits_KC, own_logit_K[:, None]], dim=1)
    return functional.cross_entropy(logits_KC, target_K, reduction="sum")


def count_flops(monkeypatch, learner, micro_batch):
    monkeypatch.setattr(learner_module, "linear_cross_entropy", stored_logits)
    # The counter knows nothing of the CPU's flash attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        learner(micro_batch).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("name", "family", "options"), CASES)
def test_flops_are_what_the_counter_counts(monkeypatch, stream, name, family, options):
    learner = make_learner(name, family, options, torch.float32)
    maker = BatchMaker(learner, stream, 0.3, World())
    (part,) = maker.prepare(take(stream, count=12), 40)
    stated = learner.flops(12, LENGTH, part.num_targets, part.num_candidates)
    assert stated == pytest.approx(count_flops(monkeypatch, learner, maker.send(part)), rel=0.01)


def on_meta(value):
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, tuple):
        return type(value)(*map(on_meta, value))
    return value


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_flops_of_every_shape(monkeypatch, stream, name):
    """In full size, without memory for it."""
    objective = find_objective(name)
    for shape, config in full_size_configs(objective):
        with torch.device("meta"):
            learner = Learner(config, objective, objective.options())
        (part,) = BatchMaker(learner, stream, 0.3, World()).prepare(take(stream, count=12), 40)
        micro_batch = on_meta(BatchMaker(learner, stream, 0.3, World()).send(part))
        stated = learner.flops(12, LENGTH, part.num_targets, part.num_candidates)
        counted = count_flops(monkeypatch, learner, micro_batch)
        assert stated == pytest.approx(counted, rel=0.01), shape


def test_sampled_softmax_of_everything_is_softmax(stream):
    """With so many samples that every token is drawn, no correction is left."""
    found = sampled_candidates(np.arange(VOCABULARY).repeat(2000), np.full(VOCABULARY, -np.log(VOCABULARY)))
    assert np.abs(found.of(np.array([5, 7])).bias_C).max() < 1e-3
    assert found.of(np.array([5, 7])).own_bias_K is None


def test_a_queue_has_the_targets_that_came_before(stream):
    learner = make_learner("headless_clm", "gpt2", {"negatives": 100, "beyond_batch": "queue"})
    maker = BatchMaker(learner, stream, 0.3, World())
    (part,) = maker.prepare(take(stream, 40, 2), 40)
    before = stream.take(np.arange(30, 40)).token_NL[:, 1:].ravel()[-70:].tolist()
    counts = np.bincount(before + part.corrupted.target_NT.ravel().tolist(), minlength=VOCABULARY)
    token_C = part.candidates.token_C
    assert np.array_equal(np.flatnonzero(counts), token_C)
    assert np.allclose(np.exp(part.candidates.bias_C), counts[token_C])


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


def test_frequencies_are_the_stream_s(stream):
    counts = np.bincount(stream.take(np.arange(20_000)).token_NL.ravel(), minlength=VOCABULARY)
    estimated = np.exp(log_frequencies(stream))
    assert estimated.sum() == pytest.approx(1.0)
    assert np.abs(estimated - counts / counts.sum()).max() < 0.001


# --- documents and the last layer -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "gpt_neox", "gpt2"])
def test_attention_inside_documents_is_that_of_documents_alone(family):
    """Packed documents give the hidden states that each gives on its own."""
    name = "headless_mlm" if family == "bert" else "headless_clm"
    learner = make_learner(name, family, {}, separator=3).eval()
    alone = make_learner(name, family, {}).eval()
    pieces = [[7, 8, 9, 3], [10, 3], [3], [11, 12, 13, 14]]
    packed = learner.hidden(torch.tensor([[token for piece in pieces for token in piece]]))[0]
    separate = torch.cat([alone.hidden(torch.tensor([piece]))[0] for piece in pieces])
    torch.testing.assert_close(packed, separate, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(alone.hidden(torch.tensor([[token for piece in pieces for token in piece]]))[0], separate)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("mlm", "bert"),
        ("headless_mlm", "bert"),
        ("clm", "gpt_neox"),
        ("clm", "gpt2"),
        ("headless_clm", "gpt2"),
    ],
)
def test_packed_documents_have_the_loss_and_gradients_of_separate_ones(stream, name, family):
    """Each document is run by itself, by a model that knows of no documents; only the targets are the sequence's: a
    decoder's separator recovers the next document's first token."""
    packed, alone = make_learner(name, family, {}, separator=3), make_learner(name, family, {})
    batch = take(stream)
    for row, ends in enumerate([[4], [0, 9], [5, 6], [LENGTH - 1], [LENGTH - 2], []]):
        batch.token_NL[row, ends] = 3
    maker = BatchMaker(packed, stream, 0.3, World())
    for number, part in enumerate(maker.prepare(batch, 40, num_parts=2)):
        separate = []
        for clean_L, input_L in zip(batch.token_NL[number::2], part.corrupted.input_NL, strict=True):
            pieces = np.split(input_L, np.flatnonzero(clean_L == 3) + 1)
            separate.append(torch.cat([alone.hidden(torch.from_numpy(p[None]))[0] for p in pieces if p.size]))
        micro_batch = maker.send(part)
        expected, num_targets = definition(alone, maker, part, micro_batch, torch.stack(separate))
        assert num_targets == len(separate) * maker.targets_per_sequence
        value = packed(micro_batch)
        assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
        crossing = alone(micro_batch._replace(document_NL=None))
        assert float(crossing.detach()) != pytest.approx(float(expected.detach()), rel=3e-6)
        wanted = torch.autograd.grad(expected, list(alone.parameters()), allow_unused=True)
        got = torch.autograd.grad(value, list(packed.parameters()), allow_unused=True)
        for (label, _), a, b in zip(packed.named_parameters(), got, wanted, strict=True):
            a = torch.zeros(1) if a is None else a
            b = torch.zeros(1) if b is None else b
            scale = max(float(b.abs().max()), 1e-6)
            assert float((a - b).abs().max()) <= 1e-5 * scale, label


def test_the_last_layer_at_target_positions_inside_documents(stream):
    learner = make_learner("headless_mlm", "bert", {}, separator=3)
    maker = BatchMaker(learner, stream, 0.3, World())
    batch = take(stream)
    batch.token_NL[:, 5] = 3
    (part,) = maker.prepare(batch, 40)
    assert part.document_NL[0].tolist() == [0] * 6 + [1] * (LENGTH - 6)
    micro_batch = maker.send(part)
    expected, _ = definition(learner, maker, part, micro_batch)
    assert float(learner(micro_batch).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
