"""Ledgers changed at random, and all that reads one."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.config.folder import studies_in
from orchestrator.ledger.records import CorpusRecord, Record, ResourcesRecord, StopRecord, WaitingRecord, to_line
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.dashboard import follow, print_results, render
from orchestrator.reporting.model_card import model_card
from orchestrator.reporting.results import Results
from orchestrator.verification.verify import verify
from tests.helpers.fuzzing import places_in, require_readable, try_all
from tests.helpers.ledgers import event
from tests.helpers.mutations import mutated
from tests.helpers.timed_phases import ANYTIME, Recorded, study
from trainables.errors import InputError
from trainables.storage import Location

VALUES: list[Any] = [
    *[None, True, False, 0, 1, 2, -1, 3.5, 0.0, -0.0, 1e-300, 1e300, 10**20, 10**400, float("nan"), float("inf")],
    *["", " ", "x", "\0", "\ud800", "\x1b[2J", "\u202e", "x" * 70_000, "[bold]", "search", "begin", "completed", "en"],
    *[[], [[]], [None], [1, 2], {}, {"": 1}, {"x": {}}, {"en": 0.5}, {"tokens": 1}, {"tokens": 1e308}],
]


@cache
def ledger(name: str) -> tuple[bytes, tuple[tuple[Record, ...], ...]]:
    """A study's file and the records of its sessions."""
    overrides: dict[str, list[str]] = {
        "plain": ["search.budget_per_arm=1", "confirm.seeds=3"],
        "sequential": ["search.budget_per_arm=1", "confirm.stopping={minimum: 3}", "confirm.seeds=4"],
        "branches": ["search.budget_per_arm=1", "confirm.seeds=2", *ANYTIME],
    }
    driver = Recorded(study(*overrides[name]), evaluation=1.0)
    for record in (
        ResourcesRecord(cluster={"CPU": (8, 16)}),
        WaitingRecord(workers=2, each={"CPU": 4.0}, reason="those of the cluster are in use"),
        CorpusRecord(fingerprint="small", vocabulary_size=200, sequence_length=16, languages={}),
        event("a malformed record was left out"),
    ):
        driver.record(record)
    driver.study()
    first = len(driver.records)
    if name == "plain":
        driver.extend("confirm.seeds=4").study()
    else:
        driver.cut(first // 2).study()
        first = first // 2
    driver.record(StopRecord(status="begin"))
    driver.record(StopRecord(status="end"))
    return driver.file, (tuple(driver.records[:first]), tuple(driver.records[first:]))


def damaged_bytes(folder: Path, generator: random.Random) -> None:
    """Bytes of a segment, or of the study's own file."""
    written(folder, generator)
    file = generator.choice(sorted((folder / "study").rglob("*.*")))
    file.write_bytes(mutated(file.read_bytes(), generator))
    read_all(folder)


def damaged_fields(folder: Path, generator: random.Random) -> None:
    """Values of some records, each line still JSON."""
    written(folder, generator)
    changed(folder, generator, lambda lines: [change_value(line, generator) for line in lines])
    read_all(folder)


def damaged_lines(folder: Path, generator: random.Random) -> None:
    """Lines are left out, doubled, changed places with, torn, or come from another study."""
    written(folder, generator)

    def change(lines: list[bytes]) -> list[bytes]:
        first, last = sorted(generator.choices(range(len(lines) + 1), k=2))
        place = generator.randrange(len(lines) + 1)
        other = [to_line(record).rstrip(b"\n") for session in ledger("branches")[1] for record in session]
        return generator.choice(
            [
                lines[:first] + lines[last:],
                lines[first:last],
                lines[:last] + lines[first:],
                lines[last:] + lines[first:last] + lines[:first],
                generator.sample(lines, len(lines)),
                [*lines[:place], generator.choice(other), *lines[place:]],
                [*lines[:place], generator.choice([b"", b"{}", b"null", b"[]", b"0", b"{", b"\xff"]), *lines[place:]],
                [line[: len(line) // 2] if index == place else line for index, line in enumerate(lines)],
            ]
        )

    changed(folder, generator, change, share=1.0)
    read_all(folder)


def damaged_segments(folder: Path, generator: random.Random) -> None:
    """Segments are missing, empty, changed places with, named otherwise, or are folders."""
    written(folder, generator)
    one, other = folder / "study/ledger/000001.jsonl", folder / "study/ledger/000002.jsonl"
    kind = generator.randrange(8)
    if kind == 0:
        generator.choice([one, other]).unlink()
    elif kind == 1:
        generator.choice([one, other]).write_bytes(generator.choice([b"", b"\n", b"\0" * 5000]))
    elif kind == 2:
        one.rename(folder / "x")
        other.rename(one)
        (folder / "x").rename(other)
    elif kind == 3:
        name = generator.choice(["1.jsonl", "-1.jsonl", "x.jsonl", "\u00b2.jsonl", f"{'9' * 200}.jsonl", "000003.json"])
        generator.choice([one, other]).rename(one.with_name(name))
    elif kind == 4:
        one.with_name("000003.jsonl").mkdir()
    elif kind == 5:
        (folder / "study/study.yaml").unlink()
    elif kind == 6:
        one.with_name("000003.jsonl").write_bytes(generator.choice([one, other]).read_bytes())
    else:
        one.with_name("000003.jsonl").symlink_to(folder / "nowhere")
    read_all(folder)


CASES = [damaged_bytes, *[damaged_fields] * 3, damaged_lines, damaged_segments]


def prepare(folder: Path) -> None:
    """An undamaged ledger is as it should be."""
    for name in ("plain", "sequential", "branches"):
        ledger(name)
    written(folder, random.Random(0))
    read_all(folder)
    assert not verify(Location(folder / "study")).mismatches


def written(folder: Path, generator: random.Random) -> None:
    """A study's folder, a segment for each session; some studies have not come to their end."""
    file, sessions = ledger(generator.choice(["plain", "plain", "sequential", "branches"]))
    (folder / "study" / "ledger").mkdir(parents=True)
    (folder / "study" / "study.yaml").write_bytes(file)
    if generator.random() < 0.2:
        sessions = (*sessions[:-1], sessions[-1][: generator.randrange(len(sessions[-1]))])
    for number, session in enumerate(sessions, start=1):
        (folder / "study" / "ledger" / f"{number:06d}.jsonl").write_bytes(b"".join(map(to_line, session)))


def changed(
    folder: Path, generator: random.Random, change: Callable[[list[bytes]], list[bytes]], share: float = 0.0
) -> None:
    """Change lines of a segment: a share of them, or some."""
    file = generator.choice(sorted((folder / "study" / "ledger").iterdir()))
    lines = file.read_bytes().splitlines()
    if share:
        lines = change(lines)
    else:
        for place in generator.choices(range(len(lines)), k=generator.choice([1, 1, 2, 5])) if lines else ():
            lines[place : place + 1] = change([lines[place]])
    file.write_bytes(b"".join(line + b"\n" for line in lines))


def change_value(line: bytes, generator: random.Random) -> bytes:
    """With a value, a key, or a key more or less than it had."""
    content = json.loads(line)
    owner, key = generator.choice(places_in(content))
    value, kind = copy.deepcopy(generator.choice(VALUES)), generator.random()
    known = owner[key]
    if kind < 0.3 and isinstance(known, int | float) and not isinstance(known, bool):
        owner[key] = generator.choice([known + 1, known - 1, -known, known * 100, 0, 1e29])
    elif kind < 0.6:
        owner[key] = value
    elif kind < 0.75:
        del owner[key]
    elif isinstance(owner, dict):
        owner[generator.choice(["x", "", "kind", "trial", "arm", "phase", "time"])] = value
    else:
        owner.append(value)
    return json.dumps(content).encode()


def read_all(folder: Path) -> None:
    """Everything that reads a ledger; each may refuse it, and all are tried.

    Raises:
        InputError: the first refusal.
    """
    place = Location(folder / "study")
    steps: list[Callable[[], object]] = [
        lambda: results(place),
        lambda: watched(place),
        lambda: verify(place).in_words().encode(),
        lambda: studies_in(Location(folder)),
    ]
    try_all(steps)


def results(folder: Location) -> None:
    """What Python users and ``h2h compare`` see."""
    found = Results(folder)
    for frame in (found.trials, found.spending, found.ledger, found.comparison, found.languages):
        frame.to_json()
    found.verdict.encode()
    for arm in found.history.design.arms:
        try:
            found.best(arm)
        except InputError as error:
            require_readable(error)
    console = Console(file=io.StringIO(), width=60)
    print_results(found.history, folder, console)
    console.print(render(found.history))
    completed = [run for run in found.history.trials.values() if run.outcome == "completed"]
    if completed and found.history.corpus is not None:
        model_card(
            found.history, completed[0], name="x", scorer="head", has_bias=False, document_attention=False
        ).encode()


def watched(folder: Location) -> None:
    """What ``h2h watch`` and a log show, record by record."""
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal)
        follow(folder, console, until=lambda: True)
    read_ledger(folder / "ledger")
