"""Preparation: sources -> documents -> tokens -> packed sequences, once for all trials and studies.

A Ray Data job of independent parts, each of which writes its own shards (``packing``). The manifest is
written last, so a corpus is either whole or prepared again.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from trainables.corpora.checksums import is_shard_intact
from trainables.corpora.config import CorporaConfig
from trainables.corpora.duplicates import duplicates_of, find_duplicates
from trainables.corpora.fingerprint import fingerprint
from trainables.corpora.manifest import (
    FORMAT_VERSION,
    SPLITS,
    LanguageCounts,
    Manifest,
    token_dtype,
)
from trainables.corpora.packed import MANIFEST_NAME, MINIMAL_PAIRS_NAME, TOKENIZER_NAME, read_manifest
from trainables.corpora.packing import Part, PartRecord, pack_part, split_of
from trainables.corpora.ray_job import run_job
from trainables.corpora.sources import Document, Portion, SourceConfig, divide, expand, read_documents
from trainables.corpora.tally import total
from trainables.errors import InputError
from trainables.models.tokenizers import (
    TokenizerConfig,
    load_tokenizer,
    separator_token,
    train_tokenizer,
)
from trainables.storage import Location

if TYPE_CHECKING:
    from ray import ObjectRef
    from transformers import PreTrainedTokenizerFast

PART_BYTES = 8 << 20
"""A task reads about so much: small files are joined up to it, large ones cut where their format allows."""

SAMPLE_FILES = 32
"""How many files of a language are read in turn for the tokenizer's sample."""

DUPLICATES_NAME = "duplicates"


def make_tokenizer(corpora: CorporaConfig, tokenizer: TokenizerConfig) -> PreTrainedTokenizerFast:
    """The pretrained tokenizer, or one trained on a sample of the training split; does not need Ray.

    Raises:
        InputError: a source cannot be read, there is no such tokenizer, or the vocabulary does not fit.
    """
    if tokenizer.train is None:
        assert tokenizer.pretrained is not None
        return load_tokenizer(tokenizer.pretrained)
    return train_tokenizer(tokenizer.train, _sample(corpora, tokenizer.train.sample_bytes))


def _sample(corpora: CorporaConfig, sample_bytes: int) -> Iterator[str]:
    """Training texts of at most ``sample_bytes`` in all, a language's share ~ (stored bytes) ** alpha.

    What a language cannot fill is shared out again among those that have text left.
    """
    portions: dict[str, list[tuple[SourceConfig, Portion]]] = {}
    for number, source in enumerate(corpora.sources):
        for portion in expand(source, f"corpora.sources[{number}]"):
            portions.setdefault(source.language, []).append((source, portion))
    weights = {
        language: max(1, sum(portion.size_bytes for _, portion in portions[language])) ** corpora.alpha
        for language in sorted(portions)
    }
    documents = {language: _documents_in_turn(portions[language]) for language in weights}
    room_bytes = sample_bytes
    while weights and room_bytes >= len(weights):
        total_weight = sum(weights.values())
        quotas_bytes = {
            language: int(room_bytes * weight / total_weight) for language, weight in weights.items()
        }
        for language, quota_bytes in quotas_bytes.items():
            while quota_bytes > 0:
                document = next(documents[language], None)
                if document is None:
                    del weights[language]
                    break
                if split_of(document.document_id, corpora.validation_share, corpora.test_share) == "train":
                    encoded = document.text.encode()[:quota_bytes]
                    quota_bytes -= len(encoded)
                    room_bytes -= len(encoded)
                    yield encoded.decode(errors="ignore")  # cut, it may end within a character


