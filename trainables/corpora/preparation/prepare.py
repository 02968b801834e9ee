"""Preparation: sources -> documents -> tokens -> packed sequences, once for all trials and studies.

A Ray Data job of independent parts, each of which writes its own shards (``packing``); what fills no sequence in its
part is packed in the order of the parts. The manifest is written last, so a corpus is either whole or prepared again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.duplicates import duplicates_of, find_duplicates
from trainables.corpora.preparation.fingerprint import fingerprint
from trainables.corpora.preparation.leftovers import remove_leftovers
from trainables.corpora.preparation.overlap import find_overlap
from trainables.corpora.preparation.packing import Packer, pack_part, packed_part
from trainables.corpora.preparation.parts import Part, PartRecord, cut
from trainables.corpora.preparation.progress import Meter, Progress
from trainables.corpora.preparation.ray_job import run_job
from trainables.corpora.preparation.splits import grouped
from trainables.corpora.reading.check import languages_present
from trainables.corpora.reading.hugging_face import pinned
from trainables.corpora.reading.tally import total
from trainables.corpora.stream.checksums import is_shard_intact
from trainables.corpora.stream.groups import GROUPS_NAME, Groups, read_groups
from trainables.corpora.stream.manifest import (
    FORMAT_VERSION,
    HELD_OUT,
    SPLITS,
    LanguageCounts,
    Manifest,
    Shard,
    Split,
    token_dtype,
)
from trainables.corpora.stream.packed import MANIFEST_NAME, MINIMAL_PAIRS_NAME, TOKENIZER_NAME, read_manifest
from trainables.corpora.stream.token_counts import Job, token_counts
from trainables.corpora.tokenizers import separator_token
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from ray import ObjectRef
    from transformers import PreTrainedTokenizerFast

_DUPLICATES, _OVERLAP = "duplicates", "overlap"
COUNTED_HERE_TOKENS = 1 << 28  # so many are counted, or verified, in seconds
HASHED_HERE_BYTES = 4 << 30  # so much local text is hashed in seconds, too
COMPARED_HERE_BYTES = 4 << 20  # and so much held-out and training text compared


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
    same files; what was abandoned is removed then (``leftovers``). ``progress`` is told of every stage's begin, of
    every part that is done, and at the end what it took. With ``verify`` all shards of a corpus that is there are
    read, whether or not this machine has before, and damaged ones are made again. Raises InputError: a source cannot
    be read or has too many malformed records, or a language's split has not one whole sequence.
    """
    meter = Meter()
    # Once, so that a fingerprint names one text, and all parts are of it.
    sources = [pinned(source, f"corpora.sources[{n}]") for n, source in enumerate(corpora.sources)]
    corpora = grouped(corpora.model_copy(update={"sources": tuple(sources)}))
    progress(Progress("fingerprint", 0, 1))
    folder = store / fingerprint(corpora, tokenizer, _hash_job)
    progress(Progress("fingerprint", 1, 1))
    there = _prepared(folder, verify, progress)
    manifest = there or _pack(corpora, tokenizer, folder, progress, meter)
    for number, tally in enumerate(manifest.sources):
        tally.require_sound(corpora.malformed_share, f"corpora.sources[{number}]")
    _require_sequences(manifest, corpora)
    if there is None or verify:
        _save_tokenizer(tokenizer, folder / TOKENIZER_NAME)
        if corpora.has_minimal_pairs:
            (folder / MINIMAL_PAIRS_NAME).write_bytes(_minimal_pairs(corpora))
    token_counts(manifest, folder, _job(manifest))
    if there is None:
        (folder / MANIFEST_NAME).write_json(manifest.model_dump(mode="json"))
        abandoned = remove_leftovers(store, folder.name)
        progress(Progress("packed", 1, 1, meter.packing._replace(abandoned=abandoned)))
    return manifest


def _hash_job(task: Callable[[str], str], files: Sequence[str]) -> Iterable[str]:
    """Local files are read by the machines that will read them again."""
    size_bytes = sum(Path(file).stat().st_size for file in files)
    return run_job(task, files) if size_bytes > HASHED_HERE_BYTES else map(task, files)


def _job(manifest: Manifest) -> Job:
    """One of Ray Data's, unless there is less to do than to start."""
    tokens = sum(counts.tokens for counts in manifest.splits["train"].values())
    return run_job if tokens > COUNTED_HERE_TOKENS else map


def warnings(manifest: Manifest) -> list[str]:
    """What there is to say of each source: malformed records, which were left out; files that seem a mistake."""
    return [
        line for number, tally in enumerate(manifest.sources) for line in tally.warnings(f"corpora.sources[{number}]")
    ]


