"""Examples read from files and data sets, and what is said of wrong ones."""

from __future__ import annotations

import gzip
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.config.task_files import load_task
from tests.helpers.language_models import make_tokenizer
from trainables.errors import InputError
from trainables.storage import Location
from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import evenly
from trainables.tasks.prepared import MANIFEST_NAME, Tasks, prepare_tasks, read_parts
from trainables.tasks.reading import Source

ROWS = [{"text": f"text {number}", "second": "so", "label": ("no", "yes")[number % 2]} for number in range(40)]
LEARNED = [{**row, "text": f"learned {row['text']}"} for row in ROWS]


def task(kind="classify", files=None, place=None, **more):
    local = {"files": files or {"train": "train.jsonl", "test": "test.jsonl"}, **(place or {})}
    return TaskConfig.model_validate({"name": "own", "kind": kind, "languages": ["en"], "local": local, **more})


def write(path, rows):
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read(own, folder, language="en"):
    source = Source(own, str(folder))
    return source.examples("test", language, source.classes())


def message(own, folder):
    with pytest.raises(InputError) as caught:
        prepare_tasks([own], Location(folder / "store"), str(folder), None, None)
    return str(caught.value)


def texts(examples):
    return [example.texts for example in examples]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "parquet", "tsv", "tsv.gz", "csv"])
def test_formats_read_the_same(tmp_path, suffix):
    rows = [{"text": 'He said: "no"', "label": "a"}, {"text": "two, or three", "label": "b"}]
    file = tmp_path / f"test.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif suffix == "csv":
        file.write_text('text,label\n"He said: ""no""",a\n"two, or three",b\n')
    elif "tsv" in suffix:
        content = b'text\tlabel\nHe said: "no"\ta\r\ntwo, or three\tb\n\n'
        file.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    else:
        write(file, rows)
    found = read(task(files={"test": file.name}, labels=["a", "b"]), tmp_path)
    assert texts(found) == [('He said: "no"',), ("two, or three",)]
    assert [example.labels for example in found] == [(0,), (1,)]


def test_quotes_of_csv_hold_line_ends(tmp_path):
    (tmp_path / "test.csv").write_text('text,label\n"one\ntwo",a\n')
    assert texts(read(task(files={"test": "test.csv"}, labels=["a"]), tmp_path)) == [("one\ntwo",)]


def test_a_table_without_names(tmp_path):
    (tmp_path / "test.tsv").write_text("a\tone\nb\ttwo\n")
    own = task(files={"test": "test.tsv"}, place={"header": ["label", "text"]}, labels=["a", "b"])
    assert texts(read(own, tmp_path)) == [("one",), ("two",)]


