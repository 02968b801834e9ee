"""The Triton kernel of the loss, in Triton's interpreter on the CPU, against float64."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.repository import REPOSITORY

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

if os.environ.get("TRITON_INTERPRET") != "1":
    # Triton reads the variable when it is imported, and the interpreter must not be left on for other tests.
    @pytest.mark.slow
    def test_kernels_in_the_interpreter():
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

else:
    import torch

    from trainables.objectives import kernels
    from trainables.objectives import loss as loss_module
    from trainables.objectives.kernels import softmax_cross_entropy_
    from trainables.objectives.loss import linear_cross_entropy

    def brute_force(logits, target, bias, own):
        """Losses, and gradients of the logits and of the own logits, by autograd in float64."""
        logits = logits.double().requires_grad_()
        scores = logits if bias is None else logits + bias.double()
        K = len(logits)
        last = torch.full((K,), -torch.inf, dtype=torch.float64) if own is None else own.double()
        last = last.clone().requires_grad_()
        losses = torch.nn.functional.cross_entropy(torch.cat([scores, last[:, None]], 1), target, reduction="none")
        grad_logits, grad_own = torch.autograd.grad(losses.sum(), (logits, last))
        return losses.detach(), grad_logits, grad_own.nan_to_num(0.0)

    def make(K, C, dtype, with_bias, with_own, seed=0, scale=3.0, apart=0):
        generator = torch.Generator().manual_seed(seed)
        buffer = torch.full((K, C + -C % 16 + apart), torch.nan, dtype=dtype)
        logits = buffer[:, :C]
        logits.copy_(scale * torch.randn(K, C, generator=generator))
        bias = torch.randn(C, generator=generator) if with_bias else None
        target = torch.randint(0, C, (K,), generator=generator)
        own = None
        if with_own:
            own = torch.where(torch.arange(K) % 3 == 0, -torch.inf, torch.randn(K, generator=generator))
            target[1::3] = C
        return logits, target, bias, own

    def check(logits, target, bias, own, dtype, tolerance):
        K = len(logits)
        expected = brute_force(logits, target, bias, own)
        losses = torch.full((K,), torch.nan)
        grad_own = None if own is None else torch.full((K,), torch.nan)
        gradient = softmax_cross_entropy_(logits, target, bias, own, losses, grad_own, dtype)
        assert gradient.dtype == dtype
        assert gradient.data_ptr() == logits.data_ptr(), "not in place"
        torch.testing.assert_close(losses.double(), expected[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), expected[1], rtol=tolerance, atol=1e-6)
        if grad_own is not None:
            torch.testing.assert_close(grad_own.double(), expected[2], rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("with_own", [False, True], ids=["", "own"])
    @pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
    @pytest.mark.parametrize("C", [1, 2, 127, 128, 129, 1000])
    def test_it_is_the_cross_entropy(C, with_bias, with_own):
        check(*make(7, C, torch.float32, with_bias, with_own), torch.float32, 2e-5)

    @pytest.mark.parametrize(
        ("logits_dtype", "dtype"),
        [
            (torch.float32, torch.float32),
            (torch.float32, torch.bfloat16),
            (torch.float32, torch.float16),
            (torch.bfloat16, torch.bfloat16),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("C", [5, 300, 1024, 1100])
    def test_rows_longer_than_a_block_and_narrow_gradients(monkeypatch, C, logits_dtype, dtype):
        """Several blocks a row, rows apart: a narrow gradient must not run over logits that are still to be read."""
        monkeypatch.setattr(kernels, "LARGEST_BLOCK", 256)
        rounding = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}[dtype]
        check(*make(5, C, logits_dtype, True, True, apart=9), dtype, rounding)

    def test_values_that_overflow_an_exponential():
        """Logits of thousands, either sign, with a whole block of -inf and a target of probability zero."""
        logits, target, bias, own = make(6, 700, torch.float32, True, True, scale=4000.0)
        bias[:600] = -torch.inf
        target[target < 700] = 650
        own[2] = 90_000.0
        assert torch.isinf(logits.exp()).any()
        expected, _, _ = brute_force(logits, target, bias, own)
        assert expected.max() > 1000
        losses, grad_own = torch.empty(6), torch.empty(6)
        gradient = softmax_cross_entropy_(logits, target, bias, own, losses, grad_own, torch.float32)
        torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-2)
        assert torch.isfinite(gradient).all()
        assert torch.isfinite(grad_own).all()
        assert (gradient[:, :600] == 0).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("options", [(False, False), (True, False), (True, True)], ids=str)
    def test_the_loss_through_the_kernel_is_the_loss_without(monkeypatch, options, dtype):
        """The path that a GPU takes, slices and all, against plain PyTorch in float64."""
        K, C, D = 50, 37, 16
        _, target, bias, own = make(K, C, torch.float32, *options)
        generator = torch.Generator().manual_seed(3)
        hidden, weight = torch.randn(K, D, generator=generator), torch.randn(C, D, generator=generator)
        if dtype != torch.float32:  # the products' factors are rounded, nothing else
            hidden, weight = hidden.to(dtype).float(), weight.to(dtype).float()
        monkeypatch.setattr(loss_module, "SLICE_ELEMENTS", 7 * C)  # more rows than half of D

        def loss_and_gradients(precision):
            given = [None if x is None else x.to(precision) for x in (hidden, weight, bias, own)]
            inputs = [x.clone().requires_grad_() for x in given if x is not None]
            queue = iter(inputs)
            h, w, b, o = (None if x is None else next(queue) for x in given)
            value = linear_cross_entropy(h, w, target, b, o)
            return value.detach(), torch.autograd.grad(2 * value, inputs)

        exact, exact_gradients = loss_and_gradients(torch.float64)
        monkeypatch.setattr(loss_module, "_has_row_kernel", lambda *_: True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            value, gradients = loss_and_gradients(torch.float32)
        torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=0)
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        for got, wanted in zip(gradients, exact_gradients, strict=True):
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max()))
