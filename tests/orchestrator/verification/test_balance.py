"""What an arm's search may spend, as ``h2h verify`` holds it against the ledger."""

from __future__ import annotations

import pytest

from orchestrator.ledger.records import Record
from orchestrator.verification.consistency import check_balance
from orchestrator.verification.findings import Verification
from tests.helpers.ledgers import measure, spent, trial
from tests.helpers.ledgers import study as study_record


@pytest.mark.parametrize(
    ("unit", "spendings", "within"),
    [
        ("device_seconds", [1.0, 1.0], True),
        ("device_seconds", [1.04, 1.0], True),  # one ended a step late
        ("device_seconds", [1.0, 1.0, 0.5], False),  # half a trial is no step
        ("tokens", [1.0, 1.0], True),
        ("tokens", [1.0, 1.0, 0.04], False),  # a trial in tokens is never late
        ("tokens", [1.0], True),
    ],
)
def test_what_an_arm_may_spend(unit, spendings, within):
    """Trials of so many budgets each, of a search of two."""
    records: list[Record] = [study_record(unit=unit, amount=100.0, search_budget=2.0, parallel=1)]
    for number, share in enumerate(spendings):
        own = trial("search", "headless", number, amount=100.0)
        records += [own, measure(own, 1, min(1.0, share), spent=spent(**{unit: 100.0 * share}))]
    found = Verification()
    check_balance(found, records)
    assert (found.mismatches == []) is within, found.mismatches


def test_a_trial_that_stops_a_step_before_its_rung_takes_nothing_from_its_arm():
    """As most do: a report at a rung comes with the last step that is not beyond it."""
    records: list[Record] = [study_record(amount=100.0, search_budget=1.0, parallel=1)]
    stopped, whole = (trial("search", "headless", number, amount=100.0) for number in range(2))
    records += [stopped, measure(stopped, 1, 0.3, spent=spent(tokens=30.0), rung=0)]
    records += [whole, measure(whole, 1, 0.69, spent=spent(tokens=69.0))]
    found = Verification()
    check_balance(found, records)
    assert found.mismatches == []