CONLLU = """# text = It's up
1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_
1\tIt\tit\tPRON\t_\t_\t3\tnsubj\t_\t_
2\t's\tbe\tAUX\t_\t_\t3\tcop\t_\t_
2.1\tgone\tgo\tVERB\t_\t_\t_\t_\t_\t_
3\tup\tup\tADV\t_\t_\t0\troot\t_\t_

1\tNo\tno\tINTJ\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("form", ["conll", "conllu", "tsv"])
def test_sentences_word_by_word(tmp_path, form):
    plain = "It\tPRON\n's\tAUX\nup\tADV\n\nNo\tINTJ\n"
    (tmp_path / f"test.{form}").write_text(CONLLU if form == "conllu" else plain)
    place = {"format": "conll"} if form == "tsv" else {}
    own = task("tag", {"test": f"test.{form}"}, place, labels=["ADV", "AUX", "INTJ", "PRON"])
    found = read(own, tmp_path)
    assert texts(found) == [("It", "'s", "up"), ("No",)]
    assert [example.labels for example in found] == [(3, 1, 0), (2,)]


@pytest.mark.parametrize("folded", [True, False])
def test_a_hugging_face_folder(tmp_path, folded):
    whole = datasets.Dataset.from_list(ROWS)
    if folded:
        whole = datasets.DatasetDict({"train": whole, "validation": whole.select(range(4))})
    whole.save_to_disk(tmp_path / "set")
    place = {"dataset": "set", "splits": {"train": "train", "test": "validation" if folded else "train"}}
    own = task(labels=["no", "yes"]).model_copy(update={"local": None})
    own = TaskConfig.model_validate(own.model_dump(exclude={"local"}) | {"local": place})
    assert len(read(own, tmp_path)) == (4 if folded else len(ROWS))


def test_classes_are_those_of_the_training_split(tmp_path):
    write(tmp_path / "train.jsonl", ROWS)
    assert Source(task(), str(tmp_path)).classes() == {"no": 0, "yes": 1}


def test_a_class_may_have_several_names(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "a", "label": 0}, {"text": "b", "label": 1}])
    write(tmp_path / "test.jsonl", ROWS[:2])
    own = task(labels=[["no", 0], ["yes", 1]])
    tasks = Tasks(prepare_tasks([own], Location(tmp_path / "store"), str(tmp_path), None, None))
    assert tasks.manifest.tasks["own"].classes == ("no", "yes")
    assert {example.labels for example in tasks.examples("own", "test", "en")} == {(0,), (1,)}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*ROWS[:2], {"txet": "a", "label": "no"}], ("no column 'text'", "did you mean 'txet'", "line 3")),
        ([*ROWS[:3], {"text": "a", "label": "maybe"}], ("'maybe'", "none of no, yes", "test.jsonl, line 4")),
        ([{"text": " ", "label": "no"}], ("its text is ' '", "line 1")),
        ([{"text": 3, "label": "no"}], ("its text is 3",)),
        ([{"text": "half of \ud83d", "label": "no"}], ("half of a character", "\\ud83d", "line 1")),
        ([], ("no example of 'en' in its test split", "test.jsonl")),
    ],
)
def test_a_wrong_row_is_one_message(tmp_path, rows, says):
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "test.jsonl", rows)
    found = message(task(), tmp_path)
    assert all(part in found for part in says), found


@pytest.mark.parametrize("tag", ["", 0, None, "VERB"])
def test_a_tag_that_is_no_class_is_one_message(tmp_path, tag):
    write(tmp_path / "train.jsonl", [{"words": ["a"], "tags": ["DET"]}, {"words": ["cat"], "tags": ["NOUN"]}])
    write(tmp_path / "test.jsonl", [{"words": ["the", "dog"], "tags": ["DET", tag]}])
    assert f"its tag {tag!r} is none of DET, NOUN" in message(task("tag"), tmp_path)


@pytest.mark.parametrize("word", ["", " ", None])
def test_a_word_that_is_none_is_one_message(tmp_path, word):
    write(tmp_path / "train.jsonl", [{"words": ["a"], "tags": ["DET"]}, {"words": ["cat"], "tags": ["NOUN"]}])
    write(tmp_path / "test.jsonl", [{"words": ["the", word], "tags": ["DET", "NOUN"]}])
    assert "one of its words is empty" in message(task("tag"), tmp_path)


@pytest.mark.parametrize("label", ["", None])
def test_nothing_is_no_class(tmp_path, label):
    write(tmp_path / "train.jsonl", [*LEARNED, {"text": "of no class", "label": label}])
    write(tmp_path / "test.jsonl", ROWS)
    found = message(task(), tmp_path)
    assert "has no class" in found
    assert "train.jsonl, line 41" in found


@pytest.mark.parametrize("columns", [{"hypothesis": "second"}, {"txt": "text"}])
def test_a_column_that_the_kind_does_not_have_is_one_message(tmp_path, columns):
    """Else a second text would be left out without a word."""
    with pytest.raises(InputError, match=r"kind classify has no '.*\n.*columns\n.*\n.*label, second, text"):
        Source(task(columns=columns), str(tmp_path))
    place = {"columns": columns}
    with pytest.raises(InputError, match="kind classify has no"):
        Source(task(place=place), str(tmp_path))


def test_a_path_in_the_home_folder_is_of_no_other(tmp_path, monkeypatch):
    home, data = tmp_path / "home", tmp_path / "data"
    monkeypatch.setenv("HOME", str(home))
    write(home / "test.jsonl", ROWS)
    data.mkdir()
    own = task("minimal_pairs", {"test": "~/test.jsonl"}, columns={"good": "text", "bad": "second"})
    assert len(read(own, data)) == len(ROWS)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (task(files={"train": "train.jsonl", "test": "tset.jsonl"}), ("no file matches", "tasks or --data")),
        (task(files={"test": "test.jsonl"}), ("no train split", "files: {train: PATH}")),
        (task(files={"train": "train.jsonl", "test": "test.csv"}), ("has 1 fields", "test.csv, line 3", "text, label")),
        (task(files={"train": "train.jsonl", "test": "long.csv"}), ("cannot be cut into fields", "long.csv, line 2")),
        (task("tag", {"train": "x.conll", "test": "x.conll"}), ("no word with its tag", "x.conll, line 2", "1 fields")),
        (task(files={"train": "train.jsonl", "test": "cut.tsv.gz"}), ("cut.tsv.gz", "truncated or damaged")),
        (task(files={"train": "train.jsonl", "test": "plain.tsv.gz"}), ("another format than its name says",)),
        (task(files={"train": "train.jsonl", "test": "latin.tsv"}), ("not UTF-8", "latin.tsv, line 2")),
        (task(files={"train": "train.jsonl", "test": "test.json"}), ("rename the file to .jsonl",)),
        (task("classfy"), ("unknown kind of task 'classfy'", "did you mean 'classify'", "task own: kind")),
        (
            task(files={"train": "train.jsonl", "test": "{language}.tsv"}, languages=["de"]),
            ("no file matches", "de.tsv"),
        ),
    ],
)
def test_wrong_files_are_one_message(tmp_path, own, says):
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "test.jsonl", ROWS)
    (tmp_path / "test.csv").write_text("text,label\na,no\nb\n")
    (tmp_path / "long.csv").write_text(f"text,label\n{'a' * 200_000},no\n")
    (tmp_path / "x.conll").write_text("a\tNOUN\nb\n")
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\n" + b"a\tno\n" * 999)[:-12])
    (tmp_path / "plain.tsv.gz").write_text("text\tlabel\na\tno\n")
    (tmp_path / "latin.tsv").write_bytes("text\tlabel\nfüß\tno\n".encode("latin-1"))
    (tmp_path / "test.json").write_text("[]")
    found = message(own, tmp_path)
    assert all(part in found for part in says), found


def test_without_a_folder_there_is_only_the_hub(tmp_path):
    with pytest.raises(InputError, match="no folder is named"):
        Source(task(), None)


def test_too_many_classes_are_no_classes(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "a", "label": number} for number in range(2000)])
    write(tmp_path / "test.jsonl", ROWS)
    assert "more than 1000 classes" in message(task(), tmp_path)


def test_a_language_of_unknown_pieces(tmp_path):
    write(tmp_path / "test.jsonl", [{"text": "жир бобр жар"}] * 3)
    own = task("cloze", {"test": "test.jsonl"})
    with pytest.raises(InputError, match="does not know the task own's 'en'"):
        prepare_tasks([own], Location(tmp_path / "store"), str(tmp_path), None, make_tokenizer())
    write(tmp_path / "test.jsonl", [{"text": "bal bel bil"}] * 3)
    prepare_tasks([own], Location(tmp_path / "store"), str(tmp_path), None, make_tokenizer())


def test_none_of_the_texts_languages(tmp_path):
    write(tmp_path / "test.jsonl", [{"text": "one two"}])
    with pytest.raises(InputError, match="none of the text's languages"):
        prepare_tasks([task("cloze", {"test": "test.jsonl"})], Location(tmp_path), str(tmp_path), ["sw"], None)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(len(ROWS))), cluster=st.sampled_from([None, "id"]))
def test_the_order_of_examples_is_not_that_of_the_file(tmp_path_factory, order, cluster):
    folder = tmp_path_factory.mktemp("own")
    rows = [row | {"id": number // 2} for number, row in enumerate(ROWS)]
    learned = [row | own for row, own in zip(rows, LEARNED, strict=True)]
    write(folder / "train.jsonl", learned)
    write(folder / "test.jsonl", rows)
    own = task(cluster=cluster)
    first = read_parts(Source(own, str(folder)), ["en"], {"no": 0, "yes": 1})
    write(folder / "train.jsonl", [learned[number] for number in order])
    write(folder / "test.jsonl", [rows[number] for number in order])
    again = read_parts(Source(own, str(folder)), ["en"], {"no": 0, "yes": 1})
    assert again == first
    assert texts(first["en" and ("test", "en")]) != [(row["text"],) for row in rows]


@pytest.mark.parametrize("cluster", ["row", "id"])
def test_translations_are_aligned(tmp_path, cluster):
    """The first of one language are translations of the first of another, in all splits; also of those cut off."""
    languages = ("de", "en", "sw")
    for language in languages:
        for split in ("train", "test"):
            rows = [{"text": f"{split} {number} {language}", "label": "no", "id": number} for number in range(60)]
            turned = cluster == "id" and language == "en"
            write(tmp_path / f"{split}-{language}.jsonl", rows[::-1] if turned else rows)
    files = {"train": "train-{language}.jsonl", "test": "test-{language}.jsonl"}
    own = task(files=files, languages=languages, cluster=cluster)
    parts = read_parts(Source(own, str(tmp_path)), languages, {"no": 0})
    for split in ("train", "dev", "test"):
        numbers = [[text.split()[1] for (text,) in texts(parts[split, language])] for language in languages]
        assert numbers[0] == numbers[1] == numbers[2]
        units = [[example.unit for example in parts[split, language]] for language in languages]
        assert units[0] == units[1] == units[2]
    assert not {e.unit for e in parts["train", "en"]} & {e.unit for e in parts["dev", "en"]}


def test_without_a_cluster_languages_share_no_unit(tmp_path):
    for language in ("de", "en"):
        write(tmp_path / f"{language}.jsonl", ROWS)
    write(tmp_path / "train.jsonl", LEARNED)
    own = task(files={"train": "train.jsonl", "test": "{language}.jsonl"}, languages=["de", "en"])
    parts = read_parts(Source(own, str(tmp_path)), ["de", "en"], {"no": 0, "yes": 1})
    assert not {e.unit for e in parts["test", "de"]} & {e.unit for e in parts["test", "en"]}


def test_transfer_trains_in_one_language(tmp_path):
    write(tmp_path / "train.jsonl", LEARNED)
    for language in ("de", "en"):
        write(tmp_path / f"test-{language}.jsonl", ROWS)
    files = {"train": "train.jsonl", "test": "test-{language}.jsonl"}
    own = task(files=files, languages=["de", "en"], transfer="en")
    parts = read_parts(Source(own, str(tmp_path)), ["de", "en"], {"no": 0, "yes": 1})
    assert [language for split, language in parts if split == "train"] == ["en"]
    assert len(parts["train", "en"]) == len(LEARNED)  # dev is cut from what is tested


def test_what_is_asked_is_not_learned(tmp_path):
    """Texts of a split that is asked are in none before it, however they are written and labelled."""
    test, dev, train = LEARNED[:8], [*LEARNED[6:12], LEARNED[9]], [*LEARNED[4:20], LEARNED[7]]
    loud = [{**row, "text": f" {row['text'].upper()}", "label": "no"} for row in train]
    for split, rows in {"train": loud, "dev": dev, "test": test}.items():
        write(tmp_path / f"{split}.jsonl", rows)
    files = {split: f"{split}.jsonl" for split in ("train", "dev", "test")}
    parts = read_parts(Source(task(files=files), str(tmp_path)), ["en"], {"no": 0, "yes": 1})
    assert {split: len(examples) for (split, _), examples in parts.items()} == {"train": 8, "dev": 5, "test": 8}
    seen = {split: {text.strip().lower() for text, _ in texts(examples)} for (split, _), examples in parts.items()}
    assert not seen["train"] & (seen["dev"] | seen["test"])
    assert not seen["dev"] & seen["test"]


@pytest.mark.parametrize(("start", "end"), [(3, 5), (3, 10), (10, 13), (1, 3), (0, 13)])
def test_of_few_examples_too_none_is_in_two_splits(tmp_path, start, end):
    """Of what is tested a part is dev's, where there is no file of it."""
    write(tmp_path / "test.jsonl", ROWS[start:end])
    own = task("minimal_pairs", {"test": "test.jsonl"}, columns={"good": "text", "bad": "second"})
    parts = read_parts(Source(own, str(tmp_path)), ["en"], {})
    test, dev = (set(texts(parts[split, "en"])) for split in ("test", "dev"))
    assert (len(test) + len(dev), len(test & dev)) == (end - start, 0)
    assert test
    assert dev


