"""Preparation: every document once, in its split, in order, packed without loss; the same everywhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import random
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from orchestrator.planning import preflight
from tests.helpers.preparation import LENGTH, TOKENIZER, corpora_of, files_of, in_this_process, write_language
from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig
from trainables.corpora.preparation import duplicates, packing, parts, tokenizer_sample
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.fingerprint import fingerprint
from trainables.corpora.preparation.parts import Part, cut
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.progress import Meter, Progress
from trainables.corpora.preparation.splits import split_of
from trainables.corpora.preparation.tokenizer_sample import documents_in_turn, make_tokenizer, sample
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.reading import documents as documents_module
from trainables.corpora.reading import lines as lines_module
from trainables.corpora.reading import portions as portions_module
from trainables.corpora.reading.documents import Allowance
from trainables.corpora.reading.portions import Portion, expand
from trainables.corpora.reading.reader import Malformed
from trainables.corpora.reading.tally import Tally
from trainables.corpora.stream import checksums, packed
from trainables.corpora.stream.manifest import SPLITS, token_dtype
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import load_tokenizer, unknown_tokens
from trainables.errors import InputError
from trainables.storage import Location


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[tuple[str, str]]]]:
    folder = tmp_path_factory.mktemp("text")
    return folder, {"en": write_language(folder, "en", 400, num_files=3), "fr": write_language(folder, "fr", 150)}


@pytest.fixture(scope="module")
def tokenizer(text: tuple[Path, object]) -> PreTrainedTokenizerFast:
    return make_tokenizer(corpora_of(text[0]), TOKENIZER)


@pytest.fixture(scope="module")
def prepared(
    ray_cluster: None,
    text: tuple[Path, object],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> PackedCorpus:
    store = Location(tmp_path_factory.mktemp("store"))
    manifest = prepare(corpora_of(text[0]), tokenizer, store)
    return PackedCorpus(store / manifest.fingerprint)


def reference_split(document_id: str) -> str:
    place = int(hashlib.blake2b(document_id.encode(), digest_size=8).hexdigest(), 16) / (1 << 64)
    return "validation" if place < 0.1 else "test" if place < 0.2 else "train"


def reference_tokens(tokenizer: PreTrainedTokenizerFast, documents: list[tuple[str, str]], split: str) -> list[int]:
    """Tokenised one by one, by another route than the product's."""
    tokens = []
    for document_id, content in documents:
        if reference_split(document_id) == split:
            tokens += tokenizer(content, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            tokens.append(tokenizer.sep_token_id)
    return tokens


def reference_sequences(parts: list[list[int]], length: int = LENGTH) -> list[int]:
    """Of the parts' tokens: each part's whole sequences, then those of all that is left over."""
    whole = [tokens[: len(tokens) - len(tokens) % length] for tokens in parts]
    left = [token for own, tokens in zip(whole, parts, strict=True) for token in tokens[len(own) :]]
    return [token for own in whole for token in own] + left[: len(left) - len(left) % length]


def everything(corpus: PackedCorpus, split: str, language: str) -> np.ndarray:
    return corpus.take(split, language, np.arange(corpus.sequences(split, language)))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("language", ["en", "fr"])
def test_nothing_is_lost_but_the_tail(prepared, text, tokenizer, split, language) -> None:
    expected = reference_tokens(tokenizer, text[1][language], split)
    counts = prepared.manifest.splits[split][language]
    assert counts.documents == expected.count(tokenizer.sep_token_id)
    assert counts.tokens == len(expected)
    assert counts.sequences == len(expected) // LENGTH
    assert everything(prepared, split, language).ravel().tolist() == expected[: counts.sequences * LENGTH]


def test_documents_come_back_in_order(prepared, text, tokenizer) -> None:
    whole = prepared.tokenizer().decode(everything(prepared, "train", "fr").ravel())
    expected = "".join(t + "[SEP]" for i, t in text[1]["fr"] if reference_split(i) == "train")
    assert expected.startswith(whole[:-3]), "the end may be cut within a character"
    assert len(whole) > len(expected) - 60
    assert tokenizer.mask_token_id not in everything(prepared, "train", "fr"), "a spelt [MASK] is text"


def test_the_manifest(prepared, tokenizer) -> None:
    manifest = prepared.manifest
    assert (manifest.pad_token, manifest.mask_token, manifest.separator_token) == (0, 4, 3)
    assert manifest.special_tokens == (0, 1, 2, 3, 4)
    assert (manifest.vocabulary_size, manifest.sequence_length, manifest.dtype) == (320, LENGTH, "uint16")
    assert prepared.languages == ("en", "fr")
    assert manifest.fingerprint == prepared.folder.name
    for split in SPLITS:
        for counts in manifest.splits[split].values():
            for shard in counts.shards:
                content = (prepared.folder / shard.file).read_bytes()
                assert hashlib.blake2b(content, digest_size=16).hexdigest() == shard.checksum
                array = np.load(prepared.folder.local / shard.file)
                assert array.shape == (shard.sequences, LENGTH)
                assert array.flags.c_contiguous
    assert prepared.minimal_pairs() == []


def test_the_smallest_type_that_holds_the_vocabulary() -> None:
    assert (token_dtype(65_536), token_dtype(65_537)) == ("uint16", "uint32")


def test_take(prepared) -> None:
    whole = everything(prepared, "train", "en")
    indices = np.random.default_rng(0).integers(0, len(whole), 50)
    copy = pickle.loads(pickle.dumps(prepared))
    for corpus in (prepared, copy):
        taken = corpus.take("train", "en", indices)
        assert taken.dtype == np.uint16
        assert (taken == whole[indices]).all()
    assert len(pickle.dumps(prepared)) < 1000, "neither shards nor the manifest travel"
    assert pickle.loads(pickle.dumps(prepared)) is copy, "a process maps each shard once"
    assert prepared.take("train", "en", np.array([], dtype=np.int64)).shape == (0, LENGTH)
    for index in (-1, len(whole)):
        with pytest.raises(IndexError):
            prepared.take("train", "en", np.array([index]))


def test_several_parts_and_shards(prepared, text, tokenizer, tmp_path, monkeypatch) -> None:
    """Shards are cut between sequences, so cutting them changes nothing."""
    monkeypatch.setattr(packing, "SHARD_TOKENS", 500)
    config = corpora_of(text[0])
    (part,) = [part for part in cut(config) if part.source.language == "en"]
    assert len(part.portions) == 3
    record = packing.pack_part(
        part,
        preparation._tokenizer(tokenizer.backend_tokenizer.to_str()),
        3,
        config,
        np.dtype("uint16"),
        Location(tmp_path),
    )
    train = record.splits["train"]
    assert len(train.shards) > 5
    rows = np.concatenate([np.load(tmp_path / shard.file) for shard in train.shards])
    assert (rows == everything(prepared, "train", "en")).all()


def test_small_files_join_and_large_ones_stand_alone(tmp_path, monkeypatch) -> None:
    for number, size in enumerate([30, 30, 30, 500, 30]):
        (tmp_path / f"{number}.txt").write_text("x" * size)
    monkeypatch.setattr(portions_module, "PART_BYTES", 70)
    source = {"language": "en", "files": f"{tmp_path}/*.txt"}
    parts = cut(CorporaConfig.model_validate({"sources": [source, source]}))
    names = [[Path(portion.name).stem for portion in part.portions] for part in parts]
    assert names == 2 * [["0", "1"], ["2"], ["3"], ["4"]]
    assert [part.number for part in parts] == list(range(8)), "no two parts of a language write one file"
    assert Part.model_validate_json(parts[0].model_dump_json()) == parts[0]


def test_a_small_files_size_is_not_asked_for_with_each_other_file(monkeypatch) -> None:
    asked: list[str] = []

    class Counted(Portion):
        @property
        def size_bytes(self) -> int:
            asked.append(self.name)
            return 10

    small = [Counted(f"{number}.txt", 10) for number in range(300)]
    monkeypatch.setattr(parts, "expand", lambda *_: small)
    (part,) = cut(CorporaConfig.model_validate({"sources": [{"language": "en", "files": "*.txt"}]}))
    assert len(part.portions) == 300
    assert len(asked) < 10 * 300


def test_shards_of_a_data_set_of_unknown_size_are_tasks_of_their_own(tmp_path) -> None:
    for number in range(4):
        (tmp_path / f"train-{number}.jsonl").write_text('{"text": "a document"}\n' * 20)
    source = {"language": "en", "dataset": str(tmp_path)}
    parts = cut(CorporaConfig.model_validate({"sources": [source]}))
    assert [[portion.start for portion in part.portions] for part in parts] == [[0], [1], [2], [3]]


def test_all_parts_are_of_one_commit(tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    """The branch moves with every question, and the hub is asked once."""
    commits = iter("abcdef")
    read: list[str] = []
    load_dataset = datasets.load_dataset

    def answer(_: str, __: str | None, *, revision: str, **options: object) -> object:
        read.append(revision)
        return load_dataset(str(tmp_path / "hub"), split="train", streaming=True)

    def dataset_info(_: object, __: str, revision: str | None) -> object:
        return SimpleNamespace(sha=next(commits) * 40)

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    monkeypatch.setattr(preparation, "run_job", lambda task, items: map(task, items))
    (tmp_path / "hub").mkdir()
    for number in range(2):
        lines = [json.dumps({"text": f"text {number} {n} of {n * n * 17}"}) + "\n" for n in range(300)]
        (tmp_path / "hub" / f"train-{number}.jsonl").write_text("".join(lines))
    config = CorporaConfig.model_validate(
        {
            "sources": [{"language": "en", "dataset": "owner/name"}],
            "sequence_length": LENGTH,
            "validation_share": 0.1,
            "test_share": 0.1,
        }
    )
    manifest = prepare(config, tokenizer, Location(tmp_path / "store"))
    assert len(manifest.splits["train"]["en"].shards) == 2
    assert len(read) >= 3
    assert set(read) == {"a" * 40}
    of_a, of_b = (
        config.model_copy(update={"sources": (config.sources[0].model_copy(update={"revision": one * 40}),)})
        for one in "ab"
    )
    assert fingerprint(of_a, tokenizer) == manifest.fingerprint != fingerprint(of_b, tokenizer)


def test_many_parts_keep_their_order(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    shards = manifest.splits["train"]["en"].shards
    names = [f"shards/train/en-{part}-000.npy" for part in ("00000", "00001", "00002", "tails")]
    assert [shard.file for shard in shards] == names
    assert manifest.splits["train"]["en"].tokens == len(reference_tokens(tokenizer, text[1]["en"], "train"))


def test_a_rare_language_in_every_part_of_a_mixed_file(tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    """A few documents a part: no part fills a sequence with them, all parts together fill many."""
    length, part_bytes = 64, 8000
    generator = random.Random(0)
    parts: dict[str, list[list[tuple[str, str]]]] = {"en": [], "sw": []}
    lines, begin_bytes = list[str](), 0
    for number in range(3000):
        language = "sw" if number % 20 == 7 else "en"
        content = " ".join(generator.choices(["ab", "cde", "fé", "日本"], k=generator.randint(3, 12)))
        lines.append(json.dumps({"id": str(number), "lang": language, "text": content}) + "\n")
        while len(parts["en"]) <= begin_bytes // part_bytes:
            for own in parts.values():
                own.append([])
        parts[language][-1].append((str(number), content))
        begin_bytes += len(lines[-1].encode())
    (tmp_path / "mixed.jsonl").write_text("".join(lines))
    monkeypatch.setattr(portions_module, "PART_BYTES", part_bytes)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", part_bytes // 4)
    monkeypatch.setattr(preparation, "run_job", in_this_process)  # other processes have blocks of their own
    columns = {"id_column": "id", "language_column": "lang"}
    sources = [{"language": one, "files": f"{tmp_path}/mixed.jsonl", **columns} for one in parts]
    config = corpora_of(tmp_path, sources=sources, sequence_length=length, maximum_overlap=1)
    manifest = prepare(config, tokenizer, Location(tmp_path / "store"))
    assert len(parts["en"]) > 20
    corpus = PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint)
    for language, own in parts.items():
        for split in SPLITS:
            tokens = [reference_tokens(tokenizer, part, split) for part in own]
            counts = manifest.splits[split][language]
            assert everything(corpus, split, language).ravel().tolist() == reference_sequences(tokens, length)
            assert counts.documents == sum(part.count(tokenizer.sep_token_id) for part in tokens)
            assert counts.tokens == sum(map(len, tokens))
            assert counts.tokens - counts.sequences * length in range(length), "so much is lost"
            if (language, split) == ("sw", "validation"):
                assert counts.sequences > 2 * sum(len(part) // length for part in tokens), "of parts alone"
            assert counts.sequences > 2


def test_parts_grow_with_the_text() -> None:
    sizes = {total >> 20: portions_module.part_size(total) >> 20 for total in (1 << 30, 32 << 30, 500 << 30)}
    assert sizes == {1 << 10: 8, 32 << 10: 16, 500 << 10: 64}


def test_prepared_once_and_alike_everywhere(prepared, text, tokenizer, tmp_path, monkeypatch) -> None:
    again = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    assert again == prepared.manifest
    folder, other = prepared.folder.local, tmp_path / again.fingerprint
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    assert [(folder / file).read_bytes() for file in files] == [(other / file).read_bytes() for file in files]
    monkeypatch.setattr(preparation, "_pack", None)
    assert prepare(corpora_of(text[0], alpha=0.7), tokenizer, Location(tmp_path)) == again, "not prepared again"


def test_the_fingerprint(text, tokenizer, tmp_path) -> None:
    write_language(tmp_path, "en", 100)
    base = corpora_of(tmp_path, "en")
    before = fingerprint(base, tokenizer)
    assert len(before) == 16
    assert fingerprint(corpora_of(tmp_path, "en", alpha=1.0, maximum_repetition=2.0), tokenizer) == before
    other_tokenizer = make_tokenizer(
        base, TokenizerConfig.model_validate({"train": {"type": "byte_bpe", "vocabulary_size": 300}})
    )
    changed = [
        fingerprint(corpora_of(tmp_path, "en", sequence_length=8), tokenizer),
        fingerprint(corpora_of(tmp_path, "en", test_share=0.2), tokenizer),
        fingerprint(base, other_tokenizer),
    ]
    (file,) = tmp_path.glob("*.gz")
    os.utime(file, (1, 1))
    assert fingerprint(base, tokenizer) == before, "a copied file is the same file"
    file.write_bytes(file.read_bytes() + gzip.compress(b'{"id": "new", "text": "more"}\n'))
    changed.append(fingerprint(base, tokenizer))
    assert len({before, *changed}) == 5


@pytest.mark.parametrize(
    "changed",
    [
        {"sep_token": "[CLS]"},
        {"mask_token": None},
        {"mask_token": "[UNK]"},
        {"pad_token": "[UNK]"},
        {"sep_token": None, "eos_token": "[CLS]"},
        {"cls_token": None},
    ],
)
def test_the_same_pieces_with_other_special_tokens_are_another_corpus(text, tokenizer, tmp_path, changed) -> None:
    """Two tokenizers of one tokenizer.json: what separates documents and what is masked is in another file."""
    config = corpora_of(text[0], "fr")
    tokenizer.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    same = load_tokenizer(str(tmp_path))
    assert fingerprint(config, same) == fingerprint(config, tokenizer)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, **changed}))
    other = load_tokenizer(str(tmp_path))
    assert other.backend_tokenizer.to_str() == same.backend_tokenizer.to_str()
    assert fingerprint(config, other) != fingerprint(config, tokenizer)


def test_the_splits_have_their_shares() -> None:
    counts = Counter(split_of(f"document {number}", 0.02, 0.05) for number in range(50_000))
    assert counts["validation"] / 50_000 == pytest.approx(0.02, abs=0.003)
    assert counts["test"] / 50_000 == pytest.approx(0.05, abs=0.004)
    moved = [n for n in range(5000) if split_of(str(n), 0.02, 0.05) == "validation" != split_of(str(n), 0.04, 0.05)]
    assert not moved, "a larger share keeps the documents of a smaller one"


def test_the_sample_is_balanced_and_for_training_only(text) -> None:
    folder, documents = text
    by_text = {content: (language, i) for language, items in documents.items() for i, content in items}

    def sampled(alpha: float, sample_bytes: int) -> dict[str, int]:
        sizes: dict[str, int] = defaultdict(int)
        for content in sample(corpora_of(folder, alpha=alpha), sample_bytes):
            language, document_id = next(by_text[whole] for whole in by_text if whole.startswith(content))
            assert reference_split(document_id) == "train"
            sizes[language] += len(content.encode())
        return sizes

    equal = sampled(0.0, 10_000)
    assert equal["en"] == pytest.approx(equal["fr"], rel=0.01)
    assert 9_990 <= sum(equal.values()) <= 10_000
    natural = sampled(1.0, 10_000)
    assert natural["en"] / natural["fr"] == pytest.approx(400 / 150, rel=0.25)
    everything_there_is = sampled(0.0, 10**7)
    train_bytes = {
        language: sum(len(t.encode()) for i, t in items if reference_split(i) == "train")
        for language, items in documents.items()
    }
    assert everything_there_is == train_bytes, "what one language lacks is taken from the other"


def test_the_sample_knows_the_languages_of_one_file(tmp_path, monkeypatch) -> None:
    """Nine parts English and one Swahili, in one file, sorted: with alpha = 1 the sample is of the same mix."""
    monkeypatch.setattr(portions_module, "PART_BYTES", 2000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    lines = [
        json.dumps({"lang": language, "text": f"{language} {number:05d} " + "word " * 8}) + "\n"
        for language, num_documents in (("en", 9000), ("sw", 1000))
        for number in range(num_documents)
    ]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    sources = [
        {"language": language, "files": f"{tmp_path}/a.jsonl", "language_column": "lang"} for language in ("en", "sw")
    ]
    config = CorporaConfig.model_validate({"sources": sources, "alpha": 1.0})
    sampled = Counter(content[:2] for content in sample(config, 30_000))
    assert sampled["sw"] / sampled.total() == pytest.approx(0.1, abs=0.04)


def test_the_sample_is_spread_over_files(tmp_path) -> None:
    for number in range(100):
        (tmp_path / f"{number:03d}.jsonl").write_text(json.dumps({"text": f"document of file {number}"}) + "\n")
    source = SourceConfig(language="en", files=f"{tmp_path}/*.jsonl")
    turns = documents_in_turn([(source, portion) for portion in expand(source)], Allowance(1e9))
    numbers = [int(document.text.split()[-1]) for document in turns]
    assert sorted(numbers) == list(range(100))
    assert max(numbers[:25]) > 90


def test_the_sample_is_spread_over_a_large_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 2000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    lines = [json.dumps({"text": f"{number:05d} " + "word " * 8}) + "\n" for number in range(5000)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    config = CorporaConfig.model_validate({"sources": [{"language": "en", "files": f"{tmp_path}/a.jsonl"}]})
    numbers = [int(content[:5]) for content in sample(config, 3000) if content[4:5].isdigit()]
    assert max(numbers) > 4500


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_is_read_before_ray_starts_is_bounded(tmp_path, monkeypatch, name) -> None:
    """A rare language in a file of several: neither is the file read to its end for it, nor is it refused."""
    monkeypatch.setattr(tokenizer_sample, "SAMPLE_READ_CHARACTERS", 20_000)
    monkeypatch.setattr(preflight, "CHECK_CHARACTERS", 20_000)
    monkeypatch.setattr(portions_module, "PART_BYTES", 2000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    lines = [
        json.dumps({"lang": "sw" if number == 4999 else "en", "text": f"{number} " + "word " * 8}) + "\n"
        for number in range(5000)
    ]
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.writelines(lines)
    sources = [
        {"language": language, "files": f"{tmp_path}/{name}", "language_column": "lang"} for language in ("en", "sw")
    ]
    config = CorporaConfig.model_validate({"sources": sources})
    records: list[object] = []
    read_records = documents_module.read_records

    def counted(*arguments: object) -> object:
        for item in read_records(*arguments):
            records.append(item)
            yield item

    monkeypatch.setattr(documents_module, "read_records", counted)
    preflight.check_splits(config)
    assert 0 < len(records) * 43 < 60_000
    records.clear()
    assert sum(len(content) for content in sample(config, 4000)) == 4000
    assert 0 < len(records) < 3000, "those of heads that tell the languages' sizes among them"
    monkeypatch.setattr(preflight, "CHECK_CHARACTERS", 1 << 26)
    with pytest.raises(InputError, match=r"no document of 'sw'(?s:.*)there are 1, and"):
        preflight.check_splits(config)


def test_malformed_lines_are_a_share_of_all_languages_records(tmp_path) -> None:
    tally = Tally(documents=20, other_languages=19_980)
    for _ in range(4):
        tally.count(Malformed("a line is not JSON", "a.jsonl, line 1", "why", "remedy"))
    tally.require_sound(0.001, "corpora.sources[1]")
    assert "4 of 20004 records" in tally.warnings("corpora.sources[1]")[0]
    with pytest.raises(InputError, match=r"0\.020%"):
        tally.require_sound(0.0001, "corpora.sources[1]")


def test_a_mistake_in_a_task_comes_out_as_itself(text, tokenizer, ray_cluster, tmp_path, capfd) -> None:
    write_language(tmp_path, "en", 300)
    file = tmp_path / "fr-0.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": 1, "text": "good"}\n' * 250 + b"{oops\n"))
    with pytest.raises(InputError, match=r"not JSON in fr-0.jsonl.gz(?s:.*)line 251") as caught:
        prepare(corpora_of(tmp_path), tokenizer, Location(tmp_path / "store"))
    assert type(caught.value) is InputError
    assert not list((tmp_path / "store").glob("*/manifest.json"))
    console = "".join(capfd.readouterr())
    assert "Traceback" not in console
    assert "ERROR" not in console


def test_a_file_cut_short_is_refused_by_its_task(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    """Half of a language is missing, and it is one malformed record of many."""
    monkeypatch.setattr(preparation, "run_job", lambda task, items: map(task, items))
    write_language(tmp_path, "en", 3000)
    write_language(tmp_path, "fr", 300)
    file = tmp_path / "en-0.jsonl.gz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    store = Location(tmp_path / "store")
    with pytest.raises(InputError, match=r"cannot be read to its end(?s:.*)en-0.jsonl.gz, line \d+"):
        prepare(corpora_of(tmp_path, malformed_share=0.5), tokenizer, store)
    manifest = prepare(corpora_of(tmp_path, malformed_share=1.0), tokenizer, store)
    assert 1000 < manifest.sources[0].documents < 2000
    assert "the rest of 1 files" in preparation.warnings(manifest)[0]
    with pytest.raises(InputError, match="no share below 1 tolerates it"):
        prepare(corpora_of(tmp_path, malformed_share=0.5), tokenizer, store)


def test_malformed_records_are_counted_and_named(text, tokenizer, ray_cluster, tmp_path) -> None:
    documents = write_language(tmp_path, "en", 1000)
    write_language(tmp_path, "fr", 300)
    file = tmp_path / "en-0.jsonl.gz"
    whole = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(b'{"id": "x", "text": 5}\n' + whole + b'{"id": "y", "text": " "}\n'))
    corpora = corpora_of(tmp_path, malformed_share=1 / 1002)
    manifest = prepare(corpora, tokenizer, Location(tmp_path / "store"))
    english, french = manifest.sources
    assert (english.documents, english.empty, english.malformed, french.malformed) == (1000, 1, 1, 0)
    (warning,) = preparation.warnings(manifest)
    assert warning.startswith("corpora.sources[0]: 1 of 1002 records are malformed and left out: ")
    assert f"{file}, line 1" in warning
    tokens = everything(PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint), "train", "en")
    expected = reference_tokens(tokenizer, documents, "train")
    assert tokens.ravel().tolist() == expected[: tokens.size]
    # A share is judged whenever the corpus is asked for, and changing it prepares nothing anew.
    with pytest.raises(InputError, match=r"value of type int(?s:.*)line 1(?s:.*)0.100%(?s:.*)tolerates 0.090%"):
        prepare(corpora_of(tmp_path, malformed_share=0.0009), tokenizer, Location(tmp_path / "store"))


def test_a_file_cut_short_is_counted(text, tokenizer, ray_cluster, tmp_path) -> None:
    write_language(tmp_path, "en", 3000)
    file = tmp_path / "en-0.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot be read to its end(?s:.*)en-0.jsonl.gz, line"):
        prepare(corpora_of(tmp_path, "en"), tokenizer, Location(tmp_path / "store"))
    corpora = corpora_of(tmp_path, "en", malformed_share=1.0)
    manifest = prepare(corpora, tokenizer, Location(tmp_path / "store"))
    assert manifest.sources[0].malformed == 1
    assert "what follows is lost" in preparation.warnings(manifest)[0]


def test_words_characters_and_unknown_tokens_are_counted(prepared, text) -> None:
    for language in ("en", "fr"):
        for split in SPLITS:
            own = [t for i, t in text[1][language] if reference_split(i) == split]
            counts = prepared.manifest.splits[split][language]
            assert counts.words == sum(1 for t in own for word in t.split(" ") if word)
            assert counts.characters == sum(map(len, own))
            assert counts.unknown_tokens == 0, "bytes spell everything"


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece"])
def test_unknown_tokens(kind: str) -> None:
    size = {"type": kind, "vocabulary_size": 100}
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 6))) for _ in range(400)]
    texts = [" ".join(generator.choices(words, k=20)) for _ in range(300)]
    tokenizer = train_tokenizer(TokenizerConfig.model_validate({"train": size}).train, iter(texts))
    is_unknown_V = unknown_tokens(tokenizer.backend_tokenizer)
    assert np.flatnonzero(is_unknown_V).tolist() == [tokenizer.unk_token_id]


