"""The study that is written for somebody's own files: what it says of them, and that ``h2h plan`` accepts it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.cli import main
from orchestrator.config.files import load_study
from orchestrator.planning import draft as module
from orchestrator.planning.draft import draft, groups_of, language_of, sources_of
from orchestrator.planning.machine import Machine
from tests.helpers.commands import run_command
from trainables.corpora.config import SourceConfig
from trainables.errors import InputError

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "nobody", "looks"]


def documents(number: int, salt: str = "") -> list[str]:
    return [" ".join(WORDS[(i * 7 + j) % len(WORDS)] for j in range(30)) + f" {salt}{i}" for i in range(number)]


def jsonl(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("data/fr.txt", "fr"),
        ("fr/part-0001.jsonl.gz", "fr"),
        ("wiki.sw.parquet", "sw"),
        ("sw_train.txt", "sw"),
        ("my/notes.txt", ""),
        ("it.txt", ""),
        ("data/text.txt", ""),
        ("s3://bucket/de/*.parquet", "de"),
        ("encyclopedia.txt", ""),
    ],
)
def test_a_language_by_a_files_name(name: str, language: str) -> None:
    assert language_of(name) == language


def test_a_folder_of_many_files_and_formats(folder: Path) -> None:
    for name in ("fr.txt", "deep/a.txt", "deep/b.txt", "deep/c.jsonl", "deep/ignored.png", "de/x.txt", "de/y.txt"):
        (folder / "all" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "all" / name).write_text('{"text": "x"}' if name.endswith("jsonl") else "x")
    groups = {(group.language, group.names) for group in groups_of(["all"])}
    assert groups == {
        ("fr", ("all/fr.txt",)),
        ("", ("all/deep/*.txt",)),
        ("", ("all/deep/*.jsonl",)),
        ("de", ("all/de/*.txt",)),
    }
    assert [group.language for group in groups_of(["la=all/deep"])] == ["la", "la"]


def test_columns_are_looked_at(folder: Path) -> None:
    rows: list[dict[str, object]] = [{"url": f"u{i}", "content": text, "n": i} for i, text in enumerate(documents(5))]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(rows)))
    (source,), said = sources_of(groups_of(["a.jsonl.gz"])[0])
    assert source.text_column == "content"
    assert "text in the column 'content'" in said
    odd = pa.table({"k": ["a", "b"], "lyrics": documents(2)})
    pq.write_table(odd, folder / "b.parquet")
    (source,), _ = sources_of(groups_of(["b.parquet"])[0])
    assert source.text_column == "lyrics", "of no usual name the longest texts"
    (folder / "c.jsonl").write_bytes(jsonl([{"n": 1}, {"n": 2}]))
    with pytest.raises(InputError, match="no column holds text"):
        sources_of(groups_of(["c.jsonl"])[0])


def test_a_file_of_several_languages(folder: Path) -> None:
    rows: list[dict[str, object]] = [{"lang": ("en", "fr")[i % 2], "text": text} for i, text in enumerate(documents(9))]
    (folder / "mixed.jsonl").write_bytes(jsonl(rows))
    sources, said = sources_of(groups_of(["mixed.jsonl"])[0])
    assert [(source.language, source.language_column) for source in sources] == [("en", "lang"), ("fr", "lang")]
    assert "languages in 'lang': en, fr" in said
    (source,), _ = sources_of(groups_of(["nl=mixed.jsonl"])[0])
    assert (source.language, source.language_column) == ("nl", None), "what was said by hand holds"


def test_what_names_no_language_is_told(folder: Path) -> None:
    names = ["fr", "fr", "a b", None]
    (folder / "m.jsonl").write_bytes(jsonl([{"text": "x y", "lang": name} for name in names]))
    found, said = sources_of(groups_of(["m.jsonl"])[0])
    assert [source.language for source in found] == ["fr"]
    assert "left out, as no languages by their names: 'a b' (1), '' (1)" in said


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("number", [60, 2000])
def test_plan_accepts_what_is_written(folder: Path, kind: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text").mkdir()
    for language in ("en", "fr"):
        (folder / "text" / f"{language}.txt").write_text("\n\n".join(documents(number, language)))
    assert main(["init", "text", "--kind", kind, "--name", "mine", "--storage", "results", "--yes"]) == 0
    assert "h2h plan mine.yaml" in capsys.readouterr().out
    spec = load_study("mine.yaml")
    assert [source.language for source in spec.corpora.sources] == ["en", "fr"]
    assert {arm.objective for arm in spec.arms.values()} == (
        {"headless_mlm", "mlm"} if kind == "encoder" else {"headless_clm", "clm"}
    )
    assert spec.storage == "results"
    assert main(["plan", "mine.yaml", "--no-calibration"]) == 0
    written = (folder / "mine.yaml").read_text()
    assert all(line.count("#") <= 2 and len(line) <= 120 for line in written.splitlines())
    code, message = run_command("init", "text", "--name", "mine", "--yes")
    assert code == 2
    assert "mine.yaml is there already" in message
    assert (folder / "mine.yaml").read_text() == written
    assert main(["init", "text", "--name", "mine", "--yes", "--force"]) == 0


def test_little_text_has_larger_shares_held_out_and_too_little_is_refused(folder: Path) -> None:
    def sources(number: int) -> list[SourceConfig]:
        (folder / f"{number}.jsonl").write_bytes(jsonl([{"text": text} for text in documents(number)]))
        return [SourceConfig(language="en", files=f"{number}.jsonl")]

    shares = [draft(sources(number), "s", "encoder", "studies").spec.corpora.test_share for number in (12, 4000)]
    assert shares[0] > shares[1] == 0.05
    with pytest.raises(InputError, match="split"):
        draft(sources(2), "s", "encoder", "studies")


def test_names_of_any_kind_are_text(folder: Path) -> None:
    (folder / "it's: a #1 {file}.txt").write_text("\n\n".join(documents(200)))
    group = groups_of(["it's: a #1 {file}.txt"])[0]
    found = draft(sources_of(group)[0], "2026-11-22", "encoder", "a: b")
    assert (found.spec.name, found.spec.storage) == ("2026-11-22", "a: b")
    assert found.spec.corpora.sources[0].files == "it's: a #1 {file}.txt"


def test_what_the_machine_allows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.jsonl").write_bytes(jsonl([{"text": text} for text in documents(400)]))
    monkeypatch.setattr(module, "_text_bytes", lambda sources: 4e9)
    source = [SourceConfig(language="en", files="a.jsonl")]
    found = {}
    for gpus in (0, 1):
        monkeypatch.setattr(Machine, "here", lambda gpus=gpus: Machine(8, gpus))
        found[gpus] = draft(source, "s", "encoder", "studies").spec
    assert found[0].model.shape == "mini"
    assert found[1].model.shape == "base"
    assert found[0].budget.amount < found[1].budget.amount


@pytest.mark.parametrize(
    ("given", "fragments"),
    [
        (["nothing.txt"], ["there is no file or folder 'nothing.txt'", "did you mean 'noting.txt'"]),
        (["picturs"], ["did you mean 'pictures'? Valid: "]),
        (["pictures"], ["there is no text in pictures", "jsonl"]),
        (["a.csv"], ["read as a data set"]),
        (["empty.txt"], ["empty.txt is empty"]),
        (["prose.jsonl"], ["prose.jsonl holds no records", "is a JSON object"]),
        (["odd.jsonl"], ["no value of the column 'lang' can name a language", "'a b' (2)"]),
    ],
)
def test_what_cannot_be_read(folder: Path, given: list[str], fragments: list[str]) -> None:
    (folder / "noting.txt").write_text("x")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "a.png").write_bytes(b"x")
    (folder / "a.csv").write_text("text\nx\n")
    (folder / "empty.txt").write_text("")
    (folder / "prose.jsonl").write_text("once upon a time\n")
    (folder / "odd.jsonl").write_bytes(jsonl([{"text": text, "lang": "a b"} for text in documents(2)]))
    code, message = run_command("init", *given, "--yes")
    assert code == 2
    assert all(fragment in message for fragment in fragments), message
    assert not list(folder.glob("*.yaml"))


def test_it_asks_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("notes.txt", "more.txt"):
        (folder / name).write_text("\n\n".join(documents(300)))
    answers = iter(["notes.txt fr=more.txt", "la", "cat", "decoder", "asked"])
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    assert main(["init"]) == 0
    assert [re.split(r"[:\[]", question)[0].strip() for question in asked] == [
        "files or folders of text",
        "language of notes.txt",
        "kind of model",
        "kind of model",
        "name of the study",
    ]
    spec = load_study("asked.yaml")
    assert [source.language for source in spec.corpora.sources] == ["la", "fr"]
    assert spec.arms["vanilla"].objective == "clm"
