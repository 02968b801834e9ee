"""Preparation: sources -> documents -> tokens -> packed sequences, once for all trials and studies.

A Ray Data job of independent parts, each of which writes its own shards (``packing``); what fills no sequence in its
part is packed in the order of the parts. The manifest is written last, so a corpus is either whole or prepared again.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.duplicates import duplicates_of, find_duplicates
from trainables.corpora.preparation.fingerprint import fingerprint
from trainables.corpora.preparation.packing import Packer, Part, PartRecord, pack_part, split_of
from trainables.corpora.preparation.ray_job import run_job
from trainables.corpora.preparation.tokenizers import TokenizerConfig, load_tokenizer, separator_token, train_tokenizer
from trainables.corpora.reading.documents import (
    Allowance,
    Document,
    Portion,
    SourceConfig,
    divide,
    expand,
    read_documents,
    read_head,
)
from trainables.corpora.reading.hugging_face import pinned
from trainables.corpora.reading.tally import total
from trainables.corpora.stream.checksums import is_shard_intact
from trainables.corpora.stream.manifest import FORMAT_VERSION, SPLITS, LanguageCounts, Manifest, Shard, token_dtype
from trainables.corpora.stream.packed import MANIFEST_NAME, MINIMAL_PAIRS_NAME, TOKENIZER_NAME, read_manifest
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from ray import ObjectRef
    from transformers import PreTrainedTokenizerFast

PART_BYTES = 8 << 20
"""A task reads at least about so much: small files are joined up to it, large ones cut where their format allows."""

MOST_PART_BYTES = 64 << 20
"""Parts of much text are larger, up to so much: about as many tokens as a shard has."""

FEW_PARTS = 2048
"""With more parts they are larger instead: each has shards of its own, and a block of the stream is from them all."""

SAMPLE_FILES = 32
"""How many files of a language, or ranges of large ones, are read in turn for the tokenizer's sample."""