class Killed(BaseException):
    """Nothing catches it, as nothing catches a SIGKILL."""


def test_cut_off_at_any_write_it_goes_on_to_the_same_bytes(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    monkeypatch.setattr(duplicates, "run_job", in_this_process)
    corpora = corpora_of(text[0], deduplicate=True)
    write_bytes = Location.write_bytes
    written: list[str] = []

    def counted(location: Location, data: bytes) -> None:
        written.append(location.name)
        write_bytes(location, data)

    monkeypatch.setattr(Location, "write_bytes", counted)
    name = prepare(corpora, tokenizer, Location(tmp_path / "whole")).fingerprint
    expected = files_of(tmp_path / "whole" / name)
    num_writes = len(written)
    assert num_writes > 25
    assert written[-1] == "manifest.json"
    for moment in range(num_writes):
        written.clear()

        def killed(location: Location, data: bytes, moment: int = moment) -> None:
            if len(written) == moment:
                torn = location.local.with_name(f".{location.name}.torn")
                torn.parent.mkdir(parents=True, exist_ok=True)
                torn.write_bytes(data[: len(data) // 2])
                raise Killed
            counted(location, data)

        monkeypatch.setattr(Location, "write_bytes", killed)
        store = Location(tmp_path / str(moment))
        with pytest.raises(Killed):
            prepare(corpora, tokenizer, store)
        assert not (store / name / "manifest.json").exists()
        before = list(written)
        written.clear()
        monkeypatch.setattr(Location, "write_bytes", counted)
        prepare(corpora, tokenizer, store)
        assert files_of(tmp_path / str(moment) / name) == expected
        parts_before = [file for file in before if file.startswith(("en-0", "fr-0")) and file.endswith(".json")]
        assert not set(parts_before) & set(written), "no whole part is made again"


def test_progress_tells_of_every_part(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    seen: list[Progress] = []
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), progress=seen.append)
    assert [(one.stage, one.done, one.parts) for one in seen] == [
        *(("fingerprint", n, 1) for n in (0, 1)),
        *((stage, n, 4) for stage in ("sketches", "overlap", "packing") for n in (0, 1, 2, 3, 4)),
        ("packed", 1, 1),
    ]
    packing = seen[-1].packing
    counts = [counts for split in manifest.splits.values() for counts in split.values()]
    assert packing.tokens == packing.made_tokens == sum(count.tokens for count in counts)
    size_bytes = sum(file.stat().st_size for file in text[0].iterdir())
    assert packing.total_bytes == packing.done_bytes == packing.made_bytes == size_bytes
    assert (packing.parts, packing.made_parts, packing.machines) == (4, 4, 1)
    made_bytes = [one.packing.made_bytes for one in seen if one.stage == "packing"]
    assert made_bytes == sorted(set(made_bytes)), "of every part"


def test_what_was_there_counts_in_no_rate(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    seen: list[Progress] = []
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    folder = tmp_path / manifest.fingerprint
    (folder / "manifest.json").unlink()
    (folder / "parts" / "fr-00000.json").unlink()
    prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), progress=seen.append)
    packing = seen[-1].packing
    assert (packing.parts, packing.made_parts) == (4, 1)
    assert packing.made_tokens == sum(manifest.splits[split]["fr"].tokens for split in SPLITS)
    assert packing.made_bytes == (text[0] / "fr-0.jsonl.gz").stat().st_size
    assert packing.done_bytes == packing.total_bytes > packing.made_bytes


def test_the_rate_and_the_time_left() -> None:
    now = [100.0]
    meter = Meter(lambda: now[0])
    now[0] = 110.0
    meter.begin(4, 1000)
    assert (meter.packing.tokens_per_second, meter.packing.seconds_left) == (None, None)
    meter.count(500, 90, None)
    now[0] = 112.0
    assert meter.packing.tokens_per_second is None, "nobody can tell yet"
    meter.count(100, 40, "one")
    meter.count(100, 20, "other")
    assert meter.packing.tokens_per_second == 30.0
    assert meter.packing.seconds_left == pytest.approx(300 * 2.0 / 200)
    assert (meter.packing.tokens, meter.packing.machines, meter.packing.whole_seconds) == (150, 2, 12.0)


@pytest.mark.parametrize("seed", range(6))
def test_in_whatever_order_parts_end_the_corpus_is_the_same(
    text, tokenizer, ray_cluster, tmp_path, monkeypatch, seed
) -> None:
    """Of all jobs of a preparation; and one that was cut off after some parts goes on in another order."""
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    for limit in ("HASHED_HERE_BYTES", "COMPARED_HERE_BYTES", "COUNTED_HERE_TOKENS"):
        monkeypatch.setattr(preparation, limit, 0)
    corpora, generator = corpora_of(text[0], deduplicate=True), random.Random(seed)
    prepared = {}
    for name in ("in order", "in disorder"):
        if name == "in disorder":
            left = [generator.randrange(24)]  # results, until it is cut off

            def in_any_order(task, items, left=left):
                for item in generator.sample(items, len(items)):
                    left[0] -= 1
                    if left[0] == 0:
                        raise Killed
                    yield task(item)

            job = in_any_order
        else:
            job = in_this_process
        for module in (preparation, duplicates):
            monkeypatch.setattr(module, "run_job", job)
        store = Location(tmp_path / name)
        for _ in range(2):
            with suppress(Killed):
                prepare(corpora, tokenizer, store)
        prepared[name] = files_of(tmp_path / name)
    assert prepared["in disorder"] == prepared["in order"]
    assert f"{fingerprint(corpora, tokenizer)}/manifest.json" in prepared["in order"]


def test_what_was_abandoned_is_removed_when_a_preparation_ends(
    text, tokenizer, ray_cluster, tmp_path, monkeypatch
) -> None:
    """And nothing else: not what may be going on, is whole, or is no corpus."""
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    name = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path)).fingerprint
    expected = files_of(tmp_path / name)
    (tmp_path / name / "manifest.json").unlink()
    now, hour, week = time.time(), 3600.0, 7 * 86_400.0
    old, young = (f"shards/train/.en-00000-000.npy.{digit * 32}" for digit in "0f")
    ages = {
        f"{name}/{old}": 2 * hour,
        f"{name}/{young}": 0.5 * hour,
        "00000000000000aa/parts/en-00000.json": week + hour,  # abandoned
        "00000000000000bb/parts/en-00000.json": week + hour,  # and gone on with
        "00000000000000bb/parts/en-00001.json": week - hour,
        "00000000000000cc/parts/en-00000.json": week + hour,  # whole
        "00000000000000cc/manifest.json": week + hour,
        "notes/parts/en-00000.json": week + hour,
    }
    for file, age in ages.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
        os.utime(tmp_path / file, (now - age, now - age))
    seen: list[Progress] = []
    prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), progress=seen.append)
    assert {file for file in ages if not (tmp_path / file).exists()} == {
        f"{name}/{old}", "00000000000000aa/parts/en-00000.json"
    }  # fmt: skip
    assert not (tmp_path / "00000000000000aa").exists()
    assert seen[-1].packing.abandoned == 1
    assert files_of(tmp_path / name) == expected


