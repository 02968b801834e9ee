"""The protocol: what a study fixes before its first trial, so that its answer cannot be chosen afterwards.

It is the frozen study but for where it lies and runs, by the study's own keys, with the level of the tests. Its digest
is in every session's record in the ledger, with what the comparison reads of it (:func:`deciding`). It changes only as
an ``extension`` record says; all that is measured after one, and beside the question, is exploratory.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.analysis.statistics import ALPHA
from orchestrator.config.extension import differences
from orchestrator.config.files import frozen_content
from orchestrator.config.folder import STUDY_FILE
from orchestrator.ledger.segments import Record
from trainables.errors import InputError
from trainables.evaluation import find_yardstick
from trainables.objectives import find_objective
from trainables.storage import Location

Protocol = dict[str, Any]

_NOT_FIXED = ("name", "resources", "storage")
"""Keys of a study that decide nothing."""


def protocol(frozen: Mapping[str, Any]) -> Protocol:
    """What is fixed beforehand, as JSON.

    Args:
        frozen: the content of the study's file, with every default written out and its paths absolute.
    """
    return {key: value for key, value in frozen.items() if key not in _NOT_FIXED} | {"alpha": ALPHA}


def protocol_digest(fixed: Protocol) -> str:
    """blake2b of the protocol's JSON with sorted keys, hexadecimal."""
    return study_digest(json.dumps(fixed, sort_keys=True).encode())


def study_digest(file: bytes) -> str:
    """blake2b of a study's file, hexadecimal."""
    return hashlib.blake2b(file, digest_size=8).hexdigest()


def deciding(fixed: Protocol) -> dict[str, Any]:
    """What the comparison and the search read of the protocol: the fields of a session's record that follow from it."""
    confirm, search, yardsticks = fixed["confirm"], fixed["search"], fixed["yardsticks"]
    unit, amount = amount_set(fixed["budget"])
    primary = yardsticks["primary"]
    others = [name for name in yardsticks["others"] if name != primary]
    objectives = {arm: find_objective(written["objective"]) for arm, written in fixed["arms"].items()}
    return {
        "question": fixed["question"],
        "budget": {"unit": unit, "amount": amount},
        "confirm_amount": amount_set(confirm["budget"] or fixed["budget"])[1],
        "search_budget": search["budget_per_arm"],
        "concurrent_per_arm": search["concurrent_per_arm"],
        "arms": {
            arm: {"objective": found.name, "task": found.task, "headless": found.headless}
            for arm, found in objectives.items()
        },
        "seeds": confirm["seeds"],
        "stopping": confirm["stopping"],
        "anytime": confirm["anytime"],
        "margin": confirm["margin"],
        "yardsticks": {
            "primary": primary,
            "others": others,
            "target": yardsticks["target"],
            "lower_is_better": [n for n in (primary, *others) if not find_yardstick(n).higher_is_better],
        },
    }


def amount_set(budget: Mapping[str, float | None]) -> tuple[str, float]:
    """The one unit that is set, and how much of it."""
    [(unit, amount)] = ((unit, amount) for unit, amount in budget.items() if amount is not None)
    return unit, amount


def value_of(fixed: Protocol, key: str) -> Any:
    """What the protocol has under a dotted key; None where there is nothing."""
    found: Any = fixed
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def is_fixed(key: str) -> bool:
    """Whether a study's dotted key is part of its protocol."""
    return key.split(".")[0] not in _NOT_FIXED


def with_changes(fixed: Protocol, changes: Mapping[str, Any]) -> Protocol:
    """The protocol after an extension.

    Args:
        fixed: the protocol before.
        changes: by dotted key before and after, as the ledger has them.
    """
    changed = copy.deepcopy(fixed)
    for key, (_, after) in changes.items():
        if is_fixed(key):
            *parents, last = key.split(".")
            place = changed
            for parent in parents:
                place = place[parent]
            place[last] = after
    return changed


def protocols_after(records: Iterable[Record]) -> list[Protocol]:
    """The protocols that a study may be followed by: that of its last session and that after each extension since.

    Any of them: a study may be cut off between the record of its extension and its file.

    Args:
        records: of its ledger.
    """
    found: list[Protocol] = []
    for record in records:
        if record["kind"] == "study":
            found = [record["protocol"]]
        elif record["kind"] == "extension":
            found.append(with_changes(found[-1], record["changes"]))
    return found


def read_study_file(folder: Location) -> bytes:
    """The file of a study that has begun.

    Raises:
        InputError: it is not in the study's folder.
    """
    file = folder / STUDY_FILE
    if not file.exists():
        raise InputError(
            "the study itself is missing",
            where=str(file),
            why="the ledger beside it says what the study is by this file",
            remedy="copy the folder again from where the study ran",
        )
    return file.read_bytes()


def require_unchanged(folder: Location, records: Iterable[Record]) -> None:
    """Refuse a study whose file is not what its ledger says that the study is.

    Args:
        folder: the study's.
        records: of its ledger.

    Raises:
        InputError: the file is missing, or was changed since the last session by other means than ``h2h extend``.
    """
    records = list(records)
    sessions = [record for record in records if record["kind"] == "study"]
    if not sessions:
        return
    file = folder / STUDY_FILE
    data, known = read_study_file(folder), protocols_after(records)
    if study_digest(data) == sessions[-1]["digest"]:
        return
    now = protocol(frozen_content(data, str(file)))
    if len(known) > 1 and now in known:
        return
    changed = dict(differences(known[-1], now))
    listing = "; ".join(
        f"{key} was {_short(was)} and is {_short(is_)}" for key, (was, is_) in changed.items()
    )
    raise InputError(
        "the study's file was changed after the study began",
        where=": ".join([str(file), *([", ".join(changed)] if changed else [])]),
        why=f"what a study is was fixed before its first trial{f': {listing}' if listing else ''}",
        remedy=f"put back what was there;   h2h extend {folder} --set KEY=VALUE   gives it more, and says so;   "
        "h2h run STUDY --set name=ANOTHER   makes a new one",
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
