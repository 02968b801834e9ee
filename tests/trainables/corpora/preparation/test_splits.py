"""Documents of one group are on one side of the split, and one unit of the held-out text."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.planning.preflight import check_splits
from orchestrator.reporting.corpus import groups_in_words
from tests.helpers.preparation import TOKENIZER, in_this_process
from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation import packing, splits
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.fingerprint import fingerprint
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.splits import FEWEST_GROUPS, grouped, split_of
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer, sample
from trainables.corpora.reading import lines, portions
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.portions import divide, expand
from trainables.corpora.reading.tally import Document
from trainables.corpora.stream.manifest import HELD_OUT, SPLITS
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.storage import Location


def corpora_of(*sources: dict[str, object], **fields: object) -> CorporaConfig:
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16, "maximum_overlap": 1}
    return CorporaConfig.model_validate({"sources": sources, **shares, **fields})


def documents_of(corpora: CorporaConfig) -> list[tuple[Document, str]]:
    found = []
    for source in grouped(corpora).sources:
        for portion in expand(source):
            for piece in divide(portion, 4096):
                found += [
                    (one, split_of(one.group, corpora.validation_share, corpora.test_share))
                    for one in read_documents(piece, source)
                ]
    return found


def write_paragraphs(file: Path, num_paragraphs: int, seed: int = 0) -> None:
    generator = random.Random(f"{seed} {file.name}")
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(500)]
    own = (
        f"{file.stem} {n} " + " ".join(generator.choices(words, k=generator.randint(3, 40)))
        for n in range(num_paragraphs)
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n\n".join(own) + "\n")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), min_size=1, max_size=60), st.data())
def test_no_group_is_on_both_sides(tmp_path, rows, data) -> None:
    """Of whatever source and language, a text's or a number's; what has no group is refused."""
    shares = data.draw(st.sampled_from([(0.1, 0.1), (0.3, 0.3), (0.02, 0.5)]))
    for language in ("en", "fr"):
        own = [
            json.dumps({"text": f"{language} {n}", "book": [group, kind][kind % 2]})
            for n, (group, kind) in enumerate(rows)
        ]
        (tmp_path / f"{language}.jsonl").write_text("\n".join(own))
    sources = [{"language": one, "files": f"{tmp_path}/{one}.jsonl", "group_column": "book"} for one in ("en", "fr")]
    found = defaultdict(set)
    for document, split in documents_of(corpora_of(*sources, validation_share=shares[0], test_share=shares[1])):
        found[document.group].add(split)
    assert set(found) == {str([group, kind][kind % 2]) for group, kind in rows}
    assert all(len(own) == 1 for own in found.values())


def test_a_record_without_a_group_is_malformed(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a text", "book": null}\n' + '{"text": "b", "book": "x"}\n' * 9)
    source = {"language": "en", "files": f"{tmp_path}/a.jsonl", "group_column": "book"}
    (config,) = corpora_of(source).sources
    assert [one.group for one in read_documents(expand(config)[0], config)] == ["x"] * 9
    lacking = config.model_copy(update={"group_column": "bok"})
    from trainables.corpora.reading.check import check_sources

    with pytest.raises(InputError, match=r"no column 'bok'.*\n.*\n.*book"):
        check_sources([lacking])


@pytest.mark.parametrize("num_files", [1, 2, 400])
def test_text_files_are_groups_or_stretches_of_them(tmp_path, num_files, monkeypatch) -> None:
    """Neighbours stay together; every split has some; wherever the folder lies, and however its files are cut."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1024)
    found = []
    for folder in (tmp_path / "here", tmp_path / "there/below"):
        for number in range(num_files):
            write_paragraphs(folder / f"books/{number}.txt", 900 // num_files)
        corpora = corpora_of({"language": "en", "files": f"{folder}/**/*.txt"})
        found.append([(document.text, split) for document, split in documents_of(corpora)])
        (source,) = grouped(corpora).sources
        assert grouped(grouped(corpora)) == grouped(corpora)
    assert found[0] == found[1]
    groups, changes, last = defaultdict(set), 0, None
    for document, split in documents_of(corpora):
        groups[split].add(document.group)
        changes += split != last
        last = split
    assert min(len(groups[split]) for split in SPLITS) >= FEWEST_GROUPS
    if num_files == 400:
        assert source.group_bytes == 0
        assert groups_in_words([source]) == ["corpora.sources[0]: documents of a text file are in one split"]
        assert len(set().union(*groups.values())) == 400
    else:
        assert source.group_bytes in splits.STRETCHES_BYTES[1:]
        assert f"same {source.group_bytes:,} bytes" in groups_in_words([source])[0]
        assert changes < 0.5 * 900 * 2 * 0.2, "alone, documents would change sides at each that is held out"
    assert check_splits(corpora).sources == (source,)


def test_the_study_may_say_otherwise(tmp_path) -> None:
    write_paragraphs(tmp_path / "a.txt", 300)
    source = {"language": "en", "files": f"{tmp_path}/*.txt"}
    sides = {n: [s for _, s in documents_of(corpora_of({**source, "group_bytes": n}))] for n in (0, 1, 1000)}
    assert len(set(sides[0])) == 1
    assert sides[1] != sides[1000]
    assert set(sides[1]) == set(SPLITS)
    with pytest.raises(InputError, match="no document of 'en' is in the") as caught:
        check_splits(corpora_of({**source, "group_bytes": 0}))
    assert "smaller groups" in caught.value.remedy
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(InputError, match="group_bytes is for text files"):
        grouped(corpora_of({"language": "en", "files": f"{tmp_path}/*.jsonl", "group_bytes": 1}))
    with pytest.raises(InputError, match=r"no column 'book' in a\.txt"):
        documents_of(corpora_of({**source, "group_column": "book"}))


def test_files_of_one_name_in_several_folders_are_several_groups(tmp_path) -> None:
    for folder in "abc":
        write_paragraphs(tmp_path / folder / "text.txt", 3, seed=ord(folder))
    files = [f"{tmp_path}/{folder}/text.txt" for folder in "abc"]
    assert [portion.file for portion in expand(corpora_of({"language": "en", "files": files}).sources[0])] == [
        f"{folder}/text.txt" for folder in "abc"
    ]


def test_the_tokenizers_sample_is_of_the_training_split(tmp_path) -> None:
    write_paragraphs(tmp_path / "a.txt", 400)
    corpora = corpora_of({"language": "en", "files": f"{tmp_path}/a.txt"})
    training = {document.text for document, split in documents_of(corpora) if split == "train"}
    assert set(sample(corpora, 10**7)) == training


def test_a_group_is_a_unit_of_the_held_out_text(ray_cluster: None, tmp_path, monkeypatch) -> None:
    """Over languages, shards, parts and what is left over of them; by the documents' own tokens."""
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    monkeypatch.setattr(portions, "PART_BYTES", 1)
    monkeypatch.setattr(packing, "SHARD_TOKENS", 200)
    generator, book_of = random.Random(0), {}
    for number in range(600):
        language, book = generator.choice(["en", "fr"]), f"book {generator.randrange(60)}"
        text = f"{language}{number} " + " ".join(generator.choices("abcdefgh", k=generator.randint(1, 20)))
        book_of[text] = book
        with (tmp_path / f"{language}-{number % 4}.jsonl").open("a") as file:
            file.write(json.dumps({"text": text, "book": book}) + "\n")
    sources = [{"language": one, "files": f"{tmp_path}/{one}-*.jsonl"} for one in ("en", "fr")]
    tokenizer = make_tokenizer(corpora_of(*sources), TOKENIZER)
    by_book = corpora_of(*({**source, "group_column": "book"} for source in sources), sequence_length=64)
    assert fingerprint(by_book, tokenizer) != fingerprint(corpora_of(*sources), tokenizer)
    manifest = prepare(by_book, tokenizer, Location(tmp_path / "store"))
    corpus = PackedCorpus(Location(tmp_path / "store") / manifest.fingerprint)
    for split in HELD_OUT:
        assert sum(len(own.shards) for own in manifest.splits[split].values()) >= 6
        units = defaultdict(set)
        for language in corpus.languages:
            rows = corpus.take(split, language, np.arange(corpus.sequences(split, language)))
            before = corpus.documents_before(split, language)
            for row, first in zip(rows, before, strict=True):
                pieces = tokenizer.decode(row).split("[SEP]")
                for place, piece in enumerate(pieces):
                    whole = next((one for one in book_of if one == piece), None)
                    if whole is not None:
                        (unit,) = corpus.units(split, language, np.array([first + place]))
                        units[book_of[whole]].add(int(unit))
        assert len(units) >= 3
        assert all(len(own) == 1 for own in units.values()), "one book, one unit"
        assert len(set().union(*units.values())) == len(units), "of two books two"
        books = {book for book in book_of.values() if split_of(book, 0.1, 0.1) == split}
        both = set().union(*(corpus._unit_of(split, language).tolist() for language in corpus.languages))
        assert len(both) == len(books)
        assert corpus.num_units(split, "en") <= len(books)