SAMPLE_READ_CHARACTERS = 1 << 28
"""Of each language's sources at most so much is read for the sample, or four times the sample where that is more:
a language that is rare in files of several gives what is found until then."""

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

    What a language cannot fill is shared out again among those that have text left. A file of several languages is
    read once for each of them, up to :data:`SAMPLE_READ_CHARACTERS`.
    """
    portions: dict[str, list[tuple[SourceConfig, Portion]]] = {}
    for number, source in enumerate(corpora.sources):
        for portion in expand(source, f"corpora.sources[{number}]"):
            portions.setdefault(source.language, []).append((source, portion))
    weights = {
        language: max(1.0, _language_bytes(portions[language])) ** corpora.alpha for language in sorted(portions)
    }
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
                if split_of(document.document_id, corpora.validation_share, corpora.test_share) == "train":
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
            pieces = [piece for portion in own for piece in divide(portion, PART_BYTES)]
            spread = pieces[:: -(-len(pieces) // SAMPLE_FILES)]
            head = total(read_head(piece, source)[0] for piece in spread)
            share = max(1, head.documents) / max(1, head.documents + head.other_languages)
        size_bytes += share * sum(portion.size_bytes for portion in own)
    return size_bytes


def documents_in_turn(portions: list[tuple[SourceConfig, Portion]], allowance: Allowance) -> Iterator[Document]:
    """One document each of some ranges of files in turn, spread evenly over all; then of the next ranges.

    Args:
        portions: of one language; they are cut where their format allows.
        allowance: where it ends the documents do.

    Raises:
        InputError: a portion cannot be read.
    """
    pieces = [(source, piece) for source, portion in portions for piece in divide(portion, PART_BYTES)]
    num_groups = -(-len(pieces) // SAMPLE_FILES)
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
        verify: read all shards of a corpus that is there, whether or not this machine has before, and make damaged
            ones again.

    Raises:
        InputError: a source cannot be read or has too many malformed records, or a language's split has not one
            whole sequence.
    """
    # Once, so that a fingerprint names one text, and all parts are of it.
    sources = [pinned(source, f"corpora.sources[{n}]") for n, source in enumerate(corpora.sources)]
    corpora = corpora.model_copy(update={"sources": tuple(sources)})
    progress(Progress("fingerprint", 0, 1, 0))
    name = fingerprint(corpora, tokenizer)
    progress(Progress("fingerprint", 1, 1, 0))
    folder = store / name
    if (folder / MANIFEST_NAME).exists():
        manifest = read_manifest(folder)
        progress(Progress("verification", 0, 1, 0))
        damaged = _damaged_shards(manifest, folder) if verify else []
        progress(Progress("verification", 1, 1, 0))
        if not damaged:
            _require_sound(manifest, corpora)
            return manifest
        for shard in damaged:  # another machine may remember it as intact: what is gone is made again
            (folder / shard.file).delete()
        (folder / MANIFEST_NAME).delete()
    vocabulary_size = max(tokenizer.get_vocab().values()) + 1
    dtype = token_dtype(vocabulary_size)
    parts = _parts(corpora)
    if corpora.deduplicate:
        for stage, done, num_tasks in find_duplicates(parts, folder / DUPLICATES_NAME):
            progress(Progress(stage, done, num_tasks, 0))
    progress(Progress("packing", 0, len(parts), 0))
    languages = sorted({source.language for source in corpora.sources})
    tails = {
        (split, language): Packer(folder, f"shards/{split}/{language}-tails", corpora.sequence_length, np.dtype(dtype))
        for split in SPLITS
        for language in languages
    }
    made: list[tuple[Part, PartRecord]] = []
    num_tokens = 0
    records = _prepare_parts(parts, corpora, tokenizer, dtype, folder)
    for part, record in zip(parts, records, strict=True):
        for split in SPLITS:
            tails[split, part.source.language].add(np.frombuffer(record.tails[split], dtype))
        made.append((part, record.model_copy(update={"tails": {}})))
        num_tokens += sum(counts.tokens for counts in record.splits.values())
        progress(Progress("packing", len(made), len(parts), num_tokens))
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=name,
        vocabulary_size=vocabulary_size,
        sequence_length=corpora.sequence_length,
        dtype=dtype,
        pad_token=tokenizer.pad_token_id,
        mask_token=tokenizer.mask_token_id,
        separator_token=separator_token(tokenizer),
        special_tokens=tuple(sorted(tokenizer.all_special_ids)),
        languages=tuple(languages),
        splits={
            split: {
                language: _total(
                    *(r.splits[split] for p, r in made if p.source.language == language),
                    tails[split, language].finish(),
                )
                for language in languages
            }
            for split in SPLITS
        },
        sources=tuple(
            total(r.tally for p, r in made if p.source_number == number).with_lines()
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


def _damaged_shards(manifest: Manifest, folder: Location) -> list[Shard]:
    shards = [shard for counts in manifest.splits.values() for one in counts.values() for shard in one.shards]
    return [shard for shard in shards if not is_shard_intact(folder, shard, afresh=True)]


def _parts(corpora: CorporaConfig) -> list[Part]:
    """The tasks: consecutive portions of one source, up to :func:`_part_bytes` or a single larger one."""
    portions = [expand(source, f"corpora.sources[{number}]") for number, source in enumerate(corpora.sources)]
    part_bytes = _part_bytes(sum(portion.size_bytes for own in portions for portion in own))
    parts: list[Part] = []
    numbers: dict[str, Iterator[int]] = {}
    for number, source in enumerate(corpora.sources):
        pieces = [piece for portion in portions[number] for piece in divide(portion, part_bytes)]
        part = partial(_part, numbers.setdefault(source.language, itertools.count()), number, source)
        group, group_bytes = list[Portion](), 0
        for piece in pieces:
            if group and group_bytes + piece.size_bytes > part_bytes:
                parts.append(part(tuple(group)))
                group, group_bytes = [], 0
            group.append(piece)
            group_bytes += piece.size_bytes
        parts.append(part(tuple(group)))
    return parts


def _part_bytes(total_bytes: int) -> int:
    return max(PART_BYTES, min(total_bytes // FEW_PARTS, MOST_PART_BYTES))


def _part(numbering: Iterator[int], source_number: int, source: SourceConfig, portions: tuple[Portion, ...]) -> Part:
    return Part(number=next(numbering), source_number=source_number, source=source, portions=portions)


def _prepare_parts(
    parts: list[Part], corpora: CorporaConfig, tokenizer: PreTrainedTokenizerFast, dtype: str, folder: Location
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
    item: str, *, tokenizer_reference: ObjectRef[str], separator: int, corpora: str, dtype: str, folder: str
) -> str:
    """The Ray Data task: a part, as number among all and JSON, to its record."""
    import ray

    # One core was asked for: tokenise in this thread only.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    number, content = json.loads(item)
    config, place = CorporaConfig.model_validate_json(corpora), Location(folder)
    part = Part.model_validate_json(content)
    record = pack_part(
        part,
        _tokenizer(ray.get(tokenizer_reference)),
        separator,
        config,
        np.dtype(dtype),
        place,
        duplicates_of(number, place / DUPLICATES_NAME) if config.deduplicate else frozenset(),
    )
    if record.tally.cut_short:  # said now rather than when all else is prepared
        record.tally.require_sound(config.malformed_share, f"corpora.sources[{part.source_number}]")
    return record.model_dump_json()


@lru_cache(maxsize=1)
def _tokenizer(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # text that spells "[MASK]" is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _total(*own: LanguageCounts) -> LanguageCounts:
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
                    why=f"its {counts.documents} documents there have {counts.tokens} tokens; a sequence "
                    f"has {manifest.sequence_length}",
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
