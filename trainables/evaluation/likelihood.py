"""Likelihood of held-out text: what a model's whole distribution over the vocabulary is worth, in nats a token.

A decoder's is that of every token of a sequence but the first, given the tokens before it. An encoder's is that of the
tokens that recovery masks (:mod:`trainables.evaluation.recovery`), given all the others: a pseudo-likelihood, which is
not comparable with a decoder's. A headless model without a head is scored by its input embedding, which was
trained to tell the tokens of a batch apart and not to give probabilities: restore its head first (in arXiv 2309.08351
that takes Pythia-70M's perplexity on LAMBADA from 524 to 154).

Perplexities depend on the tokenizer; a decoder's bits per byte do not (arXiv 2101.00027, section 3.1). An encoder's do:
the smaller its tokens, the more often it sees the rest of a masked word. A separator or unknown token costs nats but
stands for no bytes.

Letters: N sequences, L tokens each, T targets a sequence, K targets in all, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from trainables.corpora.stream.packed import Manifest
from trainables.evaluation.recovery import HELD_OUT_SEED
from trainables.models.learner import Learner
from trainables.objectives.corruption import masked_positions

LARGEST = 1e30
"""What a perplexity, or bits per byte, comes to at most: a record holds no infinity. A model of NaN has it too."""

_SLICE_ELEMENTS = 1 << 24


class TargetNats(NamedTuple):
    """Held-out tokens and what each costs."""

    nats_K: NDArray[np.float64]
    """Negative log-likelihood over the whole vocabulary; infinite where the model gives NaN."""
    target_K: NDArray[np.int64]
    """The tokens."""
    sequence_K: NDArray[np.int64]
    """Which sequence each is in, ascending."""


@torch.no_grad()
def target_nats(
    learner: Learner, token_NL: NDArray[np.int64], manifest: Manifest, mask_rate: float, device: torch.device
) -> TargetNats:
    """Negative log-likelihoods of held-out tokens.

    Args:
        learner: scores with its head, or with its input embedding where it has none.
        token_NL: held-out sequences, (N, L).
        manifest: of the corpus.
        mask_rate: share of the tokens that an encoder must recover, as for recovery.
        device: where the learner is.
    """
    input_NL, offset = token_NL, 1
    position_NT = np.broadcast_to(np.arange(1, token_NL.shape[1]), (len(token_NL), token_NL.shape[1] - 1))
    if learner.objective.task == "masked":
        number_N = np.arange(len(token_NL), dtype=np.int64)
        position_NT = masked_positions(token_NL, number_N, HELD_OUT_SEED, mask_rate, manifest.special_tokens)
        input_NL, offset = token_NL.copy(), 0
        np.put_along_axis(input_NL, position_NT, manifest.required_mask_token, axis=1)

    sequence_K, column_K = np.nonzero(
        position_NT > 0
    )  # recovery leaves the first position out, for decoders' sake
    position_K = position_NT[sequence_K, column_K]
    target_K = token_NL[sequence_K, position_K]
    nats_K = np.empty(len(target_K))
    rows = max(1, _SLICE_ELEMENTS // (token_NL.shape[1] * learner.config.hidden_size * 16))
    for start in range(0, len(token_NL), rows):
        hidden_NLD = learner.hidden(torch.from_numpy(input_NL[start : start + rows]).to(device))
        part = slice(*np.searchsorted(sequence_K, [start, start + rows]))
        hidden_KD = hidden_NLD[sequence_K[part] - start, position_K[part] - offset]
        nats_K[part] = _nats_in_slices(learner, hidden_KD, torch.from_numpy(target_K[part]).to(device))
    return TargetNats(np.nan_to_num(nats_K, nan=np.inf, posinf=np.inf), target_K, sequence_K)


def _nats_in_slices(learner: Learner, hidden_KD: torch.Tensor, target_K: torch.Tensor) -> NDArray[np.float64]:
    rows = max(1, _SLICE_ELEMENTS // learner.config.vocab_size)
    nats = [
        F.cross_entropy(learner.logits(hidden).float(), target, reduction="none")
        for hidden, target in zip(torch.split(hidden_KD, rows), torch.split(target_K, rows), strict=True)
    ]
    return np.asarray(torch.cat(nats).cpu().numpy(), dtype=np.float64)


def perplexity(mean_nats: float) -> float:
    """exp of the mean nats a token, at most :data:`LARGEST`."""
    return math.exp(min(mean_nats, math.log(LARGEST)))


def bits_per_byte(nats_K: NDArray[np.float64], bytes_K: NDArray[np.int64]) -> float:
    """All bits over all UTF-8 bytes of the tokens, at most :data:`LARGEST`.

    Text of unknown tokens alone, as of a script that a pretrained tokenizer lacks, has no bytes: the largest, too.
    """
    num_bytes = int(bytes_K.sum())
    return min(float(nats_K.sum()) / math.log(2) / num_bytes, LARGEST) if num_bytes else LARGEST
