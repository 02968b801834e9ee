"""Attention inside documents, and the last layer at target positions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.helpers.corpus import LENGTH, write_corpus
from tests.helpers.learners import make_learner
from tests.helpers.objectives import (
    at_targets,
    contrastive_definition,
    cross_entropy_definition,
    hidden_states,
    same_loss_and_gradients,
    take,
)
from trainables.corpora.stream.token_stream import TokenStream
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60})
    return TokenStream(corpus, 3, 0.3, 4.0)


def loss_of(learner, hidden_KD, part):
    if learner.head is not None:
        return cross_entropy_definition(learner, hidden_KD, part)
    return contrastive_definition(learner, hidden_KD, part, None, learner.embedding_VD, 1.0)


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
    [("mlm", "bert"), ("headless_mlm", "bert"), ("clm", "gpt_neox"), ("clm", "gpt2"), ("headless_clm", "gpt2")],
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
        expected = loss_of(alone, at_targets(torch.stack(separate), part), part)
        assert part.num_targets == len(separate) * maker.targets_per_sequence
        value = packed(micro_batch)
        crossing = alone(micro_batch._replace(document_NL=None))
        assert float(crossing.detach()) != pytest.approx(float(expected.detach()), rel=3e-6)
        same_loss_and_gradients(packed, value, expected, other=alone)


def test_the_last_layer_at_target_positions_inside_documents(stream):
    learner = make_learner("headless_mlm", "bert", {}, separator=3)
    maker = BatchMaker(learner, stream, 0.3, World())
    batch = take(stream)
    batch.token_NL[:, 5] = 3
    (part,) = maker.prepare(batch, 40)
    assert part.document_NL[0].tolist() == [0] * 6 + [1] * (LENGTH - 6)
    micro_batch = maker.send(part)
    expected = loss_of(learner, hidden_states(learner, part), part)
    assert float(learner(micro_batch).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