def test_dev_examples_that_are_parted_from_training_ones_are_none_of_the_test_split(tmp_path):
    """They choose a probe's layer and a learning rate."""
    rows = [{"text": f"example {number}", "label": "yes" if number % 2 else "no"} for number in range(200)]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "test.jsonl", rows[:50])
    files = {"train": "train.jsonl", "test": "test.jsonl"}
    parts = read_parts(Source(task(files=files), str(tmp_path)), ["en"], {"no": 0, "yes": 1})
    found = {split: {text for (text,) in texts(examples)} for (split, _), examples in parts.items()}
    assert len(found["train"]) + len(found["dev"]) == 150
    assert not found["dev"] & found["test"]


def test_columns_that_an_example_may_have_are_read_by_their_own_names(tmp_path):
    """Without its second text an example of inference is another."""
    write(tmp_path / "test.jsonl", [{"text": "a man sleeps", "second": "he is awake", "label": "no"}])
    source = Source(task(files={"test": "test.jsonl"}), str(tmp_path))
    (example,) = source.examples("test", "en", {"no": 0, "yes": 1})
    assert example.texts == ("a man sleeps", "he is awake")
    write(tmp_path / "test.jsonl", [{"context": "so", **{f"choice{n}": f"that {n}" for n in (1, 2, 3)}, "label": 2}])
    source = Source(task("choice", {"test": "test.jsonl"}), str(tmp_path))
    (example,) = source.examples("test", "en", {})
    assert len(example.texts) == 4


