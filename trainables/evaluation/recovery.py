"""Recovery: how well held-out tokens are found again among the whole vocabulary.

Letters: N sequences, L tokens each, T targets a sequence, K targets in all, D hidden size, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.stream.packed import Manifest
from trainables.models.learner import Learner
from trainables.objectives.corruption import masked_positions

HELD_OUT_SEED = 20_230_915
"""Held-out targets are the same for every arm, trial and seed."""

_SLICE_ELEMENTS = 1 << 24


def target_ranks(logits_KV: Tensor, target_K: Tensor) -> Tensor:
    """Rank of each target among all tokens, 1 the best, (K,). Ties count against the target.

    A collapsed model, which scores all tokens alike or by NaN, thus gets the last rank and not the first.
    """
    target_logit_K1 = logits_KV.gather(1, target_K[:, None])
    return (~(logits_KV < target_logit_K1)).sum(dim=1)


@torch.no_grad()
def recovery_ranks(
    learner: Learner, token_NL: NDArray[np.int64], manifest: Manifest, mask_rate: float, device: torch.device
) -> NDArray[np.int64]:
    """Ranks of the same held-out tokens for an encoder, which sees both sides, and a decoder, which sees the left.

    An encoder finds all targets masked. Targets at a decoder's first position are left out for both.

    Args:
        learner: scores with its head, or with its input embedding where it has none.
        token_NL: held-out sequences, (N, L).
        manifest: of the corpus.
        mask_rate: share of the tokens that are targets.
        device: where the learner is.

    Returns:
        Ranks, (N, T), 1 the best; 0 where a target is left out.
    """
    number_N = np.arange(len(token_NL), dtype=np.int64)
    position_NT = masked_positions(token_NL, number_N, HELD_OUT_SEED, mask_rate, manifest.special_tokens)
    target_NT = np.take_along_axis(token_NL, position_NT, axis=1)
    input_NL, offset = token_NL, 1
    if learner.objective.task == "masked":
        input_NL, offset = token_NL.copy(), 0
        np.put_along_axis(input_NL, position_NT, manifest.required_mask_token, axis=1)

    ranks_NT = np.zeros(position_NT.shape, dtype=np.int64)
    usable_NT = position_NT > 0
    rows = max(1, _SLICE_ELEMENTS // (token_NL.shape[1] * learner.config.hidden_size * 16))
    for start in range(0, len(token_NL), rows):
        part = slice(start, start + rows)
        hidden_NLD = learner.hidden(torch.from_numpy(input_NL[part]).to(device))
        row, column = np.nonzero(usable_NT[part])
        hidden_KD = hidden_NLD[row, position_NT[part][row, column] - offset]
        target_K = torch.from_numpy(target_NT[part][row, column]).to(device)
        ranks_NT[part][row, column] = _ranks_in_slices(learner, hidden_KD, target_K)
    return ranks_NT


def _ranks_in_slices(learner: Learner, hidden_KD: Tensor, target_K: Tensor) -> NDArray[np.int64]:
    rows = max(1, _SLICE_ELEMENTS // learner.config.vocab_size)
    ranks = [
        target_ranks(learner.logits(hidden).float(), target)
        for hidden, target in zip(torch.split(hidden_KD, rows), torch.split(target_K, rows), strict=True)
    ]
    return np.asarray(torch.cat(ranks).cpu().numpy(), dtype=np.int64)
