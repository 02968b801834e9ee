"""Extending a study that has begun: more of what it may spend, with all that it has done kept."""

import math
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from orchestrator.config.files import make_study
from orchestrator.config.study import StudySpec
from trainables.errors import InputError
from trainables.training.config import MEASURED_UNITS

GROWING = ("search.budget_per_arm", "confirm.seeds", "confirm.top", "confirm.budget", "cap")  # what may become more

FREE = ("confirm.stopping", "resources.attempts", "resources.concurrent_trials", "resources.minimum_workers")
"""What may change as it likes: no run depends on it."""

PLACES = "resources"  # likewise, unless the budget is measured: then a run on other devices is another run
PRICES = "resources.prices"  # what may not, where dollars count: what has been spent was counted at them

Change = tuple[JsonValue, JsonValue]  # before and after


def extended(frozen: StudySpec, overrides: Sequence[str], where: str) -> tuple[StudySpec, dict[str, Change]]:
    """The study with more to spend, and what was changed, by key. Raises InputError, with the folder ``where`` it lies,
    if nothing is changed, something that may not be, or something became less."""
    before = frozen.model_dump(mode="json")
    wanted = make_study(before, overrides, where=where)
    changes = dict(differences(before, wanted.model_dump(mode="json")))
    if not changes:
        raise InputError(
            "there is nothing to extend",
            where=where,
            why="the study has all that already",
            remedy="such as --set confirm.seeds=12 or --set search.budget_per_arm=20",
        )
    _require_unit_of_cap(frozen, wanted)
    for key in changes:
        priced = "usd" in frozen.units_in_use.values() and _is_in(key, PRICES)
        if priced or not any(_is_in(key, place) for place in _free(frozen)):
            _require_growth(key, changes[key], frozen, wanted)
    return wanted, changes


def _free(frozen: StudySpec) -> tuple[str, ...]:
    return FREE if frozen.budget.unit in MEASURED_UNITS else (*FREE, PLACES)


def _require_growth(key: str, change: Change, frozen: StudySpec, wanted: StudySpec) -> None:
    if not any(_is_in(key, growing) for growing in GROWING):
        free = _free(frozen)
        raise InputError(
            f"'{key}' of a study that has begun cannot change",
            where=f"--set {key}",
            why="what the study has done depends on it",
            remedy=f"what may change: {', '.join([*GROWING, *free])}; or h2h run ITS_FILE --set name=ANOTHER",
        )
    before, after = change
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        before, after = _amounts(key, frozen, wanted)  # a record that was not there, or is there no more
    if after < before:
        raise InputError(
            f"'{key}' can only grow",
            where=f"--set {key}={after}",
            why=f"the study has {before:g}, which may be spent already",
            remedy=f"more than {before:g}",
        )


def _require_unit_of_cap(frozen: StudySpec, wanted: StudySpec) -> None:
    if frozen.cap is not None and wanted.cap is not None and frozen.cap.unit != wanted.cap.unit:
        raise InputError(
            f"a cap in {frozen.cap.unit} cannot become one in {wanted.cap.unit}",
            where="--set cap",
            why="which of the two is more cannot be told",
            remedy=f"more {frozen.cap.unit}: --set cap.{frozen.cap.unit}=AMOUNT; or none: --set cap=null",
        )


def _amounts(key: str, frozen: StudySpec, wanted: StudySpec) -> tuple[float, float]:
    """Of a confirmation run, or of the cap: none is more than any."""
    if _is_in(key, "cap"):
        before, after = (math.inf if study.cap is None else study.cap.amount for study in (frozen, wanted))
        return before, after
    return frozen.confirm_budget.amount, wanted.confirm_budget.amount


def _is_in(key: str, place: str) -> bool:
    return key == place or key.startswith(f"{place}.")


def differences(
    before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], place: str = ""
) -> Iterator[tuple[str, Change]]:
    """What differs in nested mappings, by dotted key, below ``place``; lists are compared whole."""
    for key in [*before, *(key for key in after if key not in before)]:
        one, other = before.get(key), after.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differences(one, other, f"{place}{key}.")
        elif one != other:
            yield f"{place}{key}", (one, other)