@pytest.mark.parametrize(
    ("kind", "row", "more", "says"),
    [
        ("blank", {"text": "_ ran off", "option1": "A", "option2": "B", "label": "3"}, {"labels": ["1", "2", "3"]},
         "it has two names"),
        ("classify", {"text": "a", "label": "half \ud800"}, {"labels": ["a", "b"]}, "half of a character"),
        ("classify", {"text": "a", "label": "a", "id": "half \ud800"}, {"labels": ["a", "b"], "cluster": "id"},
         "half of a character"),
        ("tag", {"words": ["half \ud800", "b"], "tags": ["X", "Y"]}, {"labels": ["X", "Y"]}, "half of a character"),
    ],
)  # fmt: skip
def test_mistakes_in_a_row_are_one_message(tmp_path, kind, row, more, says):
    write(tmp_path / "test.jsonl", [row])
    source = Source(task(kind, {"test": "test.jsonl"}, **more), str(tmp_path))
    with pytest.raises(InputError, match=says):
        source.examples("test", "en", source.classes())


def test_transfer_does_not_learn_what_is_asked_in_translation(tmp_path):
    """Also where the language of the training examples is not asked itself."""
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "test-en.jsonl", ROWS[:10])
    write(tmp_path / "test-de.jsonl", [{**row, "text": f"auf deutsch {row['text']}"} for row in ROWS[:10]])
    files = {"train": "train.jsonl", "test": "test-{language}.jsonl"}
    own = task(files=files, languages=["de", "en"], transfer="en", cluster="row")
    for languages in (["de"], ["de", "en"]):
        parts = read_parts(Source(own, str(tmp_path)), languages, {"no": 0, "yes": 1})
        assert len(parts["train", "en"]) == len(ROWS) - 10


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_split_that_is_all_asked_is_one_message(tmp_path, split):
    write(tmp_path / "test.jsonl", ROWS)
    write(tmp_path / "other.jsonl", LEARNED)
    files = {"train": "other.jsonl", "dev": "other.jsonl", "test": "test.jsonl", split: "test.jsonl"}
    found = message(task(files=files), tmp_path)
    assert f"no {split} example of 'en' that it does not ask as well" in found
    assert "all 40 have the texts" in found


