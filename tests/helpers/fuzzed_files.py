"""Files of every format, changed at random, and what reading them must not do."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.files import compressed
from tests.helpers.fuzzing import try_all
from tests.helpers.mutations import mutated
from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig
from trainables.corpora.preparation import packing, parts
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading.check import check_sources, languages_present
from trainables.corpora.reading.documents import Allowance, read_documents
from trainables.corpora.reading.portions import divide, expand
from trainables.corpora.reading.tally import Tally
from trainables.corpora.stream.checksums import checksum
from trainables.corpora.stream.manifest import FORMAT_VERSION, SPLITS, LanguageCounts, Manifest, Shard
from trainables.corpora.stream.packed import PackedCorpus
from trainables.storage import Location

TEXTS = [f"text {number} 日本 é \U0001f600 'quoted', \"twice\"; " + "word " * (number % 40) for number in range(80)]
LANGUAGES = ["en" if number % 3 else "sw" for number in range(len(TEXTS))]
IDS = [f"id-{number}" for number in range(len(TEXTS))]
COLUMNS = {"text": TEXTS, "id": IDS, "lang": LANGUAGES}

LENGTH = 8
MOST_CHARACTERS = 20_000_000


def json_lines() -> bytes:
    rows = zip(TEXTS, IDS, LANGUAGES, strict=True)
    lines = [json.dumps({"text": text, "id": i, "lang": lang}, ensure_ascii=len(i) % 2 == 0) for text, i, lang in rows]
    return "\n".join(lines).encode() + b"\n"


def plain_text() -> bytes:
    return "\n\n".join(TEXTS).encode()


def parquet(generator: random.Random) -> bytes:
    types = [pa.string(), pa.large_string(), pa.string_view(), pa.binary()]
    kind = generator.choice(types)
    texts = [text.encode() if kind == pa.binary() else text for text in TEXTS]
    ids: pa.Array = pa.array(range(len(TEXTS)), pa.timestamp("s")) if generator.random() < 0.2 else pa.array(IDS)
    table = pa.table({"text": pa.array(texts, kind), "id": ids, "lang": LANGUAGES})
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        row_group_size=generator.choice([7, 80]),
        compression=generator.choice(["none", "snappy", "zstd", "gzip"]),
        use_dictionary=generator.random() < 0.5,
        data_page_version=generator.choice(["1.0", "2.0"]),
    )
    return file.getvalue()


def arrow(generator: random.Random) -> bytes:
    table, sink = pa.table(COLUMNS), io.BytesIO()
    kind = generator.choice([pa.ipc.new_file, pa.ipc.new_stream])
    with kind(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    return sink.getvalue()


TEXT_SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".txt", ".txt.gz", ".txt.zst"]


def text_file(folder: Path, generator: random.Random) -> None:
    suffix = generator.choice(TEXT_SUFFIXES)
    content = plain_text() if ".txt" in suffix else json_lines()
    if generator.random() < 0.6:
        content = compressed(mutated(content, generator), Path(suffix).suffix)
    else:
        content = mutated(compressed(content, Path(suffix).suffix), generator)
    (folder / f"a{generator.choice([suffix, suffix.upper()])}").write_bytes(content)
    read_source(SourceConfig(language="en", files=f"{folder}/*", **columns(generator)), generator)


def table_file(folder: Path, generator: random.Random) -> None:
    (folder / "a.parquet").write_bytes(mutated(parquet(generator), generator))
    read_source(SourceConfig(language="en", files=f"{folder}/*", **columns(generator)), generator)


def data_set(folder: Path, generator: random.Random) -> None:
    """A folder of files, or one that save_to_disk wrote."""
    kind = generator.choice(["saved", ".csv", ".json", ".arrow", ".jsonl", ".parquet"])
    if kind == "saved":
        datasets.Dataset.from_dict(COLUMNS).save_to_disk(folder)
        file = generator.choice(sorted(folder.iterdir()))
        file.write_bytes(mutated(file.read_bytes(), generator))
    else:
        rows = [",".join(map(json.dumps, row)) for row in zip(*COLUMNS.values(), strict=True)]
        contents = {
            ".csv": "\n".join([",".join(COLUMNS), *rows]).encode(),
            ".json": json.dumps([json.loads(line) for line in json_lines().splitlines()]).encode(),
            ".jsonl": json_lines(),
        }
        content = contents.get(kind) or (arrow(generator) if kind == ".arrow" else parquet(generator))
        (folder / f"train{kind}").write_bytes(mutated(content, generator))
    read_source(SourceConfig(language="en", dataset=str(folder), **columns(generator)), generator)


def columns(generator: random.Random) -> dict[str, str]:
    """Which columns a source has."""
    return {
        name: column for name, column in (("id_column", "id"), ("language_column", "lang")) if generator.random() < 0.3
    }


def read_source(source: SourceConfig, generator: random.Random) -> None:
    """As a preparation does: its head, then all of it, whole and in ranges; each may refuse it."""
    steps: list[Callable[[], None]] = [
        lambda: check_sources([source], generator.choice([0.0, 0.1, 1.0])),
        lambda: read_portions(source, 1 << 40),
        lambda: read_portions(source, 2000),
    ]
    if source.language_column is not None:
        steps.append(lambda: print(languages_present(source, "source"), file=io.StringIO()))
    try_all(steps)


def read_portions(source: SourceConfig, size_bytes: int) -> None:
    tally, allowance = Tally(), Allowance(MOST_CHARACTERS)
    for portion in expand(source):
        for piece in divide(portion, size_bytes):
            for document in read_documents(piece, source, "source", tally, allowance):
                document.text.encode()
                document.document_id.encode()
    for line in tally.with_lines().warnings("source"):
        line.encode()
    tally.require_sound(0.1, "source")


def corpus(folder: Path) -> Manifest:
    """A packed corpus by hand, with its minimal pairs."""
    splits: dict[str, dict[str, LanguageCounts]] = {}
    for split in SPLITS:
        name = f"shards/{split}/en-00000-000.npy"
        (folder / name).parent.mkdir(parents=True)
        np.save(folder / name, np.arange(5 * LENGTH, dtype=np.uint16).reshape(5, LENGTH))
        shard = Shard(file=name, sequences=5, checksum=checksum((folder / name).read_bytes()))
        splits[split] = {"en": LanguageCounts(documents=3, tokens=40, sequences=5, shards=(shard,))}
    manifest = Manifest.model_validate(
        {
            "format_version": FORMAT_VERSION,
            "fingerprint": "fuzzed",
            "vocabulary_size": 100,
            "sequence_length": LENGTH,
            "dtype": "uint16",
            "pad_token": 0,
            "mask_token": 4,
            "separator_token": 3,
            "special_tokens": (0, 1, 2, 3, 4),
            "languages": ("en",),
            "splits": splits,
            "sources": (Tally(documents=9),),
        }
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    pair = {"language": "en", "phenomenon": "agreement", "good": "a b", "bad": "b a"}
    (folder / "minimal_pairs.jsonl").write_text((json.dumps(pair) + "\n") * 3)
    return manifest


def packed_corpus(folder: Path, generator: random.Random) -> None:
    """The manifest, the minimal pairs or a shard is changed."""
    corpus(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = generator.choice([folder / "manifest.json", folder / "minimal_pairs.jsonl", *files])
    file.write_bytes(mutated(file.read_bytes(), generator))
    opened = PackedCorpus(Location(folder))
    for split in SPLITS:
        for language in opened.languages:
            opened.take(split, language, np.arange(min(1000, opened.sequences(split, language))))
    opened.minimal_pairs()
    _ = opened.manifest.required_mask_token if opened.manifest.mask_token is not None else 0


TOKENIZER = TokenizerConfig.model_validate({"train": {"type": "byte_bpe", "vocabulary_size": 300}})


def part_record(folder: Path, generator: random.Random) -> None:
    """A part's record is changed: it is taken as it was, or the part is made again, to the same bytes."""
    (folder / "a.jsonl").write_bytes(json_lines())
    source = SourceConfig(language="en", files=f"{folder}/a.jsonl")
    corpora = CorporaConfig(sources=(source,), sequence_length=LENGTH, validation_share=0.1, test_share=0.1)
    (part,) = parts.cut(corpora)
    tokenizer, place = make_tokenizer(corpora, TOKENIZER).backend_tokenizer, Location(folder / "corpus")

    def made() -> parts.PartRecord:
        there = packing.packed_part(part, place, frozenset())
        return there or packing.pack_part(part, tokenizer, 3, corpora, np.dtype("uint16"), place)

    before = made()
    content = {path: path.read_bytes() for path in sorted((folder / "corpus").rglob("*")) if path.is_file()}
    file = generator.choice(list(content))
    file.write_bytes(mutated(content[file], generator))
    assert made() == before
    assert all(path.read_bytes() == content[path] for path in content if path.suffix == ".npy")


CASES = [*[text_file] * 6, *[table_file] * 5, *[data_set] * 3, *[packed_corpus] * 4, part_record]


def prepare(folder: Path) -> None:
    datasets.disable_progress_bars()
    datasets.config.HF_DATASETS_CACHE = folder
