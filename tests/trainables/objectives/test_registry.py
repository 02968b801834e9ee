"""Names of objectives and yardsticks, and those that other packages bring."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.packages import write_package
from trainables.config import Registry
from trainables.errors import InputError
from trainables.evaluation import YARDSTICKS
from trainables.objectives import OBJECTIVES, Objective, find_objective
from trainables.objectives.cross_entropy import CausalLanguageModelling, MaskedLanguageModelling

GROUP = "headtohead.objectives"
CODE = """
from trainables.objectives.cross_entropy import CrossEntropy

class Mine(CrossEntropy):
    name, task = "mine", "masked"

nothing = 3
"""


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Of the vanilla objectives; further packages may be put beside the test's folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return Registry("objective", GROUP, Objective, (MaskedLanguageModelling, CausalLanguageModelling))


def package(folder, name, entry, code=CODE, group=GROUP):
    write_package(folder, name, {name.replace("-", "_"): code}, {group: entry})


def test_a_package_brings_an_objective(registry, tmp_path):
    package(tmp_path, "their-package", "mine = their_package:Mine")
    package(tmp_path, "their-other-package", "mine = their_package:Mine", group="headtohead.yardsticks")
    assert registry.names() == ["mlm", "clm", "mine"]
    assert registry.find("mine").name == "mine"
    assert [member.name for member in registry] == ["mlm", "clm", "mine"]
    with pytest.raises(InputError, match="unknown objective 'mime'") as error:
        registry.find("mime", "arms.one.objective")
    assert (error.value.where, "did you mean 'mine'" in error.value.remedy) == ("arms.one.objective", True)


@pytest.mark.parametrize(
    ("entry", "code", "why"),
    [
        ("mine = broken_one:Mine", "import no_such_module", "No module named 'no_such_module'"),
        ("mine = broken_one:Mine", "1 / 0", "ZeroDivisionError"),
        ("mine = broken_one:Mine", "class Mine", "SyntaxError"),
        ("mine = broken_one:Theirs", CODE, "has no attribute 'Theirs'"),
        ("mine = no_such_module:Mine", CODE, "No module named 'no_such_module'"),
        ("mine = broken_one:nothing", CODE, "no class derived from Objective"),
        ("theirs = broken_one:Mine", CODE, "is called 'mine'"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(registry, tmp_path, entry, code, why):
    package(tmp_path, "broken-one", entry, code)
    name = entry.split()[0]
    with pytest.raises(InputError) as error:
        registry.find(name)
    assert f"'{name}' of the package broken-one" in error.value.what
    assert why in error.value.why
    assert entry in error.value.where
    assert "pip uninstall broken-one" in error.value.remedy
    assert registry.find("mlm") is MaskedLanguageModelling, "the others can be used"


@pytest.mark.parametrize("theirs", ["headtohead", "first"])
def test_two_of_one_name_are_refused(registry, tmp_path, theirs):
    name = "mlm" if theirs == "headtohead" else "mine"
    if theirs == "first":
        package(tmp_path, "first", "mine = first:Mine")
    package(tmp_path, "second", f"{name} = second:Mine")
    with pytest.raises(InputError, match=f"two objectives called '{name}'") as error:
        registry.find("clm")
    assert "second" in error.value.where
    assert error.value.why == f"the other is that of {theirs}"


def test_an_unknown_objective():
    with pytest.raises(InputError, match="unknown objective 'mlmm'") as error:
        find_objective("mlmm", "arms.one.objective")
    assert "mlm" in error.value.remedy


@pytest.mark.parametrize(("registry_of_all", "room"), [(OBJECTIVES, "objectives"), (YARDSTICKS, "evaluation")])
def test_every_member_has_its_test(registry_of_all, room):
    code = "".join(file.read_text() for file in (Path(__file__).parents[1] / room).glob("test_*.py"))
    tested = re.findall(r'^class Test\w+\(\w*Conformance\):\n(?:    """.*"""\n\n)?    name = "(.+)"', code, re.M)
    assert {*tested, "tasks", "embedding_bag"} >= set(registry_of_all.names())  # tasks have a room of their own
