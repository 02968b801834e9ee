"""The lead that an arm may have in the spending of its search, as ``h2h verify`` holds it against the ledger."""

from __future__ import annotations

import pytest

from orchestrator.ledger.records import Record
from orchestrator.verification.consistency import check_balance
from orchestrator.verification.findings import Verification
from tests.helpers.ledgers import MASKED, changed, measure, spent, trial
from tests.helpers.ledgers import study as study_record


@pytest.mark.parametrize(
    ("unit", "spendings", "concurrent", "balanced"),
    [
        ("device_seconds", [1.0], 1, True),
        ("device_seconds", [1.04], 1, True),  # it ended a step late
        ("device_seconds", [1.0, 0.5], 1, False),  # half a trial is no step
        ("device_seconds", [1.0, 0.5], 2, True),
        ("tokens", [1.0], 1, True),
        ("tokens", [1.04], 1, False),  # a trial in tokens is never late
    ],
)
def test_the_lead_of_an_arm(unit, spendings, concurrent, balanced):
    """One arm's trials spent so much, in trial budgets, before another's first."""
    records: list[Record] = [study_record(unit=unit, amount=100.0, concurrent_per_arm=concurrent)]
    for number, share in enumerate(spendings):
        own = trial("search", "headless", number, amount=100.0)
        records += [own, measure(own, 1, min(1.0, share), spent=spent(**{unit: 100.0 * share}))]
    found = Verification()
    check_balance(found, records)
    assert (found.mismatches == []) is balanced, found.mismatches


@pytest.mark.parametrize(
    ("restart", "ahead", "balanced"),
    [
        (0, 1.9, True),  # the other arm's 0.9 are gone
        (0, 1.91, False),
        (9, 1.9, True),  # they are not
        (9, 1.91, False),
    ],
)
def test_the_lead_of_an_arm_whose_rival_lost_its_work(restart, ahead, balanced):
    """An arm is to blame for no more than it began beyond what the other had."""
    ours, theirs = (trial("search", arm, 0, amount=100.0) for arm in MASKED)
    again, more = changed(theirs, attempt=2, start_step=restart), trial("search", "headless", 1, amount=100.0)
    records: list[Record] = [study_record(amount=100.0, search_budget=4.0), ours, theirs]
    records += [measure(own, step, step / 10) for own in (ours, theirs) for step in range(1, 10)]
    last = measure(more, 9, 0.9, spent=spent(tokens=100.0 * (ahead - 1)))
    records += [measure(ours, 10, 1.0), again, more, last]
    found = Verification()
    check_balance(found, records)
    assert (found.mismatches == []) is balanced, found.mismatches
