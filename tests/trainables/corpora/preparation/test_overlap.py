"""Held-out text that stands in training text too: measured against sets of tuples, left out, and counted."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.reporting.corpus import held_out_table
from tests.helpers.preparation import TOKENIZER, corpora_of, files_of, in_this_process
from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation import ngrams as ngrams_module
from trainables.corpora.preparation import overlap as overlap_module
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.ngrams import batches, ngrams
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.splits import split_of
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading import portions
from trainables.corpora.stream.manifest import HELD_OUT, Manifest
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location

DATA = Path(os.environ.get("H2H_TEST_DATA", "/nowhere")) / "corpus"


@pytest.fixture(autouse=True)
def here(ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "run_job", in_this_process)


def words_of(text: str, size: int = 8) -> set[tuple[str, ...]]:
    """Its n-grams of words, of a shorter text all its words."""
    words = text.casefold().split()
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)} or {tuple(words)}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "bc", "Bc", "d-e", "ఖమ్మం", "é"]), max_size=30), min_size=1, max_size=12))
def test_as_many_ngrams_as_there_are_tuples(lists: list[list[str]]) -> None:
    texts = [" , ".join(words) for words in lists]
    found = ngrams(texts)
    plain = [" ".join(text.replace("-", " ").replace(",", " ").split()) for text in texts]
    expected = [words_of(text) - {()} for text in plain]
    assert [len(set(found.hash_G[found.text_G == n].tolist())) for n in range(len(texts))] == list(map(len, expected))
    assert len(set(found.hash_G.tolist())) == len(set().union(*expected))


def test_where_there_are_no_spaces_characters_are_counted() -> None:
    """Of as many as eight words have; marks belong to their letters, and zero-width characters to nothing."""
    chinese, thai = "".join(chr(0x4E00 + n) for n in range(60)), "".join(chr(0x0E01 + n % 40) for n in range(72))
    assert len(ngrams([chinese]).hash_G) == 60 - 16 + 1
    assert len(ngrams([thai]).hash_G) == 72 - 32 + 1
    spaced = "。".join(chinese[n : n + 7] for n in range(0, 60, 7)) + " \u200b\n"
    assert set(ngrams([spaced]).hash_G.tolist()) == set(ngrams([chinese]).hash_G.tolist())
    assert len(ngrams(["కా\u200cని " * 8]).hash_G) == 1
    assert not len(ngrams(["", " ...\n", "\u200b"]).hash_G)


def test_batches_and_windows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(random.Random(n).choices("abcdefgh", k=n * n)) for n in range(40)]
    whole = ngrams(texts)
    monkeypatch.setattr(ngrams_module, "BATCH_CHARACTERS", 1000)
    found = list(batches(texts))
    hash_G, text_G = (np.concatenate(part) for part in zip(*found, strict=True))
    assert len(found) > 10
    for number in range(40):
        own, expected = set(hash_G[text_G == number].tolist()), set(whole.hash_G[whole.text_G == number].tolist())
        assert expected <= own
        assert len(own - expected) <= 4, "words that a window cuts"


def held_out(document_id: str, share: float = 0.1) -> bool:
    return split_of(document_id, share, share) != "train"


def write(folder: Path, documents: list[tuple[str, str]], num_files: int = 3, language: str = "en") -> None:
    for number in range(num_files):
        with gzip.open(folder / f"{language}-{number}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in documents[number::num_files])


def copies(num_documents: int = 300) -> tuple[list[tuple[str, str]], set[str]]:
    """Documents of random words; and the ids of held-out ones a third of which is a stretch of a training text."""
    generator = random.Random(5)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(3000)]
    documents = [(f"d{n}", generator.choices(words, k=60)) for n in range(num_documents)]
    training = [own for i, own in documents if not held_out(i)]
    copied = [i for i, _ in documents if held_out(i)][::6]
    made = []
    for document_id, own in documents:
        own = generator.choice(training)[10:34] + own[24:] if document_id in copied else own
        made.append((document_id, " ".join(own)))
    return made, set(copied)


def shares(documents: list[tuple[str, str]]) -> dict[str, float]:
    """Of each held-out document, by sets."""
    training = set().union(*(words_of(text) for i, text in documents if not held_out(i)))
    return {i: len(words_of(text) & training) / len(words_of(text)) for i, text in documents if held_out(i)}


@pytest.mark.parametrize("part_bytes", [1, 1 << 23])
def test_what_stands_in_training_text_is_left_out_of_the_held_out(tmp_path, monkeypatch, part_bytes) -> None:
    documents, copied = copies()
    write(tmp_path, documents)
    monkeypatch.setattr(portions, "PART_BYTES", part_bytes)
    corpora = corpora_of(tmp_path, "en")
    tokenizer = make_tokenizer(corpora, TOKENIZER)
    manifest = prepare(corpora, tokenizer, Location(tmp_path / "store"))
    expected = shares(documents)
    assert {i for i, share in expected.items() if share > 0.1} == copied
    assert manifest.sources[0].near_duplicates == len(copied) >= 5
    assert sum(own["en"].left_out for own in manifest.overlap.values()) == len(copied)
    assert manifest.splits["train"]["en"].documents == sum(not held_out(i) for i, _ in documents), "training text stays"
    for split in HELD_OUT:
        own, texts = manifest.overlap[split]["en"], dict(documents)
        ids = [i for i in expected if split_of(i, 0.1, 0.1) == split]
        assert manifest.splits[split]["en"].documents == len(set(ids) - copied) == own.documents - own.left_out
        for kept, found in ((set(ids), own.before), (set(ids) - copied, own.after)):
            total = sum(len(words_of(texts[i])) for i in kept)
            assert found == pytest.approx(sum(expected[i] * len(words_of(texts[i])) for i in kept) / total)
    shown = held_out_table(PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint))
    assert [list(row.cells[:5]) for row in shown.rows] == [
        ["en", split, str(own.documents - own.left_out), str(own.documents - own.left_out), str(own.left_out)]
        for split in HELD_OUT
        for own in [manifest.overlap[split]["en"]]
    ]
    kept_all = prepare(corpora_of(tmp_path, "en", maximum_overlap=1), tokenizer, Location(tmp_path / "store"))
    assert kept_all.fingerprint != manifest.fingerprint
    assert kept_all.sources[0].near_duplicates == 0
    assert {split: own["en"].before for split, own in kept_all.overlap.items()} == {
        split: own["en"].before for split, own in manifest.overlap.items()
    }


def test_many_hashes_are_sampled(tmp_path, monkeypatch) -> None:
    """A document keeps 64 at the least: its overlap is then within some standard errors."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(3000)]
    long = generator.choices(words, k=30_000)
    documents = [(f"d{n}", " ".join(generator.choices(words, k=900) + long[n * 60 :][:300])) for n in range(300)]
    documents += [(f"t{n}", " ".join(long)) for n in range(300) if not held_out(f"t{n}")][:1]
    write(tmp_path, documents)
    corpora = corpora_of(tmp_path, "en", maximum_overlap=1)
    tokenizer = make_tokenizer(corpora, TOKENIZER)
    exact = prepare(corpora, tokenizer, Location(tmp_path / "exact"))
    monkeypatch.setattr(overlap_module, "MOST_HASHES", 1)
    sampled = prepare(corpora, tokenizer, Location(tmp_path / "sampled"))
    for split in HELD_OUT:
        one, other = exact.overlap[split]["en"], sampled.overlap[split]["en"]
        assert 0.2 < one.before < 0.3
        assert one.before != other.before == pytest.approx(one.before, abs=4 * 0.5 / (64 * one.documents) ** 0.5)
    (folder,) = (tmp_path / "sampled").iterdir()
    held = sum(own["en"].documents for own in exact.overlap.values())
    assert (folder / "overlap/index").stat().st_size <= 8 * 64 * held


