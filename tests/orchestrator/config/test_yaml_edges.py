"""What YAML and overrides can hold beyond a study: refused in one short message, which says where and what to do."""

from __future__ import annotations

import time
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from orchestrator.config.files import SHIPPED, dump_study, freeze, frozen_content, load_study, make_study, override
from orchestrator.planning.preflight import check_places
from trainables.errors import InputError

NO_YAML = {
    "corpora.sources.0.documents=!!int 0x_": "this is no int: 0x_",
    "seed=!!int": "this is no int: ",
    "seed=!!int +": "this is no int: +",
    "seed=!!int _": "this is no int: _",
    "seed=!!float": "this is no float: ",
    "seed=!!float _": "this is no float: _",
    "search=!!bool maybe": "this is no bool: maybe",
    "name=!!timestamp foo": "this is no timestamp: foo",
    "name=!!timestamp 2026-02-30": "this is no timestamp: 2026-02-30",
    "model=!!map [1]": "expected a mapping node",
    "corpora.sources=!!seq {a: 1}": "expected a sequence node",
    "search=" + "[" * 500: "nested more than 64 levels deep",
    "seed=" + "9" * 5000: "this is no int",
    "seed=1" + "0" * 18: "a whole number is 1e+18 or more",
    'model.shape="\\ud800"': "half a character",
    "name=!!python/object:os.system x": "could not determine a constructor",
    "name=!!binary aGVsbG8=": "of type bytes",
    "question=&a [*a]": "nested more than 64 levels deep",
    f"question=[&a {'[' * 40}{']' * 40}, &b {'[' * 40}*a{']' * 40}]": "nested more than 64 levels deep",
    f"question=[&a [{'x, ' * 1000}], {'*a, ' * 1000}]": "more than 100,000 values",
    "training={<<: {warmup: 0}}": "write out the keys",
    "question=[&a [1], {? *a : 1}]": "a key is no plain text",
    "budget={tokens: 1, tokens: 2}": "the key 'tokens' is there twice",
    "name=a: b: c": "mapping values are not allowed here",
}