def _documents_in_turn(portions: list[tuple[SourceConfig, Portion]]) -> Iterator[Document]:
    """One document each of some files in turn, spread evenly over all; then of the next files."""
    num_groups = -(-len(portions) // SAMPLE_FILES)
    for group in range(num_groups):
        open_files = deque(read_documents(portion, source) for source, portion in portions[group::num_groups])
        while open_files:
            document = next(open_files[0], None)
            if document is None:
                open_files.popleft()
            else:
                yield document
                open_files.rotate(-1)


class Progress(NamedTuple):
    """How far the preparation is."""

    stage: str
    """``tokenizer``, ``fingerprint``, ``verification``, ``duplicates``, ``comparison`` or ``packing``."""

    done: int
    """Parts, or tasks of another kind."""

    parts: int
    """All of them; 1 where it is not known how far the stage is."""

    tokens: int
    """Packed so far."""


def prepare(
    corpora: CorporaConfig,
    tokenizer: PreTrainedTokenizerFast,
    store: Location,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    verify: bool = False,
) -> Manifest:
    """Prepare the corpus in ``store/<fingerprint>``, unless it is there. Needs a Ray cluster.

    A preparation that was cut off, at whatever moment, goes on with the parts that are not whole, and ends with the
    same files.

    Args:
        corpora: the text.
        tokenizer: makes the tokens.
        store: folder of prepared corpora.
        progress: told of every stage's begin, and of every part that is done.
        verify: read all shards of a corpus that is there, and make damaged ones again.

    Raises:
        InputError: a source cannot be read or has too many malformed records, or a language's split has not one
            whole sequence.
    """
    progress(Progress("fingerprint", 0, 1, 0))
    name = fingerprint(corpora, tokenizer)
    progress(Progress("fingerprint", 1, 1, 0))
    folder = store / name
    if (folder / MANIFEST_NAME).exists():
        manifest = read_manifest(folder)
        progress(Progress("verification", 0, 1, 0))
        whole = not verify or _is_intact(manifest, folder)
        progress(Progress("verification", 1, 1, 0))
        if whole:
            _require_sound(manifest, corpora)
            return manifest
        (folder / MANIFEST_NAME).delete()
    vocabulary_size = max(tokenizer.get_vocab().values()) + 1
    parts = _parts(corpora)
    if corpora.deduplicate:
        for stage, done, num_tasks in find_duplicates(parts, folder / DUPLICATES_NAME):
            progress(Progress(stage, done, num_tasks, 0))
    records: list[PartRecord] = []
    num_tokens = 0
    progress(Progress("packing", 0, len(parts), 0))
    for record in _prepare_parts(parts, corpora, tokenizer, token_dtype(vocabulary_size), folder):
        records.append(record)
        num_tokens += sum(counts.tokens for counts in record.splits.values())
        progress(Progress("packing", len(records), len(parts), num_tokens))
    made = list(zip(parts, records, strict=True))
    languages = sorted({source.language for source in corpora.sources})
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=name,
        vocabulary_size=vocabulary_size,
        sequence_length=corpora.sequence_length,
        dtype=token_dtype(vocabulary_size),
        pad_token=tokenizer.pad_token_id,
        mask_token=tokenizer.mask_token_id,
        separator_token=separator_token(tokenizer),
        special_tokens=tuple(sorted(tokenizer.all_special_ids)),
        languages=tuple(languages),
        splits={
            split: {
                language: _total(r.splits[split] for p, r in made if p.source.language == language)
                for language in languages
            }
            for split in SPLITS
        },
        sources=tuple(
            total(r.tally for p, r in made if p.source_number == number)
            for number in range(len(corpora.sources))
        ),
    )
    _require_sound(manifest, corpora)
    _require_sequences(manifest)
    _save_tokenizer(tokenizer, folder / TOKENIZER_NAME)
    if corpora.has_minimal_pairs:
        (folder / MINIMAL_PAIRS_NAME).write_bytes(_minimal_pairs(corpora))
    (folder / MANIFEST_NAME).write_json(manifest.model_dump(mode="json"))
    return manifest


def warnings(manifest: Manifest) -> list[str]:
    """A line on each source with malformed records: they were left out."""
    lines = [tally.warning(f"corpora.sources[{number}]") for number, tally in enumerate(manifest.sources)]
    return [line for line in lines if line]


def _require_sound(manifest: Manifest, corpora: CorporaConfig) -> None:
    for number, tally in enumerate(manifest.sources):
        tally.require_sound(corpora.malformed_share, f"corpora.sources[{number}]")


def _is_intact(manifest: Manifest, folder: Location) -> bool:
    shards = [shard for counts in manifest.splits.values() for one in counts.values() for shard in one.shards]
    return all(is_shard_intact(folder, shard) for shard in shards)


