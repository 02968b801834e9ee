"""``h2h prepare`` and ``h2h corpus``: the text alone, prepared and shown."""

from __future__ import annotations

import io
import json
import re
import time
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from orchestrator.cli import main
from orchestrator.execution.executor import Executor
from orchestrator.ledger.records import EventRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.corpus import in_words, picture, preparation_shown, sequences_of_a_trial, show_corpus
from orchestrator.study import Study, StudyInterrupted
from tests.helpers.corpus import write_corpus
from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.progress import Packing, Progress
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.errors import InputError

WORDS = {"en": 8, "sw": 5}
"""Words of every document."""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of one file in two languages, a record of which is malformed and two of which are alike."""
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps({"lang": language, "text": " ".join(f"{language}{number}x{word}" for word in range(words))})
        for number in range(500)
        for language, words in WORDS.items()
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, lines[0], "{oops"]) + "\n")
    sources = [{"language": one, "files": "a.jsonl", "language_column": "lang"} for one in WORDS]
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16}
    content = {
        "name": "small",
        "question": "Which?",
        "corpora": {"sources": sources, **shares, "deduplicate": True, "malformed_share": 0.01},
        "tokenizer": {"train": {"type": "byte_bpe", "vocabulary_size": 300}},
        "model": {"shape": "neox-tiny"},
        "arms": {"one": {"objective": "clm"}},
        "budget": {"steps": 3},
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 2, "margin": 0.1},
        "storage": "store",
    }
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(content))
    return file


def rendered(renderable: object, width: int = 80) -> str:
    output = io.StringIO()
    Console(width=width, force_terminal=True, file=output, color_system=None, _environ={}).print(renderable)
    return output.getvalue()


def test_prepare_and_corpus(study: Path, ray_cluster: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", str(study)]) == 2
    assert "h2h prepare STUDY prepares it" in capsys.readouterr().err
    assert main(["prepare", str(study)]) == 0
    prepared = capsys.readouterr().out
    assert not read_ledger(Study(study).folder / "ledger"), "no study has begun"
    picture = ["--svg", "pictures/corpus.svg"]
    assert main(["corpus", str(study), *picture]) == 2
    assert "there is no folder" in capsys.readouterr().err
    Path("pictures").mkdir()
    assert main(["corpus", str(study), "--samples", "1", *picture]) == 0
    shown = capsys.readouterr().out
    assert Path("pictures/corpus.svg").read_text().startswith("<svg")
    corpus = Study(study).corpus()
    assert corpus.manifest.languages == ("en", "sw")
    assert [source.duplicates for source in corpus.manifest.sources] == [1, 0]
    assert [source.malformed for source in corpus.manifest.sources] == [1, 1]
    for output in (prepared, shown):
        joined = " ".join(output.split())
        assert "1 duplicate" in joined
        assert "corpora.sources[1]: 1 of 1002 records are malformed" in joined
        assert "a.jsonl,line1002:" in "".join(output.split())
    sample = re.search(r"sw\n +\d+ +(.*)", shown)
    assert sample is not None
    assert "sw" in sample.group(1)


def test_the_table_says_what_was_made(study: Path, ray_cluster: None) -> None:
    corpus = Study(study).prepare()
    output = rendered(show_corpus(corpus, Study(study).spec.corpora))
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    for language, words in WORDS.items():
        counts = corpus.manifest.splits["train"][language]
        assert counts.words == words * counts.documents
        row = next(line for line in output.splitlines() if line.strip().startswith(language)).split()
        text_tokens = counts.tokens - counts.documents
        assert row[1] == str(counts.documents)
        assert float(row[3]) == pytest.approx(text_tokens / counts.words, abs=0.006)
        assert float(row[4]) == pytest.approx(counts.characters / text_tokens, abs=0.006)
        assert row[5] == "0.00%"
    mix = [
        float(line.split()[6].rstrip("%")) for line in output.splitlines() if re.match(r" (en|sw) .*x$", line.rstrip())
    ]
    sizes = [corpus.sequences("train", language) ** 0.3 for language in ("en", "sw")]
    assert mix == pytest.approx([100 * size / sum(sizes) for size in sizes], abs=0.06)


def test_bars_and_their_picture(tmp_path: Path) -> None:
    """Each bar's cells are its share of the longest's, to an eighth of a cell, in any width; the picture has them."""
    sizes = {"de": 90, "en": 4000, "sw": 13, "zh-Hant": 800}
    corpus = write_corpus(tmp_path, sizes)
    corpora = CorporaConfig.model_validate({"sources": [{"language": "en", "files": "x"}]})
    shown = show_corpus(corpus, corpora)
    stream = TokenStream(corpus, 0, corpora.alpha, corpora.maximum_repetition)
    natural_l = np.array(list(sizes.values())) / sum(sizes.values())
    for width in (80, 200):
        lines = rendered(shown, width).splitlines()
        assert max(map(len, lines)) <= width
        rows = [re.match(r" ([\w-]*) +([█▉▊▋▌▍▎▏]+) +(\d+\.\d)%", line) for line in lines]
        found = [row.groups() for row in rows if row]
        assert [name for name, _, _ in found] == ["de", "", "en", "", "sw", "", "zh-Hant", ""]
        lengths = [8 * bar.count("█") + sum(" ▏▎▍▌▋▊▉".index(c) for c in bar if c != "█") for _, bar, _ in found]
        shares = np.stack([natural_l, stream.share_l], axis=1).ravel()
        assert [float(share) for _, _, share in found] == pytest.approx(100 * shares, abs=0.06)
        assert lengths == pytest.approx(shares / shares.max() * max(lengths), abs=1.01)
    drawn = xml.etree.ElementTree.fromstring(picture([shown], "a <study> & more"))
    text = "".join(drawn.itertext()).replace("\xa0", " ")
    assert "a <study> & more" in text
    for row in found:
        assert row[1] in text
        assert f"{row[2]}%" in text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["budget={tokens: 4000}", "corpora.sequence_length=8"], 500),
        (["budget={steps: 30}", "training.batch_sequences=10"], 300),
        (["budget={flops: 1e9}"], None),
        (["budget={steps: 30}", "arms.two={objective: clm, training: {batch_sequences: 8}}"], None),
    ],
)
def test_the_sequences_of_a_trial(study: Path, settings: list[str], expected: float | None) -> None:
    assert sequences_of_a_trial(Study(study, settings).spec) == expected


def test_how_often_a_trial_sees_a_language(tmp_path: Path) -> None:
    """Counted over the trial's own sequences, which are more than all text is."""
    sizes = {"de": 90, "en": 4000, "sw": 13, "zh-Hant": 800}
    corpus = write_corpus(tmp_path, sizes)
    corpora = CorporaConfig.model_validate({"sources": [{"language": "en", "files": "x"}]})
    stream = TokenStream(corpus, 0, corpora.alpha, corpora.maximum_repetition)
    seen_l = np.bincount(stream.take(np.arange(12_000)).language_N) / list(sizes.values())
    output = rendered(show_corpus(corpus, corpora, 12_000))
    assert max(map(len, output.splitlines())) <= 80
    assert "12,000 sequences of the study's budget" in output
    rows = [line.split() for line in output.splitlines() if line.rstrip().endswith("x")]
    assert [row[0] for row in rows] == list(sizes)
    found = [float(row[-1].rstrip("x")) for row in rows]
    assert found == pytest.approx(seen_l, abs=0.006 + 1 / 13)
    assert "in a trial" not in rendered(show_corpus(corpus, corpora))