def test_text_that_repeats_itself_stays_and_generated_text_too(tmp_path, monkeypatch) -> None:
    """Where most of a language's documents would go none goes; a grammar's never do. The overlap is told of both."""
    monkeypatch.setattr(ngrams_module, "WORDS", 2)  # of eight a grammar's documents have none in common
    template = " ".join(f"w{n}" for n in range(40))
    write(tmp_path, [(f"d{n}", f"{template} {n} {n * 7} {n * 11}") for n in range(300)])
    sources = [
        {"language": "en", "files": f"{tmp_path}/en-*.jsonl.gz", "id_column": "id"},
        {"language": "sunmei", "grammar": "sunmei", "documents": 300},
    ]
    corpora = corpora_of(tmp_path, sources=sources, maximum_overlap=0.01)
    manifest = prepare(corpora, make_tokenizer(corpora, TOKENIZER), Location(tmp_path / "store"))
    for split in HELD_OUT:
        english, generated = manifest.overlap[split]["en"], manifest.overlap[split]["sunmei"]
        assert english.left_out == generated.left_out == 0
        assert english.kept == english.documents
        assert english.before == english.after > 0.8
        assert 0 < generated.kept <= generated.documents
        assert 0 < generated.before == generated.after
    assert sum(tally.near_duplicates for tally in manifest.sources) == 0