@pytest.mark.parametrize("buckets_per_task", [1, 8])
def test_duplicates_are_kept_once(ray_cluster, tokenizer, tmp_path, monkeypatch, buckets_per_task) -> None:
    """Against a dictionary: the first in the order of the sources stays, in whatever part and language."""
    generator = random.Random(0)
    texts = [f"text number {n} of {generator.random()}" for n in range(600)]
    drawn = {
        "en": [generator.choice(texts) for _ in range(900)],
        "fr": [generator.choice(texts) for _ in range(300)] + [f"french {n} {n * n}" for n in range(900)],
    }
    for language, own in drawn.items():
        for number in range(3):
            with gzip.open(tmp_path / f"{language}-{number}.jsonl.gz", "wt") as file:
                part = list(enumerate(own))[number * len(own) // 3 : (number + 1) * len(own) // 3]
                file.writelines(json.dumps({"id": f"{language}/{n}", "text": t}) + "\n" for n, t in part)
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    monkeypatch.setattr(duplicates, "TASK_DOCUMENTS", 2100 // 256 * buckets_per_task)
    manifest = prepare(corpora_of(tmp_path, deduplicate=True), tokenizer, Location(tmp_path / "store"))
    corpus = PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint)
    seen: set[str] = set()
    for language, source in zip(("en", "fr"), manifest.sources, strict=True):
        kept: list[list[tuple[str, str]]] = [[], [], []]
        for number, content in enumerate(drawn[language]):
            if content not in seen:
                seen.add(content)
                kept[number * 3 // len(drawn[language])].append((f"{language}/{number}", content))
        assert source.documents == len(drawn[language])
        assert source.duplicates == len(drawn[language]) - sum(map(len, kept)) > 100
        for split in SPLITS:
            expected = reference_sequences([reference_tokens(tokenizer, part, split) for part in kept])
            assert everything(corpus, split, language).ravel().tolist() == expected


@pytest.mark.parametrize("damage", ["flipped", "missing", "torn"])
def test_damaged_hashes_are_made_again(text, tokenizer, ray_cluster, tmp_path, monkeypatch, damage) -> None:
    """A hash turned into another document's would leave a document out that is there once."""
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    monkeypatch.setattr(duplicates, "run_job", in_this_process)
    corpora = corpora_of(text[0], "fr", deduplicate=True)
    manifest = prepare(corpora, tokenizer, Location(tmp_path / "whole"))
    expected = files_of(tmp_path / "whole")
    folder = tmp_path / "cut off" / manifest.fingerprint / "duplicates/hashes"
    folder.mkdir(parents=True)
    hashes = bytearray(expected[f"{manifest.fingerprint}/duplicates/hashes/000000"])
    rows_begin = 32 + 8 * (duplicates.NUM_BUCKETS + 1)
    hashes[rows_begin : rows_begin + 16] = hashes[rows_begin + 24 : rows_begin + 40]
    if damage == "flipped":
        (folder / "000000").write_bytes(hashes)
    elif damage == "torn":
        (folder / "000000").write_bytes(hashes[:20])
    assert prepare(corpora, tokenizer, Location(tmp_path / "cut off")).sources[0].duplicates == 0
    assert files_of(tmp_path / "cut off") == expected


@pytest.mark.parametrize("damage", ["flipped", "torn", "missing"])
def test_a_damaged_shard_is_named_and_made_again(text, tokenizer, ray_cluster, tmp_path, monkeypatch, damage) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    folder = tmp_path / manifest.fingerprint
    expected = files_of(folder)
    shard = manifest.splits["train"]["en"].shards[1]
    content = bytearray((folder / shard.file).read_bytes())
    content[-5] ^= 4
    (folder / shard.file).unlink()
    if damage != "missing":
        (folder / shard.file).write_bytes(content if damage == "flipped" else expected[shard.file][:-100])
    corpus = PackedCorpus(Location(folder))
    assert len(corpus.take("train", "fr", np.arange(3))) == 3
    last = np.array([corpus.sequences("train", "en") // 2])
    with pytest.raises(InputError, match=r"en-00001-000.npy of the prepared(?s:.*)h2h prepare") as caught:
        corpus.take("train", "en", last)
    assert caught.value.what.endswith("missing" if damage == "missing" else "damaged")
    untouched = (folder / manifest.splits["train"]["fr"].shards[0].file).stat().st_mtime_ns
    assert prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), verify=True) == manifest
    assert files_of(folder) == expected
    assert len(PackedCorpus(Location(folder)).take("train", "en", last)) == 1
    assert (folder / manifest.splits["train"]["fr"].shards[0].file).stat().st_mtime_ns == untouched


def test_a_shard_is_verified_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))
    file = tmp_path / "a.npy"
    file.write_bytes(b"content" * 1000)
    expected = hashlib.blake2b(b"content" * 1000, digest_size=16).hexdigest()
    reads: list[object] = []
    file_digest = hashlib.file_digest
    monkeypatch.setattr(checksums.hashlib, "file_digest", lambda *given: reads.append(given) or file_digest(*given))
    assert all(checksums.is_intact(file, expected) for _ in range(3))
    assert len(reads) == 1
    os.utime(file, ns=(1, 1))
    assert checksums.is_intact(file, expected)
    assert len(reads) == 2, "a file that was touched is read again"
    file.write_bytes(b"c0ntent" * 1000)
    assert not checksums.is_intact(file, expected)


