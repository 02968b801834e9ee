"""What a study answers: as its ledger recorded it, else as it follows from the ledger so far."""

import json
import math
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import JsonValue

from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from trainables.errors import InputError

TOLERANCE = 1e-9  # relative, of numbers that were computed on another machine


class Answer(NamedTuple):
    """A comparison, and what a reader must know of where it is from."""

    comparison: Comparison
    note: str  # empty where there is nothing to know

    @property
    def verdict(self) -> str:
        """The comparison in words, with the note."""
        return "\n\n".join(filter(None, [verdict_in_words(self.comparison), self.note]))


def answer_of(history: History) -> Answer:
    """What a study says: a finished one what it said when it came to its end, whatever this version would say.

    Raises InputError: it has not come to its end, and a file of scores by item is gone or another.
    """
    study = history.study
    if history.comparison is None or study is None:
        return Answer(compare(history), "")
    version = study.versions.get("headtohead", "another version")
    recorded = Comparison.from_json(history.comparison.comparison)
    try:
        derived = compare(history)
    except InputError as error:
        if recorded is None:
            raise
        said = f"This is the answer that the study recorded with headtohead {version}. It cannot be computed anew"
        return Answer(recorded, f"{said}: {error.what} ({error.where}).")
    if recorded is None:
        return Answer(
            derived,
            f"The study recorded its answer with headtohead {version}, in a form that this version does not know: "
            "this is what this version makes of its ledger.",
        )
    changed = [path for path, one, other in leaves(recorded.to_json(), derived.to_json()) if not same(one, other)]
    if not changed:
        return Answer(recorded, "")
    was, is_ = verdict_in_words(recorded), verdict_in_words(derived)
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    says = "comes to the same words" if was == is_ else f'says: "{is_}"'
    return Answer(
        recorded,
        f"This is the answer that the study recorded with headtohead {version}. Computed anew from its ledger, "
        f"{', '.join(changed[:3])}{more} differ, and this version {says}",
    )


def leaves(one: JsonValue, other: JsonValue, path: str = "") -> Iterator[tuple[str, JsonValue, JsonValue]]:
    """The single values of two JSON values that are to be the same, side by side, by their place."""
    dot = f"{path}." if path else ""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from leaves(one.get(key), other.get(key), f"{dot}{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from leaves(left, right, f"{path}[{index}]")
    else:
        yield path, one, other


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two single values are the same, numbers to within :data:`TOLERANCE`."""
    if isinstance(one, int | float) and isinstance(other, int | float) and bool not in (type(one), type(other)):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
