"""(Pseudo-)log-likelihoods of sentences.

Encoders score by pseudo-log-likelihood, each token masked in turn (arXiv 1910.14659); decoders by log-likelihood.

Letters: S sentences, N rows of a batch, L tokens each, K scored positions, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.stream.manifest import Manifest
from trainables.models.config import Task
from trainables.objectives.learner import Learner

ROWS = 256  # of a batch


@torch.no_grad()
def log_likelihoods(learner: Learner, sentences: Sequence[Sequence[int]], manifest: Manifest) -> NDArray[np.float64]:
    """(Pseudo-)log-likelihoods over the whole vocabulary, in nats, (S,), of sentences without special tokens."""
    framed = _framed(sentences, manifest)
    if learner.objective.task == "causal":
        return _causal(learner, framed, manifest)
    device = learner.embedding_VD.device
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
    for part in _batches([len(tokens) for tokens in inputs]):
        token_NL, mask_NL = _pad([inputs[i] for i in part], manifest, device)
        hidden_NLD = learner.hidden(token_NL, mask_NL)
        hidden_KD = hidden_NLD[torch.arange(len(part)), [positions[i] for i in part]]
        log_probability = learner.logits(hidden_KD).float().log_softmax(dim=-1)
        target_K = torch.tensor([targets[i] for i in part], device=device)
        taken = log_probability.gather(1, target_K[:, None])[:, 0].cpu().numpy()
        np.add.at(score, [owners[i] for i in part], taken)
    return score


def _causal(learner: Learner, framed: list[NDArray[np.int64]], manifest: Manifest) -> NDArray[np.float64]:
    score = np.zeros(len(framed))
    for part in _batches([len(tokens) for tokens in framed]):
        token_NL, mask_NL = _pad([framed[i] for i in part], manifest, learner.embedding_VD.device)
        hidden_NLD = learner.hidden(token_NL, mask_NL)
        scored_NL = mask_NL[:, 1:].bool()
        log_probability = learner.logits(hidden_NLD[:, :-1][scored_NL]).float().log_softmax(dim=-1)
        target_K = token_NL[:, 1:][scored_NL]
        taken = torch.zeros(scored_NL.shape, device=token_NL.device)
        taken[scored_NL] = log_probability.gather(1, target_K[:, None])[:, 0]
        score[part] = taken.sum(dim=1).cpu().numpy()
    return score


def passed_tokens(sentences: Sequence[Sequence[int]], task: Task, manifest: Manifest) -> int:
    """Tokens, padding too, that :func:`log_likelihoods` passes through a model of the task."""
    length_S = np.array([len(tokens) for tokens in _framed(sentences, manifest)])
    lengths = length_S if task == "causal" else np.repeat(length_S, length_S - 2)
    return sum(len(part) * int(lengths[part].max()) for part in _batches(lengths))


def _framed(sentences: Sequence[Sequence[int]], manifest: Manifest) -> list[NDArray[np.int64]]:
    """Between separators, and no longer than a sequence."""
    separator, limit = manifest.separator_token, manifest.sequence_length - 2
    return [np.array([separator, *sentence[:limit], separator], dtype=np.int64) for sentence in sentences]


def _batches(lengths: Sequence[int] | NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of rows that make a batch: of similar lengths, for little padding."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), ROWS):
        yield order[start : start + ROWS]


def _pad(rows: list[NDArray[np.int64]], manifest: Manifest, device: torch.device) -> tuple[Tensor, Tensor]:
    length = max(len(row) for row in rows)
    token_NL = np.full((len(rows), length), manifest.pad_token, dtype=np.int64)
    mask_NL = np.zeros((len(rows), length), dtype=np.int64)
    for index, row in enumerate(rows):
        token_NL[index, : len(row)] = row
        mask_NL[index, : len(row)] = 1
    return torch.from_numpy(token_NL).to(device), torch.from_numpy(mask_NL).to(device)