def test_duplicates_that_are_left_out_count_on_neither_side(tmp_path) -> None:
    """The held-out one of two equal texts comes first and stays: its twin is not in the training text."""
    texts, copied = copies()
    training = [i for i, _ in texts if not held_out(i)]
    texts = [(i, t) for i, t in texts if i != training[0]]
    held = next((i, t) for i, t in texts if held_out(i) and i not in copied)
    write(tmp_path, [*texts, (training[0], held[1])], num_files=1)
    for deduplicate in (False, True):
        corpora = corpora_of(tmp_path, "en", deduplicate=deduplicate)
        manifest = prepare(corpora, make_tokenizer(corpora, TOKENIZER), Location(tmp_path / "store"))
        assert manifest.sources[0].duplicates == deduplicate
        assert manifest.sources[0].near_duplicates == len(copied) + (not deduplicate)


def test_going_on_from_any_file_gives_the_same_bytes(tmp_path, monkeypatch) -> None:
    """What an interrupted round left is used, what is damaged is made again; in one part or in many."""
    documents, _ = copies(150)
    write(tmp_path, documents)
    monkeypatch.setattr(portions, "PART_BYTES", 1)
    corpora = corpora_of(tmp_path, "en")
    tokenizer = make_tokenizer(corpora, TOKENIZER)
    manifest = prepare(corpora, tokenizer, Location(tmp_path / "store"))
    folder = tmp_path / "store" / manifest.fingerprint
    expected = files_of(tmp_path / "store")
    names = sorted(name.partition("/")[2] for name in expected if "/overlap/" in name)
    assert len(names) == 3 + 1 + 3
    for name in (*names, "groups.json"):
        (folder / "manifest.json").unlink()
        (folder / name).write_bytes((folder / name).read_bytes()[:-9] + b"\0damaged")
        assert prepare(corpora, tokenizer, Location(tmp_path / "store")) == manifest
        assert files_of(tmp_path / "store") == expected, name
    (folder / "groups.json").unlink()
    assert prepare(corpora, tokenizer, Location(tmp_path / "store")) == manifest
    assert files_of(tmp_path / "store") == expected


def test_a_split_of_which_too_little_is_left_names_the_way_out(tmp_path) -> None:
    documents, _ = copies(60)
    training = [text for i, text in documents if not held_out(i)]
    held = [i for i, _ in documents if split_of(i, 0.1, 0.1) == "test"]
    documents = [(i, training[0] if i in held[: len(held) // 2] else text) for i, text in documents]
    documents = [(i, "x" if i in held[len(held) // 2 :] else text) for i, text in documents]
    write(tmp_path, documents)
    corpora = corpora_of(tmp_path, "en")
    with pytest.raises(InputError, match="not one whole sequence in the test split") as caught:
        prepare(corpora, make_tokenizer(corpora, TOKENIZER), Location(tmp_path / "store"))
    assert "more were left out" in caught.value.why
    assert "--set corpora.maximum_overlap=1" in caught.value.remedy


@pytest.mark.skipif(not DATA.is_dir(), reason="no corpus of real text")
def test_telugu(tmp_path) -> None:
    """Stubs on villages, written by a template: many held-out documents repeat the training text, and none is left."""
    with gzip.open(DATA / "te.jsonl.gz", "rt") as stream:
        texts = [json.loads(line)["text"] for line in stream]
    source = {"language": "te", "files": f"{DATA}/te.jsonl.gz"}
    found: dict[float, Manifest] = {}
    for most in (1.0, 0.1):
        corpora = CorporaConfig.model_validate({"sources": [source], "sequence_length": 16, "maximum_overlap": most})
        found[most] = prepare(corpora, make_tokenizer(corpora, TOKENIZER), Location(tmp_path))
    splits = [split_of(checksum(b"te\0" + text.encode()), 0.02, 0.02) for text in texts]
    training = set().union(*(words_of(text) for text, split in zip(texts, splits, strict=True) if split == "train"))
    for split in HELD_OUT:
        own = [words_of(text) for text, side in zip(texts, splits, strict=True) if side == split]
        share = sum(len(one & training) for one in own) / sum(map(len, own))
        before, after = found[1.0].overlap[split]["te"], found[0.1].overlap[split]["te"]
        assert before.before == after.before == before.after == pytest.approx(share, abs=0.03), "punctuation apart"
        assert before.before > 0.05
        assert after.after < 0.01
        assert 3 <= after.left_out <= after.documents // 2
    # No pair is alike: what MinHash estimates is the Jaccard similarity of two documents.
    sides = {
        name: [words_of(t, 5) for t, own in zip(texts, splits, strict=True) if (own == "train") == name]
        for name in (False, True)
    }
    assert max(len(one & other) / len(one | other) for one in sides[False] for other in sides[True]) < 0.3