def test_a_test_split_of_one_answer_is_one_message(tmp_path):
    write(tmp_path / "test.jsonl", [row for row in ROWS if row["label"] == "no"])
    write(tmp_path / "train.jsonl", LEARNED)
    found = message(task(), tmp_path)
    assert "all examples of the task own's 'en' have one answer" in found
    assert "gets all 20 right" in found


def test_groups_count_the_same_in_a_subsample(tmp_path):
    rows = [{"good": f"a {n}", "bad": f"b {n}", "kind": "often" if n % 5 else "seldom"} for n in range(50)]
    write(tmp_path / "test.jsonl", rows)
    found = read(task("minimal_pairs", {"test": "test.jsonl"}, group="kind"), tmp_path)
    groups = [found[number].group for number in evenly(found, 12)]
    assert (groups.count("often"), groups.count("seldom")) == (6, 6)


def test_prepared_twice_is_the_same(tmp_path):
    write(tmp_path / "train.jsonl", LEARNED)
    write(tmp_path / "test.jsonl", ROWS)
    first, again = (
        prepare_tasks([task()], Location(tmp_path / store), str(tmp_path), None, None) for store in ("one", "two")
    )
    assert first.name == again.name
    parts = read_parts(Source(task(), str(tmp_path)), ["en"], {"no": 0, "yes": 1})
    for (split, language), examples in parts.items():
        assert Tasks(first).examples("own", split, language) == examples
    assert Tasks(first).manifest.tasks["own"].counts["test"] == {"en": 40}
    write(tmp_path / "test.jsonl", ROWS[:-1])
    assert prepare_tasks([task()], Location(tmp_path / "one"), str(tmp_path), None, None).name != first.name