def _prepared(folder: Location, verify: bool, progress: Callable[[Progress], None]) -> Manifest | None:
    """The manifest of the corpus that is there, unless it is damaged: what is damaged is removed."""
    if not (folder / MANIFEST_NAME).exists():
        return None
    manifest = read_manifest(folder)
    damaged = _damaged(manifest, folder, progress) if verify else []
    if not damaged and read_groups(folder, manifest) is not None:
        return manifest
    for shard in damaged:  # another machine may remember it as intact: what is gone is made again
        (folder / shard.file).delete()
    (folder / MANIFEST_NAME).delete()
    return None


def _damaged(manifest: Manifest, folder: Location, progress: Callable[[Progress], None]) -> list[Shard]:
    """The shards that are damaged; all are read."""
    shards = [shard for own in manifest.splits.values() for counts in own.values() for shard in counts.shards]
    progress(Progress("verification", 0, len(shards)))
    found = list[Shard]()
    items = [shard.model_dump_json() for shard in shards]
    for done, item in enumerate(_job(manifest)(partial(_if_damaged, folder=folder.uri), items), 1):
        found += [Shard.model_validate_json(item)] if item else []
        progress(Progress("verification", done, len(shards)))
    return found


def _if_damaged(item: str, *, folder: str) -> str:
    """The shard, as JSON, if it is damaged; else nothing."""
    return "" if is_shard_intact(Location(folder), Shard.model_validate_json(item), afresh=True) else item


def _pack(
    corpora: CorporaConfig,
    tokenizer: PreTrainedTokenizerFast,
    folder: Location,
    progress: Callable[[Progress], None],
    meter: Meter,
) -> Manifest:
    """Write all shards of the corpus; its manifest is not written."""
    import ray

    vocabulary_size = max(tokenizer.get_vocab().values()) + 1
    dtype, parts = token_dtype(vocabulary_size), cut(corpora)
    if corpora.deduplicate:
        for stage, done, num_tasks in find_duplicates(parts, folder / _DUPLICATES):
            progress(Progress(stage, done, num_tasks))
    duplicates = folder / _DUPLICATES if corpora.deduplicate else None

    def tell(stage: str, done: int, num_tasks: int) -> None:
        progress(Progress(stage, done, num_tasks))

    size_bytes = sum(part.size_bytes for part in parts)
    job: Job = run_job if size_bytes > COMPARED_HERE_BYTES else map
    overlap = find_overlap(parts, corpora, folder / _OVERLAP, duplicates, job, tell)
    meter.begin(len(parts), size_bytes)
    progress(Progress("packing", 0, len(parts), meter.packing))
    languages = sorted({source.language for source in corpora.sources})
    separator = separator_token(tokenizer)
    tails = {
        (split, language): Packer(
            folder, f"shards/{split}/{language}-tails", corpora.sequence_length, np.dtype(dtype), separator
        )
        for split in SPLITS
        for language in languages
    }
    made: list[tuple[Part, PartRecord]] = []
    task = partial(
        _pack_part,
        tokenizer_reference=ray.put(tokenizer.backend_tokenizer.to_str()),
        separator=separator,
        corpora=corpora,
        dtype=dtype,
        folder=folder.uri,
    )
    items = [
        json.dumps([number, part.model_dump_json(), left_out])
        for number, (part, left_out) in enumerate(zip(parts, overlap.near_duplicates, strict=True))
    ]

    def ended() -> Iterator[tuple[int, PartRecord]]:
        for done, result in enumerate(run_job(task, items), 1):
            number, made_by, content = json.loads(result)
            record = PartRecord.model_validate_json(content)
            tokens = sum(counts.tokens for counts in record.splits.values())
            meter.count(parts[number].size_bytes, tokens, made_by)
            progress(Progress("packing", done, len(parts), meter.packing))
            yield number, record

    for part, record in zip(parts, _in_order(ended()), strict=True):
        for split in SPLITS:
            groups = np.frombuffer(record.tail_groups.get(split, b""), "<u8").tolist()
            tails[split, part.source.language].add(np.frombuffer(record.tails[split], dtype), groups)
        made.append((part, record.model_copy(update={"tails": {}})))
    splits: dict[Split, dict[str, LanguageCounts]] = {split: {} for split in SPLITS}
    for (split, language), packer in tails.items():
        own = (record.splits[split] for part, record in made if part.source.language == language)
        splits[split][language] = LanguageCounts.total(*own, packer.finish())
    groups = _groups(made, tails)
    (folder / GROUPS_NAME).write_bytes(groups.model_dump_json().encode())
    return Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=folder.name,
        vocabulary_size=vocabulary_size,
        sequence_length=corpora.sequence_length,
        dtype=dtype,
        pad_token=tokenizer.pad_token_id,
        mask_token=tokenizer.mask_token_id,
        separator_token=separator,
        special_tokens=tuple(sorted(tokenizer.all_special_ids)),
        languages=tuple(languages),
        splits=splits,
        sources=tuple(
            total(record.tally for part, record in made if part.source_number == number).with_lines()
            for number in range(len(corpora.sources))
        ),
        group_bytes=tuple(source.group_bytes for source in corpora.sources),
        overlap=overlap.splits,
        groups=groups.checksum,
    )