@pytest.mark.parametrize("damage", ["flipped", "missing", "its part's record is damaged too"])
def test_a_shard_of_tails_is_made_again(text, tokenizer, ray_cluster, tmp_path, monkeypatch, damage) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    folder = tmp_path / manifest.fingerprint
    expected = files_of(folder)
    shard = folder / "shards/train/en-tails-000.npy"
    content = bytearray(shard.read_bytes())
    content[-5] ^= 4
    shard.unlink()
    if damage == "flipped":
        shard.write_bytes(content)
    with pytest.raises(InputError, match=r"en-tails-000\.npy of the prepared"):
        everything(PackedCorpus(Location(folder)), "train", "en")
    if damage.endswith("too"):
        tails = {file: json.loads(file.read_text())["tails"]["train"] for file in folder.glob("parts/en-*")}
        record, tail = next((file, tail) for file, tail in tails.items() if tail)
        record.write_text(record.read_text().replace(tail, ("B" if tail[0] == "A" else "A") + tail[1:]))
    assert prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), verify=True) == manifest
    assert files_of(folder) == expected


def test_verifying_on_purpose_finds_what_size_and_time_do_not_show(
    text, tokenizer, ray_cluster, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    folder = tmp_path / manifest.fingerprint
    expected = files_of(folder)
    shard = manifest.splits["validation"]["fr"].shards[0]
    file = folder / shard.file
    before = file.stat()
    content = bytearray(expected[shard.file])
    content[-5] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert checksums.is_intact(file, shard.checksum), "as far as this machine remembers"
    assert prepare(corpora_of(text[0]), tokenizer, Location(tmp_path), verify=True) == manifest
    assert files_of(folder) == expected


def test_what_was_just_written_is_not_read_to_verify_it(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path / "store"))
    corpus = PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint)
    monkeypatch.setattr(checksums.hashlib, "file_digest", None)
    assert len(everything(corpus, "train", "en"))


