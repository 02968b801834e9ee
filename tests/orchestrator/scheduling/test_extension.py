"""An extension is refused where it would run nothing: held against what it would have run, without Ray."""

from __future__ import annotations

import copy

import pytest

from orchestrator.analysis.answer import answer_of
from orchestrator.config.extension import extended
from orchestrator.ledger.history import History
from orchestrator.ledger.records import CapRecord, Record, TrialRecord
from orchestrator.ledger.requests import Inbox
from orchestrator.scheduling.extension import require_work
from tests.helpers.timed_phases import TOKENS, Recorded, study
from trainables.errors import InputError
from trainables.storage import Location


class Alike(Recorded):
    """Its arms are equivalent."""

    alike = 0.9


def finished(*overrides) -> Recorded:
    """A study that came to its end; one without a cap, whose costs nobody counts, was evaluated on the way."""
    spec = study("resources.prices.cpu_hour=1", *overrides)
    kind = Recorded if spec.confirm.margin is None else Alike
    return kind(spec, capacity=1, evaluation=0.0 if spec.cap else 1e-6).study()


def asked(driver: Recorded, *overrides: str) -> None:
    """As ``h2h extend`` asks, of a study that stays as it is."""
    wanted, changes = extended(driver.spec, overrides, "")
    require_work(wanted, History.of(driver.records), changes, Inbox(Location("nowhere"), lambda: None))


def gone_on(driver: Recorded, *overrides: str) -> list[Record]:
    """What the study would record if it were extended so, whatever came of it."""
    after = copy.copy(driver)
    after.records = list(driver.records)
    after.history = History.of(after.records)
    after.extend(*overrides).study()
    return after.records[len(driver.records) :]


STUDIES = {
    "nothing left": ["cap={tokens: 1.0e+6}", "search.budget_per_arm=2", "confirm.seeds=3"],
    "three left": ["cap={tokens: 1.3e+6}", "search.budget_per_arm=2", "confirm.seeds=3"],
    "halving": ["cap={tokens: 1.1e+6}", "search.halving={rungs: 2}", "search.budget_per_arm=2", "confirm.seeds=3"],
    "seconds": ["cap={device_seconds: 950}", "search.budget_per_arm=2", "confirm.seeds=3"],
    "dollars": ["cap={usd: 1200}", "search.budget_per_arm=2", "confirm.seeds=3"],
    "ended by the cap": ["cap={tokens: 9.0e+5}", "search.budget_per_arm=9", "confirm.seeds=3"],
    "no search": ["cap={tokens: 6.0e+5}", "search.budget_per_arm=0", "confirm.seeds=3"],
    "answered": ["confirm.seeds=8", "confirm.stopping={minimum: 3}", "confirm.margin=0.3", "search.budget_per_arm=1"],
    "no cap": ["confirm.seeds=3", "search.budget_per_arm=2.4"],
    "grid": ["search.algorithm=grid", "search.budget_per_arm=9", "confirm.seeds=2", "arms.headless.space=clm",
             "search.halving.rungs=1"],
}  # fmt: skip

EXTENSIONS = [
    ["search.budget_per_arm=2.9"],
    ["search.budget_per_arm=12"],
    ["confirm.seeds=9"],
    ["confirm.top=2"],
    [f"confirm.budget.tokens={2 * TOKENS}"],
    [f"confirm.budget.tokens={2 * TOKENS}", "search.budget_per_arm=10"],
    ["confirm.seeds=10", "confirm.top=3"],
    ["confirm.stopping={minimum: 2}"],
    ["cap=null"],
]


@pytest.fixture(scope="module", params=STUDIES)
def end(request) -> Recorded:
    return finished(*STUDIES[request.param])


@pytest.mark.parametrize("extension", EXTENSIONS, ids=" ".join)
def test_what_is_refused_would_have_run_nothing_and_the_remedy_pays(end, extension):
    try:
        wanted, _ = extended(end.spec, extension, "")
    except InputError:
        pytest.skip("less than the study has, or no more")
    records = gone_on(end, *extension)
    begun = [record for record in records if isinstance(record, TrialRecord)]
    ends = [record for record in records if isinstance(record, CapRecord)]
    if begun:
        asked(end, *extension)
        return
    before = list(end.records)
    with pytest.raises(InputError, match="pays for nothing of that" if ends else "nothing to run") as error:
        asked(end, *extension)
    assert end.records == before
    if ends:
        for record in ends:
            assert record.message in error.value.why
        assert f"in the same command --set cap.{wanted.cap.unit}=" in error.value.remedy.replace(",", "")
        asked(end, *extension, "cap=null")
        records = gone_on(end, *extension, "cap=null")
        assert any(isinstance(record, TrialRecord) for record in records)
        assert not any(isinstance(record, CapRecord) for record in records)


def test_both_are_refused_and_both_are_let_through():
    """So that the comparison above is one."""
    capped, answered = finished(*STUDIES["nothing left"]), finished(*STUDIES["answered"])
    with pytest.raises(InputError, match="cap pays for nothing") as error:
        asked(capped, f"confirm.budget.tokens={2 * TOKENS}")
    assert "1.0M tokens of the cap of 1.0M tokens are spent" in error.value.why
    assert "--set cap.tokens=" in error.value.remedy
    # What was spent, ten trials, and three seeds of two arms at twice the budget: the first of them begins.
    asked(capped, f"confirm.budget.tokens={2 * TOKENS}", f"cap.tokens={14 * TOKENS}")
    with pytest.raises(InputError, match="cap pays for nothing"):
        asked(capped, f"confirm.budget.tokens={2 * TOKENS}", f"cap.tokens={14 * TOKENS - 1}")
    asked(capped, "confirm.seeds=4", f"cap.tokens={12 * TOKENS}")
    with pytest.raises(InputError, match="nothing to run") as error:
        asked(answered, "confirm.seeds=9")
    assert "confirm.stopping=null" in error.value.remedy
    asked(answered, "confirm.seeds=9", "confirm.stopping=null")
    asked(finished(*STUDIES["no cap"]), "search.budget_per_arm=3.4")


def test_other_devices_are_no_extension_of_the_answer():
    driver = finished(*STUDIES["nothing left"])
    asked(driver, "resources.workers=2")
    asked(driver, "resources.attempts=9")


def test_an_extension_in_words():
    driver = finished(*STUDIES["nothing left"])
    driver.extend(f"confirm.budget.tokens={2 * TOKENS}", f"cap.tokens={30 * TOKENS}", "confirm.stopping={minimum: 2}")
    driver.study().extend(f"confirm.budget.tokens={3 * TOKENS}", "cap=null", "confirm.seeds=5")
    words = answer_of(driver.study().history).verdict
    for part in (
        "confirm.budget from null to 200k tokens;",
        "cap.tokens from 1.0M tokens to 3.0M tokens;",
        "confirm.stopping from null to minimum=2;",
        "confirm.budget.tokens from 200k tokens to 300k tokens;",
        "cap from 3.0M tokens to null;",
        "confirm.seeds from 3 to 5",
    ):
        assert part in words.replace(")", ";"), words
    assert "{" not in words
