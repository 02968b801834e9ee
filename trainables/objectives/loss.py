"""The one loss: a linear cross-entropy of hidden states against a set of candidates.

Letters: K target positions, D hidden size, C candidates.

``torch.nn.functional.linear_cross_entropy`` computes the same without bias or with one, but it needs torch 2.13, has
no candidates of a position's own, is 2 to 4 times slower than stored logits for a whole vocabulary on a CPU, and its
value is off under bf16 autocast. Here the gradients are made in the forward pass, slice by slice (as Liger-Kernel
does, arXiv 2410.10989), so neither K x C logits nor their gradient are ever stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SLICE_ELEMENTS = 1 << 22
"""Logits held at a time. 16 MB in float32: larger slices were no faster on a CPU."""


def linear_cross_entropy(
    hidden_KD: Tensor,
    weight_CD: Tensor,
    target_K: Tensor,
    bias_C: Tensor | None = None,
    own_logit_K: Tensor | None = None,
) -> Tensor:
    """Sum over positions of ``logsumexp(logits) - logits[target]``, with ``logits = hidden @ weight.T + bias``.

    Args:
        hidden_KD: hidden states at the target positions, (K, D).
        weight_CD: one row per candidate, (C, D).
        target_K: index of the position's target among the candidates, (K,); ``C`` where it is the position's own.
        bias_C: added to the logits, (C,).
        own_logit_K: logit of one more candidate that only this position has, (K,); ``-inf`` where it has none.

    Returns:
        The summed loss, a scalar, in float32 or wider. Differentiable once, in all but ``target_K``.
    """
    if torch.is_autocast_enabled(hidden_KD.device.type):
        dtype = torch.get_autocast_dtype(hidden_KD.device.type)
        hidden_KD, weight_CD = hidden_KD.to(dtype), weight_CD.to(dtype)
    loss: Tensor = _LinearCrossEntropy.apply(hidden_KD, weight_CD, target_K, bias_C, own_logit_K)  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_CD: Tensor,
        target_K: Tensor,
        bias_C: Tensor | None,
        own_logit_K: Tensor | None,
    ) -> Tensor:
        K, C = hidden_KD.shape[0], weight_CD.shape[0]
        wide = torch.promote_types(hidden_KD.dtype, torch.float32)
        loss = torch.zeros((), dtype=wide, device=hidden_KD.device)
        grad_hidden_KD = torch.empty_like(hidden_KD)
        grad_weight_CD = torch.zeros_like(weight_CD, dtype=wide)
        grad_bias_C = None if bias_C is None else torch.zeros_like(bias_C, dtype=wide)
        grad_own_K = None if own_logit_K is None else torch.empty_like(own_logit_K, dtype=wide)

        with torch.autocast(hidden_KD.device.type, enabled=False):
            rows = max(1, SLICE_ELEMENTS // C)
            for start in range(0, K, rows):
                part = slice(start, start + rows)
                hidden, target = hidden_KD[part], target_K[part]
                logits = (hidden @ weight_CD.T).to(wide)
                if bias_C is not None:
                    logits += bias_C
                log_total = logits.logsumexp(dim=1)
                target_logit = logits.gather(1, target.clamp(max=C - 1)[:, None])[:, 0]
                if own_logit_K is not None:
                    own_logit = own_logit_K[part].to(wide)
                    log_total = torch.logaddexp(log_total, own_logit)
                    target_logit = torch.where(target == C, own_logit, target_logit)
                    assert grad_own_K is not None
                    grad_own_K[part] = (own_logit - log_total).exp_() - (target == C).to(wide)
                loss += (log_total - target_logit).sum()

                # From here the logits become their own gradient: softmax minus one-hot.
                grad_logits = logits.sub_(log_total[:, None]).exp_()
                among = -(target < C).to(wide)
                grad_logits.scatter_add_(1, target.clamp(max=C - 1)[:, None], among[:, None])
                if grad_bias_C is not None:
                    grad_bias_C += grad_logits.sum(0)
                grad_narrow = grad_logits.to(hidden.dtype)
                grad_hidden_KD[part] = grad_narrow @ weight_CD
                if wide == hidden.dtype:
                    grad_weight_CD.addmm_(grad_narrow.T, hidden)
                else:
                    grad_weight_CD += grad_narrow.T @ hidden

        ctx.save_for_backward(grad_hidden_KD, grad_weight_CD.to(weight_CD.dtype), grad_bias_C, grad_own_K)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, own = (
            None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors
        )
        return hidden, weight, None, bias, own