def test_few_shards_are_mapped_at_once(text, tokenizer, ray_cluster, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    monkeypatch.setattr(packed, "MOST_MAPS", 2)
    manifest = prepare(corpora_of(text[0]), tokenizer, Location(tmp_path))
    corpus = PackedCorpus(Location(tmp_path) / manifest.fingerprint)
    shards = [np.load(tmp_path / manifest.fingerprint / s.file) for s in manifest.splits["train"]["en"].shards]
    assert len(shards) == 4
    looked_at: list[Path] = []
    is_intact = packed.is_intact
    monkeypatch.setattr(packed, "is_intact", lambda *given: looked_at.append(given[0]) or is_intact(*given))
    for _ in range(2):
        assert (everything(corpus, "train", "en") == np.concatenate(shards)).all()
    assert len(mapped_files(tmp_path)) == 2
    assert len(looked_at) == 4, "to map a shard again is not to verify it again"
    shuffled = np.random.default_rng(0).integers(0, corpus.sequences("train", "en"), 500)
    assert (corpus.take("train", "en", shuffled) == np.concatenate(shards)[shuffled]).all()
    assert corpus.take("train", "en", shuffled[:0]).shape == (0, LENGTH)
    for shard in manifest.splits["train"]["en"].shards:
        (corpus.folder / shard.file).delete()
    with pytest.raises(InputError, match="missing"):
        everything(corpus, "train", "en")


def mapped_files(folder: Path) -> set[str]:
    """Files below the folder that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if str(folder) in line}


def test_a_language_with_too_little_text(text, tokenizer, ray_cluster, tmp_path) -> None:
    write_language(tmp_path, "en", 300)
    (tmp_path / "fr-0.jsonl.gz").write_bytes(gzip.compress(b'{"id": 1, "text": "one long enough document only"}\n'))
    with pytest.raises(InputError, match=r"'fr': not one whole sequence in the \w+ split") as caught:
        prepare(corpora_of(tmp_path), tokenizer, Location(tmp_path / "store"))
    assert "--set corpora.sequence_length" in caught.value.remedy
    assert not list((tmp_path / "store").glob("*/manifest.json"))


def test_an_absent_or_foreign_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no prepared corpus"):
        PackedCorpus(Location(tmp_path))
    (tmp_path / "manifest.json").write_text('{"format_version": 999}')
    with pytest.raises(InputError, match="format version is 999"):
        PackedCorpus(Location(tmp_path))
    for damaged in (b'{"format_version": 5, "finger', b"\xff\xfe", b""):
        (tmp_path / "manifest.json").write_bytes(damaged)
        with pytest.raises(InputError, match=r"is damaged(?s:.*)manifest.json(?s:.*)remove the folder"):
            PackedCorpus(Location(tmp_path))


def test_an_object_store_is_read_through_a_cache(prepared, tmp_path, monkeypatch) -> None:
    whole = everything(prepared, "train", "en")
    store = prepared.folder.path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    local = lambda self: None if self.path.startswith(store) else Path(self.path)  # noqa: E731
    monkeypatch.setattr(Location, "local", property(local))
    reads: list[str] = []
    read_bytes = Location.read_bytes

    def counted(location: Location) -> bytes:
        reads.append(location.name)
        return read_bytes(location)

    monkeypatch.setattr(Location, "read_bytes", counted)
    for _ in range(2):
        corpus = PackedCorpus(Location(prepared.folder.uri))
        assert (corpus.take("train", "en", np.arange(len(whole))) == whole).all()
    assert reads.count("en-00000-000.npy") == 1
    assert len(corpus.tokenizer()) == 320


def test_grammars_bring_minimal_pairs(tokenizer, ray_cluster, tmp_path) -> None:
    grammar = pytest.importorskip("trainables.corpora.grammar")
    source = {"language": "xx", "grammar": min(grammar.LANGUAGES), "documents": 300}
    config = CorporaConfig.model_validate(
        {
            "sources": [source],
            "sequence_length": LENGTH,
            "minimal_pairs_per_language": 7,
            "validation_share": 0.1,
            "test_share": 0.1,
        }
    )
    manifest = prepare(config, tokenizer, Location(tmp_path))
    pairs = PackedCorpus(Location(tmp_path) / manifest.fingerprint).minimal_pairs()
    assert len(pairs) == 7
    assert {pair.language for pair in pairs} == {"xx"}
    assert all(pair.good != pair.bad for pair in pairs)


def test_the_configuration_is_checked() -> None:
    source = {"language": "en", "files": "x.txt"}
    cases: list[dict[str, object]] = [
        {"sources": []},
        {"sources": [source], "alpha": 1.5},
        {"sources": [source], "validation_share": 0.6, "test_share": 0.4},
        {"sources": [source], "sequence_length": 4},
    ]
    for fields in cases:
        with pytest.raises(ValidationError):
            CorporaConfig.model_validate(fields)


@pytest.mark.skipif("H2H_TEST_DATA" not in os.environ, reason="needs H2H_TEST_DATA, a folder of real text")
def test_real_text(ray_cluster, tmp_path) -> None:
    folder = Path(os.environ["H2H_TEST_DATA"]) / "corpus"
    sources = [
        {"language": language, "files": f"{folder}/{language}.jsonl.gz", "id_column": "doc_id"}
        for language in ("sw", "te", "fi")
    ]
    config = CorporaConfig.model_validate({"sources": sources})
    size = {"vocabulary_size": 2000, "sample_bytes": 500_000}
    tokenizer = make_tokenizer(config, TokenizerConfig.model_validate({"train": size}))
    manifest = prepare(config, tokenizer, Location(tmp_path))
    corpus = PackedCorpus(Location(tmp_path) / manifest.fingerprint)
    for language in corpus.languages:
        tokens = everything(corpus, "train", language)
        assert corpus.sequences("train", language) > 1000
        assert (tokens == tokenizer.unk_token_id).mean() < 0.01
