"""Minimal pairs: does the model find the grammatical sentence likelier than its ungrammatical twin?

Encoders score by pseudo-log-likelihood, each token masked in turn (arXiv 1910.14659); decoders by log-likelihood.
A pair whose scores are equal counts as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.stream.packed import Manifest
from trainables.models.learner import Learner

_ROWS = 256


@torch.no_grad()
def log_likelihoods(
    learner: Learner, sentences: Sequence[Sequence[int]], manifest: Manifest, device: torch.device
) -> NDArray[np.float64]:
    """Each sentence's (pseudo-)log-likelihood over the whole vocabulary, in nats.

    Args:
        learner: scores with its head, or with its input embedding where it has none.
        sentences: token ids, without special tokens.
        manifest: of the corpus.
        device: where the learner is.
    """
    separator = manifest.separator_token
    limit = manifest.sequence_length - 2
    framed = [np.array([separator, *sentence[:limit], separator], dtype=np.int64) for sentence in sentences]
    if learner.objective.task == "causal":
        return _causal(learner, framed, manifest, device)
    score = np.zeros(len(framed))
    owners, inputs, positions, targets = [], [], [], []
    for owner, tokens in enumerate(framed):
        for position in range(1, len(tokens) - 1):
            masked = tokens.copy()
            masked[position] = manifest.required_mask_token
            owners.append(owner)
            inputs.append(masked)
            positions.append(position)
            targets.append(int(tokens[position]))
    # Similar lengths together: little padding.
    order = np.argsort([len(tokens) for tokens in inputs], kind="stable")
    for start in range(0, len(order), _ROWS):
        part = order[start : start + _ROWS]
        token_NL, mask_NL = _pad([inputs[i] for i in part], manifest, device)
        hidden_NLD = learner.hidden(token_NL, mask_NL)
        hidden_KD = hidden_NLD[torch.arange(len(part)), [positions[i] for i in part]]
        log_probability = learner.logits(hidden_KD).float().log_softmax(dim=-1)
        target_K = torch.tensor([targets[i] for i in part], device=device)
        taken = log_probability.gather(1, target_K[:, None])[:, 0].cpu().numpy()
        np.add.at(score, [owners[i] for i in part], taken)
    return score


def _causal(
    learner: Learner, framed: list[NDArray[np.int64]], manifest: Manifest, device: torch.device
) -> NDArray[np.float64]:
    score = np.zeros(len(framed))
    order = np.argsort([len(tokens) for tokens in framed], kind="stable")
    for start in range(0, len(order), _ROWS):
        part = order[start : start + _ROWS]
        token_NL, mask_NL = _pad([framed[i] for i in part], manifest, device)
        hidden_NLD = learner.hidden(token_NL, mask_NL)
        scored_NL = mask_NL[:, 1:].bool()
        log_probability = learner.logits(hidden_NLD[:, :-1][scored_NL]).float().log_softmax(dim=-1)
        target_K = token_NL[:, 1:][scored_NL]
        taken = torch.zeros(scored_NL.shape, device=device)
        taken[scored_NL] = log_probability.gather(1, target_K[:, None])[:, 0]
        score[part] = taken.sum(dim=1).cpu().numpy()
    return score


def _pad(rows: list[NDArray[np.int64]], manifest: Manifest, device: torch.device) -> tuple[Tensor, Tensor]:
    length = max(len(row) for row in rows)
    token_NL = np.full((len(rows), length), manifest.pad_token, dtype=np.int64)
    mask_NL = np.zeros((len(rows), length), dtype=np.int64)
    for index, row in enumerate(rows):
        token_NL[index, : len(row)] = row
        mask_NL[index, : len(row)] = 1
    return torch.from_numpy(token_NL).to(device), torch.from_numpy(mask_NL).to(device)