def _in_order(ended: Iterable[tuple[int, PartRecord]]) -> Iterator[PartRecord]:
    """The records in the order of their parts, whichever ended first."""
    waiting = dict[int, PartRecord]()
    following = 0
    for number, record in ended:
        waiting[number] = record
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _groups(made: list[tuple[Part, PartRecord]], tails: dict[tuple[Split, str], Packer]) -> Groups:
    """Of the documents of all shards, in the shards' order."""
    splits: dict[Split, dict[str, bytes]] = {split: {} for split in HELD_OUT}
    for (split, language), packer in tails.items():
        if split in HELD_OUT:
            own = (record.groups[split] for part, record in made if part.source.language == language)
            splits[split][language] = b"".join([*own, packer.groups.tobytes()])
    return Groups(splits=splits).sealed()


def _pack_part(
    item: str, *, tokenizer_reference: ObjectRef[str], separator: int, corpora: CorporaConfig, dtype: str, folder: str
) -> str:
    """The Ray Data task: a part, as number among all and JSON, to number, node that made it, if it was not there, and
    record."""
    import ray

    # One core was asked for: tokenise in this thread only.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    number, content, near_duplicates = json.loads(item)
    place, part = Location(folder), Part.model_validate_json(content)
    duplicates = duplicates_of(number, place / _DUPLICATES) if corpora.deduplicate else frozenset()
    left_out, made_by = duplicates | frozenset(near_duplicates), None
    record = packed_part(part, place, left_out)
    if record is None:
        tokenizer, made_by = _tokenizer(ray.get(tokenizer_reference)), ray.get_runtime_context().get_node_id()
        record = pack_part(
            part, tokenizer, separator, corpora, np.dtype(dtype), place, duplicates, frozenset(near_duplicates)
        )
    if record.tally.cut_short:  # said now rather than when all else is prepared
        record.tally.require_sound(corpora.malformed_share, part.where)
    return json.dumps([number, made_by, record.model_dump_json()])


@lru_cache(maxsize=1)
def _tokenizer(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # text that spells "[MASK]" is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _require_sequences(manifest: Manifest, corpora: CorporaConfig) -> None:
    every = ((split, language, counts) for split in SPLITS for language, counts in manifest.splits[split].items())
    for split, language, counts in every:
        if counts.sequences:
            continue
        number, source = next((n, s) for n, s in enumerate(corpora.sources) if s.language == language)
        why = f"its {counts.documents} documents there have {counts.tokens} tokens; a sequence "
        why += f"has {manifest.sequence_length}"
        left_out = manifest.overlap[split][language].left_out if split in HELD_OUT else 0
        if left_out:
            why += f"; {left_out} more were left out, because too much of them stands in the training text"
        if source.language_column is not None and not counts.documents:
            why = languages_present(source, f"corpora.sources[{number}]")
        raise InputError(
            f"too little text in '{language}': not one whole sequence in the {split} split",
            where="corpora.sources",
            why=why,
            remedy="add text in this language, or --set corpora.sequence_length=N with a smaller N"
            + ("" if split == "train" else f", or --set corpora.{split}_share=X with a larger X")
            + (", or --set corpora.maximum_overlap=1" if left_out else ""),
        )


def _save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Location) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer.save_pretrained(temporary)
        for file in sorted(Path(temporary).iterdir()):
            (folder / file.name).write_bytes(file.read_bytes())


def _minimal_pairs(corpora: CorporaConfig) -> bytes:
    from trainables.corpora.grammar import minimal_pairs

    pairs = [
        pair._replace(language=source.language)
        for source in corpora.sources
        if source.grammar is not None
        for pair in minimal_pairs(source.grammar, corpora.minimal_pairs_per_language, source.seed)
    ]
    return "".join(json.dumps(pair._asdict(), ensure_ascii=False) + "\n" for pair in pairs).encode()