def refusal(*overrides: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load_study("demo", overrides)
    message = str(caught.value)
    assert len(message) < 10_000
    assert all(character.isprintable() or character in "\n\t" for character in message)
    return caught.value


@pytest.mark.parametrize("one", NO_YAML, ids=lambda one: one[:30])
def test_a_value_that_is_no_yaml(one: str) -> None:
    error = refusal(one)
    assert error.what == "this is not YAML"
    assert error.where == f"--set {one}"
    assert NO_YAML[one] in error.why


@pytest.mark.parametrize("one", NO_YAML, ids=lambda one: one[:30])
def test_a_file_with_that_value(tmp_path: Path, one: str) -> None:
    """Under a key of its own: the file is refused before its keys are looked at."""
    file = tmp_path / "own.yaml"
    file.write_text((SHIPPED / "demo.yaml").read_text() + f"\nmore: {one.partition('=')[2]}\n")
    with pytest.raises(InputError) as caught:
        load_study(file)
    assert caught.value.what == "this is not YAML"
    assert caught.value.where == str(file)
    assert "demo.yaml" in caught.value.remedy


@pytest.mark.parametrize("name", ["2026-11-22", "2026-02-30", "2026-11-22T10:00:00"])
def test_a_date_is_text(tmp_path: Path, name: str) -> None:
    """Also one that no calendar has. The colons are refused as what they are: no part of a name."""
    if ":" in name:
        assert "must be of the letters" in refusal(f"name={name}").what
        return
    assert load_study("demo", [f"name={name}"]).name == name
    file = tmp_path / "own.yaml"
    file.write_text((SHIPPED / "demo.yaml").read_text().replace("name: demo", f"name: {name}"))
    assert load_study(file).name == name


@pytest.mark.parametrize(
    ("text", "seeds"), [("010", 10), ("1e1", 10), ("1_0", 10), ("+8", 8), ("0o10", 8), ("0x10", 16), ("8", 8)]
)
def test_a_whole_number_is_what_people_mean_by_it(text: str, seeds: int) -> None:
    assert load_study("demo", [f"confirm.seeds={text}"]).confirm.seeds == seeds


@pytest.mark.parametrize(
    "one",
    [
        *["confirm.seeds=1:00", "budget.tokens=1:30", "confirm.seeds=on", "seed=true", "corpora.alpha=true"],
        *["training.micro_batch_sequences=true", "arms.vanilla.training.batch_sequences=true", "seed=1e20"],
        *["confirm.anytime=[true]", "arms.headless.options.temperature=true", "training.compile=yes"],
        "arms.vanilla.space={dimensions: {warmup: {type: float, low: false, high: 0.5}}}",
    ],
)
def test_what_is_no_number_is_none(one: str) -> None:
    """Nor is what is neither true nor false one of them."""
    error = refusal(one)
    assert "must be " in error.what
    assert error.remedy


def test_words_and_keys_are_text(tmp_path: Path) -> None:
    """Also in the frozen study, which other programs read by YAML 1.1."""
    arms = "arms={on: {objective: clm}, 1: {objective: clm}, 08: {objective: clm}}"
    source = "corpora.sources=[{language: no, grammar: veldan, documents: 1000}]"
    spec = load_study("demo", [arms, source, "name='1e3'", "question='0o17'", f"storage={tmp_path}"])
    assert list(spec.arms) == ["on", "1", "08"]
    assert spec.corpora.sources[0].language == "no"
    frozen = dump_study(freeze(spec))
    assert make_study(frozen_content(frozen.encode(), "")) == freeze(spec)
    assert make_study(yaml.safe_load(frozen)) == freeze(spec)


def test_levels_without_end() -> None:
    assert "depth" in refusal(f"model.config{'.a' * 5000}=1").why


@pytest.mark.parametrize("digit", ["²", "٣", "-1", "1_0", "1" * 30])
def test_a_position_is_written_in_plain_digits(digit: str) -> None:
    content = {"items": [1, 2, 3, 4, 5]}
    for key in (f"items.{digit}", f"items.{digit}.key"):
        with pytest.raises(InputError) as caught:
            override(content, [f"{key}=9"])
        assert "positions are 0 to 4" in caught.value.remedy
    assert content == {"items": [1, 2, 3, 4, 5]}


def test_a_model_type_that_is_no_name() -> None:
    error = refusal("model={config: {model_type: {x: gpt2}}}")
    assert "config.model_type must be one of bert, gpt_neox, gpt2" in error.what


def test_a_data_set_with_an_endless_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file has such a name: what the operating system says to it does not reach the user, wherever it is met."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    name = "x" * 100_000
    source = f"corpora.sources=[{{language: en, dataset: {name}}}]"
    spec = freeze(load_study("demo", [source, "yardsticks.others=[]", f"storage={tmp_path}"]))
    assert spec.corpora.sources[0].dataset == name
    check_places(spec, network=False)  # it might be on the hub, which a plan does not ask
    with pytest.raises(InputError) as caught:
        check_places(spec)
    assert caught.value.where.startswith("corpora.sources[0]")
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    ("one", "where", "remedy"),
    [
        ("model.shape=larg", "--set model.shape=larg", "pythia-70m"),
        ("model.shape=neox-tin", "--set model.shape=neox-tin", "did you mean 'neox-tiny'?"),
        ("tokenizer=gpt2", "--set tokenizer=gpt2", "with the keys train, pretrained"),
        ("tokenizer.pretrained=gpt2", "--set tokenizer.pretrained=gpt2", "--set tokenizer='{pretrained: gpt2}'"),
        ("model=gpt2", "--set model=gpt2", "with the keys shape, config, pretrained"),
        ("model.pretrained=gpt2", "--set model.pretrained=gpt2", "--set model='{pretrained: gpt2}'"),
    ],
)
def test_an_override_is_blamed_and_its_remedy_leads_on(one: str, where: str, remedy: str) -> None:
    error = refusal(one)
    assert error.where == where
    assert str(SHIPPED) not in str(error)
    assert remedy in error.remedy


def test_a_file_that_is_larger_than_any_study(tmp_path: Path) -> None:
    """Such as a file of text, by mistake: neither its characters are gone through nor all of it is read."""
    file = tmp_path / "text.yaml"
    with file.open("wb") as written:
        written.truncate(20 << 30)  # it takes no space on the disk
    with pytest.raises(InputError, match="larger than any study") as caught:
        load_study(file)
    assert caught.value.where == str(file)
    began = time.process_time()
    file.write_bytes(b"question: " + b"x" * 999_000)
    with pytest.raises(InputError, match="is missing"):
        load_study(file)
    assert time.process_time() - began < 10


def test_a_device_is_no_file() -> None:
    with pytest.raises(InputError) as caught:
        load_study("/dev/zero")
    assert "no file of text" in caught.value.why
