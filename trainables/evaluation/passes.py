"""Passes of held-out text through a model; yardsticks that need the same one share it. Letters: N sequences or rows of
a batch, L tokens each, K targets, D hidden size, V vocabulary, P minimal pairs, S sentences.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainables.corpora.stream.manifest import Manifest
from trainables.evaluation.held_out import HeldOut, Targets, batches, framed
from trainables.evaluation.registry import find_yardstick
from trainables.evaluation.yardstick import Score
from trainables.objectives.learner import Learner

SLICE_ELEMENTS = 1 << 24  # logits, or numbers of the last layers, held at a time


class TargetNats(NamedTuple):
    """Held-out tokens and what each costs."""

    nats_K: NDArray[np.float64]  # negative log-likelihood over the whole vocabulary; infinite where the model gives NaN
    target_K: NDArray[np.int64]  # the tokens


class Taking:
    """One model in evaluation mode, at one moment, and the passes through it that yardsticks share."""

    def __init__(self, learner: Learner, held_out: HeldOut) -> None:
        self.learner, self.held_out, self.task = learner, held_out, learner.objective.task

    @cached_property
    def ranks(self) -> dict[str, NDArray[np.int64]]:
        """By language, ranks of the targets of recovery, (K,), 1 the best."""
        targets = self.held_out.masked(self.task)
        rank_K = target_ranks(self.learner, targets)
        return {language: rank_K[own] for language, own in self.held_out.by_language(targets).items()}

    @cached_property
    def nats(self) -> dict[str, TargetNats]:
        targets = self.held_out.likely(self.task)
        nats_K = target_nats(self.learner, targets)
        return {
            language: TargetNats(nats_K[own], targets.target_K[own])
            for language, own in self.held_out.by_language(targets).items()
        }

    @cached_property
    def pairs(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """By language, (pseudo-)log-likelihoods of the good and the bad sentences of minimal pairs, (P,) each."""
        languages = self.held_out.pair_languages
        score = log_likelihoods(self.learner, self.held_out.sentences, self.held_out.corpus.manifest)
        good, bad = score[: len(languages)], score[len(languages) :]
        return {name: (good[languages == name], bad[languages == name]) for name in sorted(set(languages))}

    def mean(self, values: Mapping[str, NDArray[Any] | float]) -> Score:
        """Of values by language the means, and over languages their mean: each counts the same."""
        languages = {name: float(np.mean(value)) for name, value in values.items()}
        return Score(overall=float(np.mean(list(languages.values()))), languages=languages)


def take(learner: Learner, held_out: HeldOut, names: Iterable[str]) -> dict[str, Score]:
    """The named yardsticks, by name. The learner's mode (train, eval) is as before afterwards."""
    training = learner.training
    learner.eval()
    taking = Taking(learner, held_out)
    scores = {name: find_yardstick(name).measure(taking) for name in names}
    learner.train(training)
    return scores


def target_ranks(learner: Learner, targets: Targets) -> NDArray[np.int64]:
    """Rank of each target among the whole vocabulary, (K,), 1 the best."""
    return _of_targets(learner, targets, ranks_of)


def target_nats(learner: Learner, targets: Targets) -> NDArray[np.float64]:
    """Negative log-likelihood of each target over the whole vocabulary, (K,); infinite where the model gives NaN."""
    nats_K = _of_targets(learner, targets, partial(F.cross_entropy, reduction="none"))
    return np.nan_to_num(nats_K.astype(np.float64), nan=np.inf, posinf=np.inf)


def ranks_of(logits_KV: Tensor, target_K: Tensor) -> Tensor:
    """Rank of each target among all tokens, 1 the best, (K,). Ties, and NaN, count against the target."""
    target_logit_K1 = logits_KV.gather(1, target_K[:, None])
    return (~(logits_KV < target_logit_K1)).sum(dim=1)


@torch.no_grad()
def _of_targets(learner: Learner, targets: Targets, function: Callable[[Tensor, Tensor], Tensor]) -> NDArray[Any]:
    """A function of the logits and the target at each target position, slice by slice."""
    device, sequence_K = learner.embedding_VD.device, targets.sequence_K
    num_sequences, length = targets.input_NL.shape
    sequences = max(1, SLICE_ELEMENTS // (length * learner.config.hidden_size * 16))
    positions = max(1, SLICE_ELEMENTS // learner.config.vocab_size)
    found = []
    for start in range(0, num_sequences, sequences):
        hidden_NLD = learner.hidden(torch.from_numpy(targets.input_NL[start : start + sequences]).to(device))
        part = slice(*np.searchsorted(sequence_K, [start, start + sequences]))
        hidden_KD = hidden_NLD[sequence_K[part] - start, targets.position_K[part]]
        target_K = torch.from_numpy(targets.target_K[part]).to(device)
        for hidden, target in zip(torch.split(hidden_KD, positions), torch.split(target_K, positions), strict=True):
            found.append(function(learner.logits(hidden).float(), target).cpu())
    return np.asarray(torch.cat(found).numpy())


@torch.no_grad()
def log_likelihoods(learner: Learner, sentences: Sequence[Sequence[int]], manifest: Manifest) -> NDArray[np.float64]:
    """Log-likelihoods over the whole vocabulary, in nats, (S,), of sentences without special tokens.

    An encoder's are pseudo-log-likelihoods: each token masked in turn (arXiv 1910.14659).
    """
    rows = framed(sentences, manifest)
    if learner.objective.task == "causal":
        return _causal(learner, rows, manifest)
    score = np.zeros(len(rows))
    masked = np.array([(owner, place) for owner, row in enumerate(rows) for place in range(1, len(row) - 1)])
    for part in batches([len(rows[owner]) for owner, _ in masked]):
        owner_N, position_N = masked[part].T
        token_NL, mask_NL = _pad([rows[owner] for owner in owner_N], manifest, learner.embedding_VD.device)
        place = torch.arange(len(part)), torch.from_numpy(position_N)
        target_N = token_NL[place]
        token_NL[place] = manifest.required_mask_token
        hidden_ND = learner.hidden(token_NL, mask_NL)[place]
        log_probability = learner.logits(hidden_ND).float().log_softmax(dim=-1)
        np.add.at(score, owner_N, log_probability.gather(1, target_N[:, None])[:, 0].cpu().numpy())
    return score


def _causal(learner: Learner, rows: list[NDArray[np.int64]], manifest: Manifest) -> NDArray[np.float64]:
    score = np.zeros(len(rows))
    for part in batches([len(tokens) for tokens in rows]):
        token_NL, mask_NL = _pad([rows[i] for i in part], manifest, learner.embedding_VD.device)
        hidden_NLD = learner.hidden(token_NL, mask_NL)
        scored_NL = mask_NL[:, 1:].bool()
        log_probability = learner.logits(hidden_NLD[:, :-1][scored_NL]).float().log_softmax(dim=-1)
        target_K = token_NL[:, 1:][scored_NL]
        taken = torch.zeros(scored_NL.shape, device=token_NL.device)
        taken[scored_NL] = log_probability.gather(1, target_K[:, None])[:, 0]
        score[part] = taken.sum(dim=1).cpu().numpy()
    return score


def _pad(rows: list[NDArray[np.int64]], manifest: Manifest, device: torch.device) -> tuple[Tensor, Tensor]:
    tokens = [torch.from_numpy(row) for row in rows]
    token_NL = pad_sequence(tokens, batch_first=True, padding_value=manifest.pad_token)
    mask_NL = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
    return token_NL.to(device), mask_NL.to(device)