@pytest.mark.slow
def test_a_prepared_corpus_is_verified_and_mended(study: Path, ray_cluster: None) -> None:
    corpus = Study(study).prepare()
    shard = corpus.folder / corpus.manifest.splits["test"]["en"].shards[0].file
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="is damaged"):
        PackedCorpus(corpus.folder).take("test", "en", np.array([0]))
    Study(study).prepare()
    assert shard.read_bytes() == content


@pytest.mark.slow
def test_too_many_malformed_records_are_refused_with_the_first(
    study: Path, ray_cluster: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", str(study), "--set", "corpora.malformed_share=0.0005"]) == 2
    error = capsys.readouterr().err
    assert "a line is not JSON in a.jsonl" in error
    assert "a.jsonl, line 1002" in error
    assert "--set corpora.malformed_share=0.001" in error


@pytest.mark.slow
def test_a_malformed_record_is_an_event_of_the_run(
    study: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise StudyInterrupted

    monkeypatch.setattr(Executor, "run", stop)
    begun = Study(study)
    with pytest.raises(StudyInterrupted):
        begun.run()
    messages = [r.message for r in read_ledger(begun.folder / "ledger") if isinstance(r, EventRecord)]
    assert any("1 of 1002 records are malformed and left out" in message for message in messages)
    assert begun.corpus().manifest.fingerprint == Study.open(begun.folder).corpus().manifest.fingerprint


def test_the_bar() -> None:
    output = io.StringIO()
    console = Console(width=80, force_terminal=True, file=output, color_system=None, _environ={})
    with preparation_shown(console) as progress:
        progress(Progress("tokenizer", 0, 1))
        progress(Progress("tokenizer", 1, 1))
        progress(Progress("verification", 0, 1))
        progress(Progress("duplicates", 4, 4))
        progress(Progress("packing", 0, 4))
        progress(Progress("packing", 1, 4, HALF))
        progress(Progress("packed", 1, 1, WHOLE))
    shown = output.getvalue()
    assert re.search(r"making the tokenizer +━+", shown)
    assert "reading the shards" in shown
    assert re.search(r"looking for duplicates.*4/4 parts", shown)
    assert re.search(r"tokenising and packing.*1/4 parts  200k tokens/s", shown)
    packed = "3 parts of 30.0 MB packed in 12 s on 2 machines, 200k tokens/s; 1 part had been made before"
    assert f"prepared 3.2M tokens in 20 s: {packed}" in shown


HALF = Packing(
    parts=4, total_bytes=40_000_000, done_bytes=20_000_000, tokens=1_600_000, made_parts=1, made_bytes=10_000_000,
    made_tokens=800_000, seconds=4.0, whole_seconds=12.0, machines=1,
)  # fmt: skip
WHOLE = HALF._replace(
    done_bytes=40_000_000, tokens=3_200_000, made_parts=3, made_bytes=30_000_000, made_tokens=2_400_000, seconds=12.0,
    whole_seconds=20.0, machines=2,
)  # fmt: skip


def test_a_preparation_in_words() -> None:
    said = in_words(Progress("packing", 2, 4, HALF))
    assert said == "tokenising and packing 2/4 parts, 20.0 MB of 40.0 MB, 1.6M tokens, 200k tokens/s, 8 s left"
    assert in_words(Progress("packing", 0, 4, Packing(parts=4, total_bytes=40))) == "tokenising and packing 0/4 parts"
    there = Packing(parts=4, total_bytes=40, done_bytes=40, tokens=8, seconds=0.5, whole_seconds=2.0)
    assert in_words(Progress("packing", 4, 4, there)) == "tokenising and packing 4/4 parts, 40 B of 40 B, 8 tokens"
    assert in_words(Progress("packed", 1, 1, there)) == "prepared 8 tokens in 2 s: 4 parts had been made before"
    said = in_words(Progress("packed", 1, 1, there._replace(abandoned=1)))
    assert said.endswith("; 1 abandoned preparation of other text removed")


def test_a_preparation_without_a_terminal_is_told_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    output, now = io.StringIO(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with preparation_shown(Console(file=output, force_terminal=False)) as progress:
        for seconds in range(30):
            now[0] = float(seconds)
            progress(Progress("overlap" if seconds < 5 else "packing", seconds, 30))
        progress(Progress("packed", 1, 1, WHOLE))
    lines = [line.split(maxsplit=1)[1] for line in output.getvalue().splitlines()]
    assert lines[:-1] == [
        "looking it up in the training text 0/30 parts",
        "tokenising and packing 5/30 parts",
        "tokenising and packing 14/30 parts",
        "tokenising and packing 23/30 parts",
    ]
    assert lines[-1].startswith("prepared 3.2M tokens")
