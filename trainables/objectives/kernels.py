"""The softmax of the loss as one kernel of Triton, which must be installed. Letters: K positions, C candidates."""

import torch
import triton  # type: ignore[import-untyped,import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-untyped,import-not-found,unused-ignore]
from torch import Tensor

LARGEST_BLOCK = 4096  # logits that one program holds in registers at a time


def softmax_cross_entropy_(
    logits_KC: Tensor,
    target_K: Tensor,
    bias_C: Tensor | None,
    own_logit_K: Tensor | None,
    loss_K: Tensor,
    grad_own_K: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Make cross-entropies of logits, and their gradient in the memory of the logits, as ``linear_cross_entropy``.

    Each logit is read twice, the second time from the nearest cache where a row is short, and each gradient written
    once. All arithmetic is in float32. Returns softmax minus one-hot, (K, C), a view of the logits' memory.

    Args:
        logits_KC: without bias, in any floating dtype; overwritten. Every row, the last one too, has room for C
            rounded up to a multiple of 16, and what is in it is overwritten.
        loss_K: float32; written.
        grad_own_K: gradient of the own logits, float32; written, and needed with them.
        dtype: of the gradient, no wider than that of the logits.
    """
    K, C = logits_KC.shape
    assert logits_KC.stride(0) >= C + -C % 16
    if bias_C is not None:
        bias_C = torch.nn.functional.pad(bias_C, (0, -C % 16))
    # A row's gradient begins where its logits do, so it takes the first half of them if its numbers are half as wide.
    gradient_KC = logits_KC.view(dtype)[:, :C] if dtype != logits_KC.dtype else logits_KC
    block = min(max(triton.next_power_of_2(C), 128), LARGEST_BLOCK)
    _softmax_cross_entropy[(K,)](
        logits_KC,
        logits_KC.stride(0),
        gradient_KC,
        gradient_KC.stride(0),
        target_K,
        bias_C,
        own_logit_K,
        loss_K,
        grad_own_K,
        C,
        HAS_BIAS=bias_C is not None,
        HAS_OWN=own_logit_K is not None,
        BLOCK=block,
        num_warps=max(1, block // 512),
    )
    return gradient_KC


@triton.jit(do_not_specialize=["C"])  # type: ignore[untyped-decorator,unused-ignore]  # C differs from step to step
def _softmax_cross_entropy(  # type: ignore[no-untyped-def,unused-ignore]
    logits, logits_stride, gradient, gradient_stride, target_K, bias_C, own_logit_K, loss_K, grad_own_K, C,
    HAS_BIAS: tl.constexpr, HAS_OWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * logits_stride
    gradient += row * gradient_stride
    target = tl.load(target_K + row)
    column = tl.arange(0, BLOCK)
    # A mask that ends at a multiple of 16 leaves loads and stores in vectors; one that ends at C breaks them up.
    end = tl.cdiv(C, 16) * 16

    # The running maximum starts finite: a block of -inf alone must not make -inf minus -inf.
    largest = tl.full((), -3.0e38, tl.float32)
    total = tl.full((), 0.0, tl.float32)
    target_logit = tl.full((), 0.0, tl.float32)
    if HAS_OWN:
        own_logit = tl.load(own_logit_K + row).to(tl.float32)
        largest = tl.maximum(largest, own_logit)
        total = tl.exp(own_logit - largest)
        target_logit = own_logit
    if target < C:
        target_logit = tl.load(logits + target).to(tl.float32)
        if HAS_BIAS:
            target_logit += tl.load(bias_C + target).to(tl.float32)

    for start in range(0, C, BLOCK):
        inside = start + column < end
        x = tl.load(logits + start + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias_C + start + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(start + column < C, x, -float("inf"))
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
        largest = larger
    log_total = largest + tl.log(total)
    tl.store(loss_K + row, log_total - target_logit)
    if HAS_OWN:
        tl.store(grad_own_K + row, tl.exp(own_logit - log_total) - tl.where(target == C, 1.0, 0.0))

    for start in range(0, C, BLOCK):
        inside = start + column < end
        x = tl.load(logits + start + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias_C + start + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(start + column < C, x, -float("inf"))
        probability = tl.exp(x - log_total)
        # Narrower gradients overwrite logits of this block that other threads may yet have to read.
        tl.debug_barrier()
        tl.store(
            gradient + start + column,
            (probability - tl.where(start + column == target, 1.0, 0.0)).to(gradient.dtype.element_ty),
            mask=inside,
        )
