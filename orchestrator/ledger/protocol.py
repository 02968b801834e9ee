"""The protocol: what a study fixes before its first trial, so that its answer cannot be chosen afterwards.

It is the frozen study but for where it lies and runs, by the study's own keys, with the level of the tests. Its digest
is in every session's record in the ledger, with what the comparison reads of it (:func:`design_of`). It changes only as
an ``extension`` record says; all that is measured after one, and beside the question, is exploratory.
"""

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from orchestrator.config.confirmation import ALPHA
from orchestrator.config.errors import validated
from orchestrator.config.extension import Change, differences
from orchestrator.config.files import frozen_content, read_frozen
from orchestrator.config.folder import STUDY_FILE, anew
from orchestrator.config.study import StudySpec
from orchestrator.ledger.records import ArmDesign, Design, ExtensionRecord, Record, StudyRecord, YardstickDesign
from trainables.errors import InputError
from trainables.evaluation import find_yardstick
from trainables.storage import Location

Protocol = dict[str, JsonValue]

_NOT_FIXED = ("name", "resources", "storage", "report_to")  # keys of a study that decide nothing


def protocol(frozen: Mapping[str, JsonValue]) -> Protocol:
    """What is fixed beforehand, as JSON, by the content of the frozen study's file."""
    return {key: value for key, value in frozen.items() if key not in _NOT_FIXED} | {"alpha": ALPHA}


def protocol_digest(fixed: Protocol) -> str:
    """blake2b of the protocol's JSON with sorted keys, hexadecimal."""
    return study_digest(json.dumps(fixed, sort_keys=True).encode())


def study_digest(file: bytes) -> str:
    """blake2b of a study's file, hexadecimal."""
    return hashlib.blake2b(file, digest_size=8).hexdigest()


def study_of(fixed: Protocol) -> StudySpec:
    """The study that a protocol describes, without resources and prices. Raises InputError if it is none."""
    content = {key: value for key, value in fixed.items() if key != "alpha"}
    return validated(StudySpec, content | {"name": "protocol"}, "the protocol")


def design_of(spec: StudySpec) -> Design:
    """What the search and the comparison read of a study."""
    confirm, yardsticks = spec.confirm, spec.yardsticks
    objectives = {name: arm.learned for name, arm in spec.arms.items()}
    return Design(
        question=spec.question,
        seed=spec.seed,
        unit=spec.budget.unit,
        amount=spec.budget.amount,
        confirm_amount=spec.confirm_budget.amount,
        search_budget=spec.search.budget_per_arm,
        parallel=spec.search.parallel,
        arms={
            arm: ArmDesign(objective=found.name, task=found.task, headless=found.headless)
            for arm, found in objectives.items()
        },
        seeds=confirm.seeds,
        minimum_seeds=confirm.stopping.minimum if confirm.stopping else None,
        anytime=confirm.anytime,
        margin=confirm.margin,
        control=confirm.control,
        yardsticks=YardstickDesign(
            primary=yardsticks.primary,
            others=yardsticks.names[1:],
            target=yardsticks.target,
            lower_is_better=tuple(name for name in yardsticks.names if not find_yardstick(name).higher_is_better),
        ),
    )


def is_fixed(key: str) -> bool:
    """Whether a study's dotted key is part of its protocol."""
    return key.split(".")[0] not in _NOT_FIXED


def value_of(fixed: Protocol, key: str) -> JsonValue:
    """What the protocol has under a dotted key; None where there is nothing."""
    found: JsonValue = fixed
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def with_changes(fixed: Protocol, changes: Mapping[str, Change]) -> Protocol:
    """The protocol after an extension."""
    changed = copy.deepcopy(fixed)
    for key, (_, after) in changes.items():
        if is_fixed(key):
            *parents, last = key.split(".")
            place = changed
            for parent in parents:
                inner = place.get(parent)
                if not isinstance(inner, dict):
                    raise InputError(
                        f"the ledger's extension changes '{key}', which the protocol does not have",
                        remedy="copy the folder again from where the study ran",
                    )
                place = inner
            place[last] = after
    return changed


def protocols_after(records: Iterable[Record]) -> list[Protocol]:
    """The protocols that a study may be followed by: its last session's and that after each extension since. Any of
    them, as it may be cut off between the record of its extension and its file."""
    found: list[Protocol] = []
    for record in records:
        if isinstance(record, StudyRecord):
            found = [record.protocol]
        elif isinstance(record, ExtensionRecord):
            found.append(with_changes(found[-1], record.changes) if found else {})
    return found


def require_unchanged(folder: Location, records: Iterable[Record]) -> None:
    """Raises InputError if the study's file is missing, or was changed since the last session but by ``h2h extend``."""
    records = list(records)
    sessions = [record for record in records if isinstance(record, StudyRecord)]
    if not sessions:
        return
    data, known, where = read_frozen(folder), protocols_after(records), str(folder / STUDY_FILE)
    if study_digest(data) == sessions[-1].digest:
        return
    now = protocol(frozen_content(data, where))
    if len(known) > 1 and now in known:
        return
    changed = dict(differences(known[-1], now))
    listing = "; ".join(f"{key} was {_short(was)} and is {_short(is_)}" for key, (was, is_) in changed.items())
    raise InputError(
        "the study's file was changed after the study began",
        where=": ".join([where, *([", ".join(changed)] if changed else [])]),
        why=f"what a study is was fixed before its first trial{f': {listing}' if listing else ''}",
        remedy=f"put back what was there;   h2h extend {folder} --set KEY=VALUE   gives it more, and says so;   "
        f"{anew(folder)}",
    )


def _short(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