@pytest.mark.parametrize("damage", ["changed", "gone", "manifest", "no manifest"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    write(tmp_path / "train.jsonl", LEARNED)
    write(tmp_path / "test.jsonl", ROWS)
    folder = prepare_tasks([task()], Location(tmp_path / "store"), str(tmp_path), None, None)
    file = folder / (MANIFEST_NAME if "manifest" in damage else "own.parquet")
    if damage in ("gone", "no manifest"):
        file.local.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-9] + b"x" + content[-8:])
    with pytest.raises(InputError, match="prepared examples of tasks cannot be read"):
        Tasks(folder).examples("own", "test", "en")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"languages": ["en", "de", "en"]}, "the language 'en' is named twice"),
        ({"place": {"languages": ["de"]}}, "'de' is no language of the task"),
        ({"place": {"codes": {"eng": "eng_Latn"}}}, "did you mean 'en'"),
        ({"labels": ["no", "no"]}, "the class 'no' is named twice"),
        ({"place": {"labels": [["no", 0], ["yes", "no"]]}}, "the class 'no' is named twice"),
    ],
)
def test_what_a_definition_names_twice_or_knows_nothing_of_is_one_message(change, says):
    with pytest.raises(ValidationError) as caught:
        task(**change)
    assert says in str(caught.value)


def test_transfer_from_another_language_may_have_a_code():
    assert task(transfer="de", place={"codes": {"de": "deu"}}).transfer == "de"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"columns": {"second": "text"}}, "the column 'text' is read as two things"),
        ({"cluster": "idd"}, "the task's cluster is read from it"),
        ({"cluster": "id"}, "a row of the task own has no cluster"),
        ({"group": "id"}, "a row of the task own has no group"),
    ],
)
def test_columns_that_say_nothing_are_one_message(tmp_path, more, says):
    for split, rows in {"train": LEARNED, "test": ROWS}.items():
        write(tmp_path / f"{split}.jsonl", [{**row, "id": None} for row in rows])
    assert says in message(task(**more), tmp_path)


def test_of_two_columns_of_one_name_none_is_passed_over(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\tlabel\n{split} a\tno\tyes\n{split} b\tyes\tno\n")
    files = {split: f"{split}.tsv" for split in ("train", "test")}
    assert "two columns are called 'label'" in message(task(files=files), tmp_path)


def test_an_empty_training_split_is_told_as_one(tmp_path):
    write(tmp_path / "train.jsonl", [])
    write(tmp_path / "test.jsonl", ROWS)
    assert "no example of 'en' in its train split" in message(task(), tmp_path)


@pytest.mark.parametrize("place", ["local", "hub"])
def test_a_data_sets_folder_is_beside_its_definition(tmp_path, place):
    for split, rows in {"train": LEARNED, "test": ROWS}.items():
        (tmp_path / "own-en").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"own-en/{split}.parquet")
    definition = {"name": "own", "kind": "classify", "languages": ["en"], place: {"dataset": "own-{language}"}}
    (tmp_path / "own.yaml").write_text(json.dumps(definition))
    own = load_task(str(tmp_path / "own.yaml"), "")
    assert len(Source(own, None).examples("test", "en", {"no": 0, "yes": 1})) == len(ROWS)
