"""Thousands of histories of small studies with faults: each comes to the answer of the undisturbed one.

``H2H_HISTORIES`` is how many, ``H2H_FIRST_HISTORY`` the seed of the first; what fails names its seed, which is a
history of its own: the same again and again.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.simulation.histories import (
    STUDIES,
    TURNS,
    Setting,
    checked,
    history,
    history_of_requests,
    made_up,
    undisturbed,
)
from trainables.errors import InputError

HISTORIES = int(os.environ.get("H2H_HISTORIES", "2000"))
FIRST = int(os.environ.get("H2H_FIRST_HISTORY", "0"))
SOME = 5
"""Failed histories that are told; more would be of the same."""

FOUND = {
    116: "a second process, which waited to lead, went on with a study that had ended meanwhile; floors were lost with "
    "the record that told them; what an attempt had spent whose beginning was lost was nobody's",
    173: "a trial that had stopped at a rung, and went on from before it, reported again what the ledger had",
    496: "the end of a process that had saved itself was taken for that of the attempt that followed",
}
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


def require_none_fails(make: Callable[[int], Setting], seeds: Iterable[int]) -> None:
    failed: dict[int, str] = {}
    for seed in seeds:
        try:
            make(seed)
        except AssertionError as error:
            failed[seed] = str(error)
        if len(failed) == SOME:
            break
        if seed % 100 == 0:
            gc.collect()  # the old too: by itself it collects nothing here
    assert not failed, f"{list(failed)}\n" + "\n\n".join(failed.values())


def test_no_history_loses_anything():
    require_none_fails(history, range(FIRST, FIRST + HISTORIES))


def test_no_history_loses_what_people_ask_for():
    require_none_fails(history_of_requests, range(FIRST, FIRST + HISTORIES // 20))


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
    assert len(runs) >= 12 if kind == "stopping" else len(runs) == 4


def test_a_driver_beside_one_that_leads_is_refused():
    setting = Setting("runs", 0, "beside")
    second = []
    setting.world.at(1030.0, lambda: second.append(setting.drive("head-2")))
    setting.operate()
    assert "another process runs this study" in str(second[0].error)
    checked(setting)
    setting.world.close()


@pytest.mark.parametrize("before", [0.5, 1.0, 2.0])
def test_a_study_whose_answer_cannot_be_written_does_not_end_well(before):
    """Found in a history in which the store was silent from just before the end on."""
    _, took = undisturbed("runs", 0)
    setting = Setting("runs", 0, "runs/0")
    world, silent = setting.world, setting.store.silent
    ends = took - before
    world.at(ends, lambda: silent.add("head-1"))
    world.at(ends + 500.0, silent.clear)
    setting.operate()
    checked(setting)
    assert isinstance(setting.drivers[0].main.error, InputError)
    world.close()
