"""The loss against the paper's formula, in float64, value and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from trainables.objectives import loss as loss_module
from trainables.objectives.candidates import negatives_of, target_candidates
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


def contrastive_loss(hidden, table, targets, pool, temperature):
    """As the learner makes it: unique candidates, their counts as bias, a position's own where the pool lacks it."""
    found = target_candidates(np.asarray(pool)).of(np.asarray(targets))
    weight = table[torch.from_numpy(found.token_C)] / temperature
    own = None
    if found.own_bias_K is not None:
        own = (hidden * table[targets]).sum(-1) / temperature + torch.from_numpy(found.own_bias_K)
    bias = torch.from_numpy(found.bias_C).to(hidden.dtype)
    index = torch.from_numpy(found.index_K)
    return linear_cross_entropy(hidden, weight, index, bias, own) + found.constant


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
    hidden = (scale * torch.randn(num_targets, hidden_size, dtype=torch.float64, generator=generator)).requires_grad_()
    table = torch.randn(vocabulary, hidden_size, dtype=torch.float64, generator=generator).requires_grad_()

    sample = negatives_of(targets, negatives, np.random.default_rng(seed)).tolist()
    assert len(sample) == (num_targets if negatives is None else min(negatives, num_targets))

    expected = direct_formula(hidden, table, targets.tolist(), temperature, sample)
    expected_gradients = torch.autograd.grad(expected, (hidden, table))

    original = loss_module.SLICE_ELEMENTS
    loss_module.SLICE_ELEMENTS = slice_elements
    try:
        value = contrastive_loss(hidden, table, targets, sample, temperature)
        gradients = torch.autograd.grad(value, (hidden, table))
    finally:
        loss_module.SLICE_ELEMENTS = original

    # The loss is a difference of two numbers of this size, so rounding is relative to them.
    magnitude = float((table[targets] * hidden).sum(1).abs().max().detach()) / temperature * num_targets
    assert float((value - expected).abs()) <= 1e-12 * max(float(expected), magnitude)
    for got, wanted, other in zip(gradients, expected_gradients, (table, hidden), strict=True):
        floor = float(other.detach().abs().max()) / temperature
        assert float((got - wanted).abs().max()) <= 1e-12 * max(float(wanted.abs().max()), floor) * num_targets


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
    for a, b in zip(torch.autograd.grad(3 * got, inputs), torch.autograd.grad(3 * expected, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_by_finite_differences():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    weight = torch.randn(5, 3, dtype=torch.float64, generator=generator).requires_grad_()
    bias = torch.randn(5, dtype=torch.float64, generator=generator).requires_grad_()
    own = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
    target = torch.tensor([0, 5, 4, 5])
    inputs = (hidden, weight, bias, own)

    def value():
        return linear_cross_entropy(hidden, weight, target, bias, own)

    for tensor, gradient in zip(inputs, torch.autograd.grad(value(), inputs), strict=True):
        with torch.no_grad():
            for place in np.ndindex(*tensor.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    tensor[place] += step
                    ends.append(float(value()))
                    tensor[place] -= step
                assert float(gradient[place]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)


def test_a_second_backward_pass_is_refused():
    """Its gradients were made in the forward pass, and have been handed out."""
    hidden = torch.randn(4, 3, requires_grad=True)
    loss = linear_cross_entropy(hidden, torch.randn(5, 3), torch.tensor([0, 1, 2, 3]))
    (2.0 * loss).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        (2.0 * loss).backward()


def test_finite_where_the_naive_exponential_overflows():
    hidden = torch.full((3, 4), 50.0, requires_grad=True)
    table = torch.full((2, 4), 50.0)
    table[1] = -50.0
    assert torch.isinf((hidden @ table.T).exp()).any()
    value = contrastive_loss(hidden, table, [0, 0, 1], [0, 0, 1], 0.01)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(hidden.grad).all()


def test_duplicates_need_their_counts():
    """Leaving out log(count), or its constant, is another loss: the tests above would be blind to neither."""
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    table = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    targets = [0, 0, 1]
    expected = direct_formula(hidden, table, targets, 1.0, targets)
    right = contrastive_loss(hidden, table, targets, targets, 1.0)
    wrong = contrastive_loss(hidden, table, targets, [0, 1], 1.0)
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


def test_no_tensor_is_larger_than_a_slice_or_an_input():
    """Whatever an operation returns, on the way forward and back: K x C logits are never stored, nor their gradient."""
    largest = 0

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    K, C, D = 6000, 5000, 4
    hidden = torch.randn(K, D, requires_grad=True)
    weight = torch.randn(C, D, requires_grad=True)
    with Spy():
        linear_cross_entropy(hidden, weight, torch.randint(0, C, (K,)), torch.zeros(C)).backward()
    assert 0 < largest <= 1.02 * loss_module.SLICE_ELEMENTS < K * C / 10


def test_bfloat16_rounds_the_factors_and_nothing_of_the_value():
    """Logits of tens: their rounding to bfloat16 alone would be a hundred times the error that is allowed."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(200, 64, generator=generator).requires_grad_()
    weight = (2 * torch.randn(300, 64, generator=generator)).requires_grad_()
    target = torch.randint(0, 300, (200,), generator=generator)
    exact = torch.nn.functional.cross_entropy(
        hidden.bfloat16().double() @ weight.bfloat16().double().T, target, reduction="sum"
    )
    with torch.autocast("cpu", torch.bfloat16):
        value = linear_cross_entropy(hidden, weight, target)
    gradients = torch.autograd.grad(value, (hidden, weight))
    assert float(value) == pytest.approx(float(exact), rel=1e-6)
    for got, wanted in zip(gradients, torch.autograd.grad(exact, (hidden, weight)), strict=True):
        assert got.dtype == torch.float32
        assert relative(got, wanted) < 0.01


def test_evaluation_makes_no_gradients():
    """Without gradients one product of three is made."""
    hidden, weight = torch.randn(40, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    target = torch.randint(0, 30, (40,))
    custom = {torch.ops.aten.addmm_: lambda _, a, b, *args, **kwargs: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=custom) as counter, torch.no_grad():
        value = linear_cross_entropy(hidden, weight, target)
    assert counter.get_total_flops() == 2 * 40 * 30 * 8
    assert float(value) == pytest.approx(float(linear_cross_entropy(hidden, weight, target)))
