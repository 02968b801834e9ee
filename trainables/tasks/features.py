"""Features: what a model makes of texts and words, layer by layer. Letters: N rows of a batch, L tokens each, K of
these tokens, D hidden size, H layers with the embedding, S parts of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.models.body import layers_of
from trainables.tasks.model import Ints, LanguageModel

Floats = NDArray[np.float32]

ROWS = 64  # of a batch: of few sentences more would be mostly padding


class _Piece(NamedTuple):
    """A row of tokens, and which of them are of which part of a text."""

    token_L: Ints
    place_K: Ints
    part_K: Ints
    """Ascending."""


def of_texts(model: LanguageModel, texts: Sequence[str]) -> Floats:
    """The mean state of each text's tokens, by layer, (H, S, D)."""
    return features(model, texts, [[(0, len(text))] for text in texts])


def of_words(model: LanguageModel, sentences: Sequence[Sequence[str]]) -> Floats:
    """The mean state of each word's tokens, by layer, (H, S, D): of the first sentence's words, then the next's."""
    parts = []
    for words in sentences:
        end_S = np.cumsum([len(word) + 1 for word in words]) - 1
        parts.append([(int(end) - len(word), int(end)) for word, end in zip(words, end_S, strict=True)])
    return features(model, [" ".join(words) for words in sentences], parts)


@torch.no_grad()
def features(model: LanguageModel, texts: Sequence[str], parts: Sequence[Sequence[tuple[int, int]]]) -> Floats:
    """Of parts of texts, each from a character to another, the mean state of their tokens, by layer, (H, S, D).

    A text's parts ascend; a token that two share is of both, and a part without a token has zeros. A text that is
    longer than a row is seen in pieces.
    """
    pieces = _pieces(model, texts, parts)
    size_S, sum_HSD = np.zeros(sum(map(len, parts))), np.zeros((0, 0, 0), dtype=np.float32)
    for begin in range(0, len(pieces), ROWS):
        rows = pieces[begin : begin + ROWS]
        row_K = np.repeat(np.arange(len(rows)), [len(row.part_K) for row in rows])
        place_K, part_K = (np.concatenate(own) for own in zip(*(row[1:] for row in rows), strict=True))
        # A part's tokens lie together, and are added in their order: the same sums with any number of threads.
        first_K = np.flatnonzero(np.diff(part_K, prepend=-1))
        own_S = part_K[first_K]

        def pooled(hidden_NLD: Tensor) -> Floats:
            token_KD = hidden_NLD[row_K, place_K].float().cpu().numpy()  # noqa: B023
            return np.add.reduceat(token_KD, first_K) if len(first_K) else token_KD  # noqa: B023

        own_HSD = _layers(model, *model.padded([row.token_L for row in rows]), pooled)
        if not sum_HSD.size:
            sum_HSD = np.zeros((len(own_HSD), len(size_S), own_HSD[0].shape[-1]), dtype=np.float32)
        sum_HSD[:, own_S] += own_HSD
        size_S[own_S] += np.diff(first_K, append=len(part_K))
    return sum_HSD / np.maximum(size_S, 1).astype(np.float32)[:, None]


def _pieces(model: LanguageModel, texts: Sequence[str], parts: Sequence[Sequence[tuple[int, int]]]) -> list[_Piece]:
    """All texts' rows, those of one text together, texts of similar lengths beside each other."""
    found = model.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
    begin_T = np.cumsum([0, *map(len, parts)])
    room, shift = model.room, model.num_before
    pieces = []
    for text in np.argsort([len(ids) for ids in found["input_ids"]], kind="stable"):
        ids, offset_L2 = found["input_ids"][text], np.array(found["offset_mapping"][text]).reshape(-1, 2)
        start_S, end_S = np.array(parts[text]).reshape(-1, 2).T
        first_L = np.searchsorted(end_S, offset_L2[:, 0], side="right")
        num_L = np.maximum(np.searchsorted(start_S, offset_L2[:, 1], side="left") - first_L, 0)
        place_K = np.repeat(np.arange(len(ids)), num_L)
        part_K = begin_T[text] + first_L[place_K] + np.arange(len(place_K)) - np.repeat(num_L.cumsum() - num_L, num_L)
        for cut in range(0, max(1, len(ids)), room):
            own = slice(*np.searchsorted(place_K, [cut, cut + room]))
            pieces.append(_Piece(model.framed(ids[cut : cut + room]), place_K[own] - cut + shift, part_K[own]))
    return pieces


def _layers(
    model: LanguageModel, token_NL: Tensor, mask_NL: Tensor, pooled: Callable[[Tensor], Floats]
) -> list[Floats]:
    """Of what goes into each layer, and of the last hidden states, (N, L, D) each: transformers'
    ``hidden_states``. Of all layers but what is pooled is kept."""
    found: list[Floats] = []

    def keep(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append(pooled(args[0] if args else named["hidden_states"]))

    with ExitStack() as hooks:
        for layer in layers_of(model.body):
            hooks.callback(layer.register_forward_pre_hook(keep, with_kwargs=True).remove)
        last_NLD = model.hidden(token_NL, mask_NL)
    return [*found, pooled(last_NLD)]
