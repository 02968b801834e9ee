"""Text to prepare, its configuration, and what a preparation leaves."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from types import SimpleNamespace

from trainables.corpora.config import CorporaConfig, TokenizerConfig

LENGTH = 16
TOKENIZER = TokenizerConfig.model_validate({"train": {"type": "byte_bpe", "vocabulary_size": 320}})


def write_language(folder: Path, language: str, num_documents: int, num_files: int = 1) -> list[tuple[str, str]]:
    """Write files of documents (id, text), two of which spell special tokens; return them in order."""
    generator = random.Random(language)
    folder.mkdir(parents=True, exist_ok=True)
    words = ["".join(generator.choices("abcdefgé日本हि", k=4)) for _ in range(200)]
    documents = [
        (f"{language}/{number}", " ".join(generator.choices(words, k=generator.randint(3, 40))))
        for number in range(num_documents)
    ]
    documents[3] = (documents[3][0], f"{language} text that spells [MASK] and [SEP] is text")
    for number in range(num_files):
        own = documents[number * num_documents // num_files : (number + 1) * num_documents // num_files]
        with gzip.open(folder / f"{language}-{number}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in own)
    return documents


def corpora_of(folder: Path, languages: str = "en fr", **fields: object) -> CorporaConfig:
    sources = [
        {"language": language, "files": f"{folder}/{language}-*.jsonl.gz", "id_column": "id"}
        for language in languages.split()
    ]
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": LENGTH}
    return CorporaConfig.model_validate({"sources": sources, **shares, **fields})


def in_this_process(task, items):
    """What a Ray Data job does, without its processes."""
    return map(task, items)


def ray_of_this_process() -> SimpleNamespace:
    """What a preparation asks of Ray beside its jobs, without a cluster."""
    context = SimpleNamespace(get_node_id=lambda: "here")
    return SimpleNamespace(
        put=lambda value: value, get=lambda reference: reference, get_runtime_context=lambda: context
    )


def files_of(folder: Path) -> dict[str, bytes]:
    """What a preparation leaves, without the temporary files of one that was killed."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
