"""The text that a tokenizer is trained on: a sample of the training split, balanced as the languages are mixed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig
from trainables.corpora.preparation.splits import grouped, split_of
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.reading.check import read_head
from trainables.corpora.reading.documents import Allowance, read_documents
from trainables.corpora.reading.portions import MOST_AT_ONCE, Portion, divide, expand, part_size, spread
from trainables.corpora.reading.tally import Document, total
from trainables.corpora.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SAMPLE_READ_CHARACTERS = 1 << 28
"""Of each language's sources at most so much is read for the sample, or four times the sample where that is more:
a language that is rare in files of several gives what is found until then."""


def make_tokenizer(
    corpora: CorporaConfig, tokenizer: TokenizerConfig, sampled: Callable[[int], None] = lambda characters: None
) -> PreTrainedTokenizerFast:
    """The pretrained tokenizer, or one trained on a sample of the training split; does not need Ray. Before it is
    trained ``sampled`` is told how many characters there are. Raises InputError: a source cannot be read, there is no
    such tokenizer, or the vocabulary does not fit."""
    if tokenizer.train is None:
        assert tokenizer.pretrained is not None
        return load_tokenizer(tokenizer.pretrained)
    return train_tokenizer(tokenizer.train, _counted(sample(corpora, tokenizer.train.sample_bytes), sampled))


def _counted(texts: Iterator[str], sampled: Callable[[int], None]) -> Iterator[str]:
    characters = 0
    for text in texts:
        characters += len(text)
        yield text
    sampled(characters)


def sample(corpora: CorporaConfig, sample_bytes: int) -> Iterator[str]:
    """Training texts of at most ``sample_bytes`` in all, a language's share ~ (stored bytes) ** alpha.

    What a language cannot fill is shared out again among those that have text left. A file of several languages is
    read once for each of them, up to :data:`SAMPLE_READ_CHARACTERS`.
    """
    portions: dict[str, list[tuple[SourceConfig, Portion]]] = {}
    for number, source in enumerate(grouped(corpora).sources):
        for portion in expand(source, f"corpora.sources[{number}]"):
            portions.setdefault(source.language, []).append((source, portion))
    weights = {name: max(1.0, _language_bytes(portions[name])) ** corpora.alpha for name in sorted(portions)}
    most_characters = max(SAMPLE_READ_CHARACTERS, 4 * sample_bytes)
    documents = {language: documents_in_turn(portions[language], Allowance(most_characters)) for language in weights}
    room_bytes = sample_bytes
    while weights and room_bytes >= len(weights):
        total_weight = sum(weights.values())
        quotas_bytes = {language: int(room_bytes * weight / total_weight) for language, weight in weights.items()}
        for language, quota_bytes in quotas_bytes.items():
            while quota_bytes > 0:
                document = next(documents[language], None)
                if document is None:
                    del weights[language]
                    break
                if split_of(document.group, corpora.validation_share, corpora.test_share) == "train":
                    encoded = document.text.encode()[:quota_bytes]
                    quota_bytes -= len(encoded)
                    room_bytes -= len(encoded)
                    yield encoded.decode(errors="ignore")  # cut, it may end within a character


def _language_bytes(portions: list[tuple[SourceConfig, Portion]]) -> float:
    """About how much of the portions is of their language: in files of several a guess from some heads of ranges."""
    size_bytes = 0.0
    for source, group in itertools.groupby(portions, key=lambda pair: pair[0]):
        own = [portion for _, portion in group]
        share = 1.0
        if source.language_column is not None:
            head = total(read_head(piece, source)[0] for piece in spread(own))
            share = max(1, head.documents) / max(1, head.documents + head.other_languages)
        size_bytes += share * sum(portion.size_bytes for portion in own)
    return size_bytes


def documents_in_turn(portions: list[tuple[SourceConfig, Portion]], allowance: Allowance) -> Iterator[Document]:
    """One document each of some ranges of files in turn, spread evenly over all; then of the next ranges."""
    pieces = [(source, piece) for source, portion in portions for piece in divide(portion, part_size())]
    num_groups = -(-len(pieces) // MOST_AT_ONCE)
    for group in range(num_groups):
        open_files = deque(
            read_documents(piece, source, allowance=allowance)
            for source, piece in pieces[group::num_groups]
            if allowance.characters > 0
        )
        while open_files:
            document = next(open_files[0], None)
            if document is None:
                open_files.popleft()
            else:
                yield document
                open_files.rotate(-1)
