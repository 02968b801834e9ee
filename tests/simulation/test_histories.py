"""Thousands of histories of small studies with faults: each comes to the answer of the undisturbed one.

``H2H_HISTORIES`` is how many, ``H2H_FIRST_HISTORY`` the seed of the first; what fails names its seed, which is a
history of its own: the same again and again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from obstore.exceptions import BaseError
from obstore.store import MemoryStore

from tests.simulation.histories import STUDIES, TURNS, Setting, checked, history, made_up, undisturbed
from tests.simulation.store import Objects

HISTORIES = int(os.environ.get("H2H_HISTORIES", "2000"))
FIRST = int(os.environ.get("H2H_FIRST_HISTORY", "0"))
SOME = 5
"""Failed histories that are told; more would be of the same."""

FOUND: dict[int, str] = {}
"""Histories in which a mistake of the program was found, and what it was."""

pytestmark = pytest.mark.timeout(max(600, HISTORIES))


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    """One processor for all threads: they take turns, and would wait for each other's wake on another one."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if before:
        os.sched_setaffinity(0, {sorted(before)[os.getpid() % len(before)]})
    with made_up():
        yield
    if before:
        os.sched_setaffinity(0, before)


def test_no_history_loses_anything():
    failed: dict[int, str] = {}
    for seed in range(FIRST, FIRST + HISTORIES):
        try:
            history(seed)
        except AssertionError as error:
            failed[seed] = str(error)
        if len(failed) == SOME:
            break
    assert not failed, f"{list(failed)}\n" + "\n\n".join(failed.values())


@pytest.mark.parametrize("seed", FOUND)
def test_a_history_that_was_lost_once_is_not(seed):
    history(seed)


def test_a_seed_is_always_the_same_history():
    for seed in range(len(TURNS)):
        first, again = history(seed), history(seed)
        assert first.world.story == again.world.story
        assert ledger(first) == ledger(again)


def ledger(setting: Setting) -> dict[str, bytes]:
    return {path: data for path, (data, _) in setting.store.objects.data.items() if "/ledger/" in path}


@pytest.mark.parametrize("kind", STUDIES)
def test_the_studies_have_what_is_to_be_disturbed(kind):
    found, _ = undisturbed(kind, 0)
    outcomes = {name: trial["outcome"] for name, trial in found.items() if "-0" in name}
    searched = {outcome for name, outcome in outcomes.items() if name.startswith("search-")}
    assert searched >= ({"completed", "pruned"} if kind in ("search", "wide") else set())
    assert any(name.startswith("anytime-") for name in outcomes) == (kind == "branches")
    runs = [name for name in outcomes if name.startswith("confirm-")]
    assert len(runs) == (12 if kind == "stopping" else 4), "the seventh seed is not wanted any more"


def test_a_driver_beside_one_that_leads_is_refused():
    setting = Setting("runs", 0, "beside")
    second = []
    setting.world.at(1030.0, lambda: second.append(setting.drive("head-2")))
    setting.operate()
    assert "another process runs this study" in str(second[0].error)
    checked(setting)
    setting.world.close()


def test_the_store_writes_on_condition_as_obstore_does(world):
    """Step by step with obstore's own store in memory, whose methods nothing replaces."""
    made, real = Objects(), MemoryStore()
    chance, made_tags, real_tags = random.Random(1), ["none"], ["none"]
    for _ in range(400):
        path, number = chance.choice(["a/x", "a/y", "b"]), chance.randrange(len(made_tags))
        kind = chance.choice(["create", "overwrite", "known", "delete"])
        outcomes = []
        for store, tags in ((made, made_tags), (real, real_tags)):
            try:
                if kind == "delete":
                    store.delete([path])
                else:
                    done = store.put(path, b"data", mode={"e_tag": tags[number]} if kind == "known" else kind)
                    tags.append(done["e_tag"])
                outcomes.append("done")
            except (BaseError, FileNotFoundError) as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1] or kind == "delete", (path, kind)
    listed = [entry["path"] for entries in real.list() for entry in entries]
    assert sorted(listed) == sorted(made.data)
