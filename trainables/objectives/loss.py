"""The one loss: a linear cross-entropy of hidden states against a set of candidates.

Letters: K target positions, D hidden size, C candidates.

The gradients are made in the forward pass, slice by slice (as Liger-Kernel does, arXiv 2410.10989): neither K x C
logits nor their gradient are ever stored, and no logit is computed twice. Three matrix products of 2 K C D FLOPs are
the floor; here they are nearly all of the time. ``torch.nn.functional.linear_cross_entropy`` computes the same, but it
needs torch 2.13, has no candidates of a position's own, is 2 to 4 times slower than stored logits for a whole
vocabulary on a CPU, and its value is off under bf16 autocast.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from trainables.objectives.learner import CandidateBatch

SLICE_ELEMENTS = 1 << 21
"""Logits held at a time on a CPU, 8 MB in float32: from 1 MB to 16 MB none was faster on an idle machine."""

CUDA_SLICE_ELEMENTS = 1 << 27  # logits held at a time on a GPU, at most: 512 MB in float32


def linear_cross_entropy(
    hidden_KD: Tensor,
    weight_CD: Tensor,
    target_K: Tensor,
    bias_C: Tensor | None = None,
    own_logit_K: Tensor | None = None,
) -> Tensor:
    """Sum over positions of ``logsumexp(logits) - logits[target]``, with ``logits = hidden @ weight.T + bias``.

    Under autocast the factors of the products have its dtype. Logits, losses and the sums over positions and slices
    are in float32 or wider whatever the factors are, and gradients have the dtype of what they are the gradient of.
    Differentiable once, in all but ``target_K``.

    Args:
        target_K: index of the position's target among the candidates; ``C`` where it is the position's own.
        bias_C: added to the logits; ``-inf`` takes a candidate out, but not all of them.
        own_logit_K: logit of one more candidate that only this position has; ``-inf`` where it has none.
    """
    device = hidden_KD.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = torch.promote_types(hidden_KD.dtype, weight_CD.dtype)
    if not torch.is_grad_enabled():  # else products would be made for gradients that nobody can ask for
        hidden_KD, weight_CD = hidden_KD.detach(), weight_CD.detach()
    loss: Tensor = _LinearCrossEntropy.apply(hidden_KD, weight_CD, target_K, bias_C, own_logit_K, dtype)  # type: ignore[no-untyped-call]
    return loss


def candidate_cross_entropy(found: CandidateBatch, hidden_KD: Tensor, candidate_CD: Tensor, own_KD: Tensor) -> Tensor:
    """The cross-entropies against candidates, summed; ``own_KD`` has no rows where no position has one of its own."""
    own_logit_K = None
    if found.own_bias_K is not None:
        own_logit_K = (hidden_KD * own_KD).sum(-1) + found.own_bias_K
    loss = linear_cross_entropy(hidden_KD, candidate_CD, found.index_K, found.bias_C, own_logit_K)
    return loss + found.constant


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_CD: Tensor,
        target_K: Tensor,
        bias_C: Tensor | None,
        own_logit_K: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        (K, D), C, device = hidden_KD.shape, len(weight_CD), hidden_KD.device
        wide = torch.promote_types(dtype, torch.float32)
        needs_hidden, needs_weight, _, needs_bias, *_ = ctx.needs_input_grad
        grad_hidden_KD = torch.empty(K, D, dtype=hidden_KD.dtype, device=device) if needs_hidden else None
        grad_weight_CD = torch.zeros(C, D, dtype=wide, device=device) if needs_weight else None
        grad_bias_C = torch.zeros(C, dtype=wide, device=device) if needs_bias else None
        grad_own_K = None if own_logit_K is None else torch.empty(K, dtype=wide, device=device)
        loss_K = torch.empty(K, dtype=wide, device=device)

        fused = _has_row_kernel(device.type, wide)
        # A CPU rounds the product of narrow factors to their dtype, so there the logits are of widened factors.
        factor = dtype if device.type == "cuda" else wide
        narrow_CD = weight_CD.to(dtype)
        factor_CD = narrow_CD.to(factor)
        rows = min(slice_rows(C, D, device), max(K, 1))
        # Rows that start at multiples of 256 bytes, as fast matrix products want them.
        buffer = torch.empty(rows, -(-C // 64) * 64, dtype=wide, device=device)
        with torch.autocast(device.type, enabled=False):
            for start in range(0, K, rows):
                part = slice(start, start + rows)
                hidden, target = hidden_KD[part].to(dtype), target_K[part]
                own_logit = None if own_logit_K is None else own_logit_K[part]
                grad_own = None if grad_own_K is None else grad_own_K[part]
                logits = buffer[: len(hidden), :C]
                if fused:
                    from trainables.objectives.kernels import softmax_cross_entropy_

                    _multiply(hidden.to(factor), factor_CD.T, logits)
                    grad_logits = softmax_cross_entropy_(
                        logits, target, bias_C, own_logit, loss_K[part], grad_own, dtype
                    )
                else:
                    if bias_C is not None:
                        logits.copy_(bias_C)
                    _multiply(hidden.to(factor), factor_CD.T, logits, add=bias_C is not None)
                    whole = buffer[: len(hidden)]
                    whole[:, C:] = -torch.inf
                    _softmax_cross_entropy_(whole, C, target, own_logit, loss_K[part], grad_own)
                    grad_logits = logits.to(dtype)
                if grad_bias_C is not None:
                    grad_bias_C += grad_logits.sum(0, dtype=wide)
                if grad_hidden_KD is not None:
                    _multiply(grad_logits, narrow_CD, grad_hidden_KD[part])
                if grad_weight_CD is not None:
                    _multiply(grad_logits.T, hidden, grad_weight_CD, add=True)

        ctx.save_for_backward(grad_hidden_KD, grad_weight_CD, grad_bias_C, grad_own_K)
        return loss_K.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        # One element, not none: it takes part in type promotion, so its own precision is not lost to a narrow gradient.
        factor_1 = grad_loss.reshape(1)
        # In place, as these are ours: a second backward pass through the same graph is refused by autograd.
        hidden, weight, bias, own = (None if grad is None else grad.mul_(factor_1) for grad in ctx.saved_tensors)
        return hidden, weight, None, bias, own, None


def _multiply(a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
    """Put ``a @ b`` into ``out``, or add it; sums are in the wider of the dtypes of the factors and of ``out``."""
    if a.dtype == out.dtype:
        out.addmm_(a, b, beta=int(add))
    elif a.device.type == "cuda":
        torch.addmm(out, a, b, beta=int(add), out_dtype=out.dtype, out=out)
    elif add:
        out += a @ b
    else:
        out.copy_(a @ b)


def _softmax_cross_entropy_(
    logits_KC: Tensor, C: int, target_K: Tensor, own_logit_K: Tensor | None, loss_K: Tensor, grad_own_K: Tensor | None
) -> None:
    """Replace logits by their gradient, softmax minus one-hot, and write losses and the own logits' gradient.

    Columns from C on are ``-inf``: all of a buffer's width is contiguous, a part of it would be copied.
    """
    index_K1 = target_K.clamp(max=C - 1)[:, None]
    target_logit_K = logits_KC.gather(1, index_K1)[:, 0]
    largest_K = logits_KC.amax(1)
    torch.softmax(logits_KC, 1, out=logits_KC)
    # The largest probability is 1 / sum(exp(logits - largest)): one pass of exponentials gives softmax and logsumexp.
    log_total_K = largest_K - logits_KC.amax(1).log_()
    one_K = torch.ones_like(loss_K)
    if own_logit_K is not None:
        assert grad_own_K is not None
        own_logit_K = own_logit_K.to(loss_K.dtype)
        is_own_K = target_K == C
        log_candidates_K, log_total_K = log_total_K, torch.logaddexp(log_total_K, own_logit_K)
        logits_KC *= (log_candidates_K - log_total_K).exp_()[:, None]
        torch.sub((own_logit_K - log_total_K).exp_(), is_own_K.to(loss_K.dtype), out=grad_own_K)
        target_logit_K = torch.where(is_own_K, own_logit_K, target_logit_K)
        one_K = one_K.masked_fill_(is_own_K, 0.0)
    logits_KC.scatter_add_(1, index_K1, -one_K[:, None])
    torch.sub(log_total_K, target_logit_K, out=loss_K)


def slice_rows(C: int, D: int, device: torch.device) -> int:
    """Positions in a slice.

    On a CPU the logits of a slice fit its cache, but no slice has fewer rows than make a fast product, which for a
    large vocabulary is the memory of its weights. On a GPU the hidden states' gradient, (rows, D), is one full
    wave of 128 x 256 tiles, the largest that the vendor's products use: fewer rows leave processors idle.
    """
    if device.type != "cuda":
        return max(1, SLICE_ELEMENTS // C, D)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    wave = max(1, processors // -(-D // 256))
    return 128 * max(1, min(wave, CUDA_SLICE_ELEMENTS // C // 128))


@cache
def _has_row_kernel(device_type: str, dtype: torch.dtype) -> bool:
    return device_type == "cuda" and dtype == torch.float32 and find_spec("triton") is not None
