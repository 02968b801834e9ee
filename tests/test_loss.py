"""The loss against the paper's formula, in float64, value and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.models.learner import contrastive_loss
from trainables.objectives import loss as loss_module
from trainables.objectives.candidates import in_batch_candidates
from trainables.objectives.loss import linear_cross_entropy


def direct_formula(hidden, table, targets, temperature, sample):
    """Equation 3 of arXiv 2309.08351, term by term: every sampled target is a negative as often as it occurs.

    A position whose own token the sample lacks has it added; with all targets as the sample none does.
    """
    total = torch.zeros((), dtype=hidden.dtype)
    for i, target in enumerate(targets):
        negatives = list(sample)
        if target not in negatives:
            negatives.append(target)
        scores = table[negatives] @ hidden[i] / temperature
        own = table[target] @ hidden[i] / temperature
        largest = scores.max()
        total = total + (largest + (scores - largest).exp().sum().log() - own)
    return total


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


@settings(max_examples=60, deadline=None)
@given(
    num_targets=st.integers(1, 40),
    hidden_size=st.integers(1, 12),
    vocabulary=st.integers(1, 30),
    temperature=st.floats(0.02, 20.0),
    negatives=st.one_of(st.none(), st.integers(1, 45)),
    scale=st.floats(0.1, 30.0),
    slice_elements=st.sampled_from([1, 7, 64, 1 << 22]),
    seed=st.integers(0, 2**32 - 1),
)
def test_contrastive_loss_is_the_papers(
    num_targets, hidden_size, vocabulary, temperature, negatives, scale, slice_elements, seed
):
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    targets = rng.integers(0, vocabulary, num_targets)
    hidden = (
        scale * torch.randn(num_targets, hidden_size, dtype=torch.float64, generator=generator)
    ).requires_grad_()
    table = torch.randn(vocabulary, hidden_size, dtype=torch.float64, generator=generator).requires_grad_()

    found = in_batch_candidates(targets, negatives, np.random.default_rng(seed))
    # What the implementation drew, written out with its multiplicities.
    counts = np.rint(np.exp(found.log_count_C)).astype(int)
    sample = np.repeat(found.token_C, counts).tolist()
    assert len(sample) == (num_targets if negatives is None else min(negatives, num_targets))

    expected = direct_formula(hidden, table, targets.tolist(), temperature, sample)
    expected_gradients = torch.autograd.grad(expected, (hidden, table))

    original = loss_module.SLICE_ELEMENTS
    loss_module.SLICE_ELEMENTS = slice_elements
    try:
        value = contrastive_loss(
            hidden,
            table[torch.from_numpy(found.token_C)],
            torch.from_numpy(found.log_count_C),
            torch.from_numpy(found.index_K),
            temperature,
            None if negatives is None else table[torch.from_numpy(targets)],
        )
        gradients = torch.autograd.grad(value, (hidden, table))
    finally:
        loss_module.SLICE_ELEMENTS = original

    # The loss is a difference of two numbers of this size, so rounding is relative to them.
    magnitude = float((table[targets] * hidden).sum(1).abs().max().detach()) / temperature * num_targets
    assert float((value - expected).abs()) <= 1e-12 * max(float(expected), magnitude)
    for got, wanted, other in zip(gradients, expected_gradients, (table, hidden), strict=True):
        floor = float(other.detach().abs().max()) / temperature
        assert (
            float((got - wanted).abs().max()) <= 1e-12 * max(float(wanted.abs().max()), floor) * num_targets
        )


@settings(max_examples=30, deadline=None)
@given(
    num_targets=st.integers(1, 30),
    candidates=st.integers(1, 20),
    with_bias=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_cross_entropy_is_torchs(num_targets, candidates, with_bias, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    hidden, weight = normal(num_targets, 5), normal(candidates, 5)
    bias = normal(candidates) if with_bias else None
    target = torch.randint(0, candidates, (num_targets,), generator=generator)
    inputs = [hidden, weight] + ([bias] if with_bias else [])
    expected = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(hidden, weight, bias), target, reduction="sum"
    )
    got = linear_cross_entropy(hidden, weight, target, bias)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(3 * got, inputs), torch.autograd.grad(3 * expected, inputs), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_by_finite_differences():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    weight = torch.randn(5, 3, dtype=torch.float64, generator=generator).requires_grad_()
    bias = torch.randn(5, dtype=torch.float64, generator=generator).requires_grad_()
    own = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
    target = torch.tensor([0, 5, 4, 5])
    assert torch.autograd.gradcheck(
        lambda h, w, b, o: linear_cross_entropy(h, w, target, b, o), (hidden, weight, bias, own)
    )


def test_finite_where_the_naive_exponential_overflows():
    hidden = torch.full((3, 4), 50.0, requires_grad=True)
    table = torch.full((2, 4), 50.0)
    table[1] = -50.0
    assert torch.isinf((hidden @ table.T).exp()).any()
    value = contrastive_loss(
        hidden, table, torch.log(torch.tensor([2.0, 1.0])), torch.tensor([0, 0, 1]), 0.01
    )
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(hidden.grad).all()


def test_duplicates_need_their_counts():
    """Leaving out log(count), or its constant, is another loss: the tests above would be blind to neither."""
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    table = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    targets = [0, 0, 1]
    expected = direct_formula(hidden, table, targets, 1.0, targets)
    index = torch.tensor(targets)
    right = contrastive_loss(
        hidden, table, torch.log(torch.tensor([2.0, 1.0], dtype=torch.float64)), index, 1.0
    )
    wrong = contrastive_loss(hidden, table, torch.zeros(2, dtype=torch.float64), index, 1.0)
    assert relative(right, expected) < 1e-14
    assert relative(wrong, expected) > 0.1


def test_bfloat16_autocast_keeps_the_value():
    """The sum and the exponentials are in float32 under autocast; only the product is rounded."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(256, 64, generator=generator)
    weight = 0.1 * torch.randn(500, 64, generator=generator)
    target = torch.randint(0, 500, (256,), generator=generator)
    exact = linear_cross_entropy(hidden, weight, target)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(hidden, weight, target)
    assert rounded.dtype == torch.float32
    assert float(rounded) == pytest.approx(float(exact), rel=2e-3)


def test_logits_are_never_stored_whole():
    """The largest tensor is a slice of the logits, whatever K is."""
    largest = 0
    original = torch.Tensor.logsumexp

    def spy(self, *args, **kwargs):
        nonlocal largest
        largest = max(largest, self.numel())
        return original(self, *args, **kwargs)

    torch.Tensor.logsumexp = spy
    try:
        K = 6000
        found = in_batch_candidates(
            np.random.default_rng(0).integers(0, 100_000, K), None, np.random.default_rng(0)
        )
        contrastive_loss(
            torch.randn(K, 4),
            torch.randn(len(found.token_C), 4),
            torch.from_numpy(found.log_count_C).float(),
            torch.from_numpy(found.index_K),
            1.0,
        )
    finally:
        torch.Tensor.logsumexp = original
    assert 0 < largest <= loss_module.SLICE_ELEMENTS < K * K