def _parts(corpora: CorporaConfig) -> list[Part]:
    """The tasks: consecutive portions of one source, up to :data:`PART_BYTES` or a single larger one."""
    parts: list[Part] = []
    numbers: dict[str, Iterator[int]] = {}
    for number, source in enumerate(corpora.sources):
        portions = expand(source, f"corpora.sources[{number}]")
        pieces = [piece for portion in portions for piece in divide(portion, PART_BYTES)]
        part = partial(_part, numbers.setdefault(source.language, itertools.count()), number, source)
        group: list[Portion] = []
        for piece in pieces:
            if group and sum(other.size_bytes for other in group) + piece.size_bytes > PART_BYTES:
                parts.append(part(tuple(group)))
                group = []
            group.append(piece)
        parts.append(part(tuple(group)))
    return parts


def _part(
    numbering: Iterator[int], source_number: int, source: SourceConfig, portions: tuple[Portion, ...]
) -> Part:
    return Part(number=next(numbering), source_number=source_number, source=source, portions=portions)


def _prepare_parts(
    parts: list[Part],
    corpora: CorporaConfig,
    tokenizer: PreTrainedTokenizerFast,
    dtype: str,
    folder: Location,
) -> Iterator[PartRecord]:
    """Run the Ray Data job; its records come in the order of the parts."""
    import ray

    task = partial(
        _prepare_part,
        tokenizer_reference=ray.put(tokenizer.backend_tokenizer.to_str()),
        separator=separator_token(tokenizer),
        corpora=corpora.model_dump_json(),
        dtype=dtype,
        folder=folder.uri,
    )
    items = [json.dumps([number, part.model_dump_json()]) for number, part in enumerate(parts)]
    yield from map(PartRecord.model_validate_json, run_job(task, items))


def _prepare_part(
    item: str,
    *,
    tokenizer_reference: ObjectRef[str],
    separator: int,
    corpora: str,
    dtype: str,
    folder: str,
) -> str:
    """The Ray Data task: a part, as number among all and JSON, to its record."""
    import ray

    # One core was asked for: tokenise in this thread only.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    number, content = json.loads(item)
    config, place = CorporaConfig.model_validate_json(corpora), Location(folder)
    record = pack_part(
        Part.model_validate_json(content),
        _tokenizer(ray.get(tokenizer_reference)),
        separator,
        config,
        np.dtype(dtype),
        place,
        duplicates_of(number, place / DUPLICATES_NAME) if config.deduplicate else frozenset(),
    )
    return record.model_dump_json()


@lru_cache(maxsize=1)
def _tokenizer(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # text that spells "[MASK]" is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _total(parts: Iterable[LanguageCounts]) -> LanguageCounts:
    own = list(parts)
    return LanguageCounts(
        documents=sum(part.documents for part in own),
        tokens=sum(part.tokens for part in own),
        sequences=sum(part.sequences for part in own),
        shards=tuple(shard for part in own for shard in part.shards),
        words=sum(part.words for part in own),
        characters=sum(part.characters for part in own),
        unknown_tokens=sum(part.unknown_tokens for part in own),
    )


def _require_sequences(manifest: Manifest) -> None:
    for split in SPLITS:
        for language, counts in manifest.splits[split].items():
            if not counts.sequences:
                raise InputError(
                    f"too little text in '{language}': not one whole sequence in the {split} split",
                    where="corpora.sources",
                    why=f"its {counts.documents} documents there have {counts.tokens} tokens, in parts "
                    f"that are packed apart; a sequence has {manifest.sequence_length}",
                    remedy="add text in this language, or --set corpora.sequence_length=N with a smaller N"
                    + ("" if split == "train" else f", or --set corpora.{split}_share=X with a larger X"),
                )


def _save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Location) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer.save_pretrained(temporary)
        for file in sorted(Path(temporary).iterdir()):
            (folder / file.name).write_bytes(file.read_bytes())


def _minimal_pairs(corpora: CorporaConfig) -> bytes:
    from trainables.corpora.grammar import minimal_pairs

    lines = []
    for source in corpora.sources:
        if source.grammar is not None:
            for pair in minimal_pairs(source.grammar, corpora.minimal_pairs_per_language, source.seed):
                record = {
                    "language": source.language,
                    "phenomenon": pair.phenomenon,
                    "good": pair.good,
                    "bad": pair.bad,
                }
                lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
