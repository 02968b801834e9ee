"""What ``h2h verify`` makes of ledgers that honest studies have left, and of ones that were touched."""

from __future__ import annotations

import copy
import random

import pytest

from orchestrator.analysis.compare import compare
from orchestrator.ledger.history import History
from orchestrator.ledger.records import (
    BegunRecord,
    ComparisonRecord,
    EndRecord,
    MeasureRecord,
    StudyRecord,
    TrialRecord,
)
from orchestrator.scheduling.arm_search import HOPELESS_TRIALS
from orchestrator.scheduling.search import SearchPhase
from orchestrator.verification.answer import check_comparison
from orchestrator.verification.findings import Verification
from tests.helpers.ledgers import changed, phase, run
from tests.helpers.ledgers import study as study_record
from tests.helpers.timed_phases import ANYTIME, TOKENS, Recorded, mismatches, study
from trainables.evaluation import Score
from trainables.storage import Location


class Breaking(Recorded):
    """Some of its trials break."""

    def __init__(self, spec, broken=0.0, **options):
        self.broken = broken
        super().__init__(spec, **options)

    def advance(self, driven, name):
        if self.chance.random() < self.broken:
            self.end(driven, name, self.chance.choice(["diverged", "failed"]))
        else:
            super().advance(driven, name)


GRID = ["search.algorithm=grid", "search.grid_points=1", "search.budget_per_arm=12"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["search.budget_per_arm=6"],
        ["search.budget_per_arm=6", "search.parallel=3"],
        ["search.budget_per_arm=0"],
        ["search.budget_per_arm=4", "search.halving.rungs=1", "search.algorithm=tpe"],
        ["search.budget_per_arm=4", "search.algorithm=cma_es"],
        GRID,
        ["search.budget_per_arm=30", f"cap={{tokens: {15 * TOKENS}}}"],
        ["search.budget_per_arm=30", "cap={device_seconds: 1500}"],
        ["search.budget_per_arm=2", "cap={usd: 900}", "resources.prices.cpu_hour=1", "confirm.seeds=9"],
        ["search.budget_per_arm=2", "confirm.stopping={minimum: 3}", "confirm.margin=0.3"],
        ["search.budget_per_arm=2", *ANYTIME, "confirm.top=2"],
    ],
)
@pytest.mark.parametrize("broken", [0.0, 0.15])
def test_an_honest_study_is_as_it_should_be(overrides, broken):
    """To its end; cut off three times and gone on with; extended three times, each time cut off; without its cap."""
    spec = study("confirm.seeds=4", *overrides)
    chance = random.Random(str(overrides))
    driver = Breaking(spec, broken, trouble=broken / 2, capacity=3).study()
    assert mismatches(driver) == []
    for _ in range(3):
        whole = len(driver.records)
        driver.cut(chance.randrange(whole // 4, whole)).study()
        assert mismatches(driver) == []
    for more in ("search.budget_per_arm=33", "confirm.seeds=10", f"confirm.budget.tokens={2 * TOKENS}"):
        driver.extend(more)
        driver.cut(len(driver.records) - 1).study()
        assert mismatches(driver) == []
    if spec.cap is not None:
        assert mismatches(driver.extend("cap=null").study()) == []


def test_an_arm_of_which_all_trials_break_ends_the_search():
    class Hopeless(Recorded):
        def advance(self, driven, name):
            if self.running[name][0].arm == "vanilla":
                self.end(driven, name, "diverged")
            else:
                super().advance(driven, name)

    driver = Hopeless(study("search.budget_per_arm=6")).run(SearchPhase)
    assert len(driver.history.trials_of("search", "vanilla")) == HOPELESS_TRIALS + 1 == 17
    assert mismatches(driver) == []


@pytest.mark.parametrize("anytime", [(), ANYTIME])
def test_a_spare_seed_takes_the_place_of_one_of_which_a_run_was_lost(anytime):
    class Losing(Recorded):
        def advance(self, driven, name):
            if name == "confirm-vanilla-002":
                self.end(driven, name, "lost")
            else:
                super().advance(driven, name)

    driver = Losing(study("search.budget_per_arm=2", "confirm.seeds=4", *anytime)).study()
    assert driver.seeds() == [[1, 2, 3, 4, 5]] * 2
    assert mismatches(driver) == []


@pytest.fixture(scope="module")
def honest() -> Recorded:
    overrides = ("search.budget_per_arm=4", "confirm.seeds=6", "confirm.evaluations=4")
    driver = Recorded(study(*overrides), evaluation=1.0).study()
    assert mismatches(driver) == []
    return driver


def touched(honest, edit):
    """What is found of the ledger with another record in the place of each; None: it is left out."""
    driver = copy.copy(honest)
    edited = [edit(record) for record in honest.records]
    driver.records = [record for record in edited if record is not None]
    return mismatches(driver)


def of(record, name, kind=MeasureRecord):
    return isinstance(record, kind) and record.trial == name


NAME = "confirm-vanilla-002"


def test_a_ledger_that_nobody_touched(honest):
    assert touched(honest, lambda record: record) == []


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 10.0}, {"learning_rate": None}, {"batch_sequences": 64}],
    ids=["beyond the widest range", "no number", "a setting that is not searched"],
)
def test_a_search_tries_what_its_space_has(honest, change):
    name = "search-vanilla-001"

    def edit(record):
        if of(record, name, TrialRecord):
            return changed(record, configuration=record.configuration | change)
        return record

    assert f"{name}: in the search space of its arm" in touched(honest, edit)


def test_spending_only_rises(honest):
    """Two reports of another order."""
    swapped = {100: 25, 25: 100}

    def edit(record):
        if of(record, NAME) and record.step in swapped:
            return changed(record, step=swapped[record.step])
        return record

    found = touched(honest, edit)
    assert f"{NAME} step 25: spending rises" in found


def test_progress_is_spending_over_budget(honest):
    def edit(record):
        if of(record, NAME) and record.progress == 0.5:
            return changed(record, progress=0.4)
        return record

    assert touched(honest, edit) == [f"{NAME} step 50: progress"]


@pytest.mark.parametrize("unit", ["tokens", "flops"])
def test_nothing_is_overspent(honest, unit):
    """In the unit that binds; others may be more."""

    def edit(record):
        if of(record, NAME) and record.progress == 1.0:
            return changed(record, spent=record.spent | {unit: 1.01 * record.spent[unit]})
        return record

    found = [where for where in touched(honest, edit) if not where.startswith("comparison.")]
    assert found == ([f"{NAME} step 100: within its budget"] if unit == "tokens" else [])


def test_the_overall_value_is_the_mean_over_languages(honest):
    def edit(record, en):
        if of(record, NAME) and record.progress == 0.25:
            (name,) = record.yardsticks
            own = record.yardsticks[name].overall
            return changed(record, yardsticks={name: Score(overall=own, languages={"en": own + en, "fr": own - 0.1})})
        return record

    assert touched(honest, lambda record: edit(record, 0.1)) == []
    assert touched(honest, lambda record: edit(record, 0.2)) == [f"{NAME} step 25: recovery_accuracy"]


def test_trials_of_one_seed_saw_the_same_data(honest):
    def edit(record):
        return changed(record, digest="1" * 16) if of(record, NAME) and record.progress == 1.0 else record

    found = touched(honest, edit)
    assert len(found) == 1
    assert found[0].startswith(f"{NAME} step 100: data as of confirm-")


def test_seeds_and_budgets_are_the_protocols(honest):
    def edit(record, **fields):
        return changed(record, **fields) if of(record, NAME, TrialRecord) else record

    assert f"{NAME}: a seed of the protocol" in touched(honest, lambda r: edit(r, seed=0))
    assert f"{NAME}: a seed of the protocol" in touched(honest, lambda r: edit(r, seed=7))
    assert f"{NAME}: its budget" in touched(honest, lambda r: edit(r, amount=1.1 * TOKENS))


@pytest.mark.parametrize("kind", [BegunRecord, MeasureRecord, EndRecord])
@pytest.mark.parametrize("said", [{"arm": "headless"}, {"phase": "search"}, {"attempt": 2}])
def test_records_of_an_attempt_are_its_trials(honest, kind, said):
    edit = touched(honest, lambda record: changed(record, **said) if of(record, NAME, kind) else record)
    assert f"{NAME}: whose" in edit


def test_only_the_best_of_the_search_was_confirmed(honest):
    searched = [t.configuration for t in honest.history.trials_of("search", "vanilla")]
    chosen = honest.history.trials[NAME].configuration
    other = next(configuration for configuration in searched if configuration != chosen)

    def edit(record):
        return changed(record, configuration=other) if of(record, NAME, TrialRecord) else record

    assert f"{NAME}: among the best configurations of the search" in touched(honest, edit)


def test_what_was_broken_is_not_compared(honest):
    """A run called failed afterwards, for it speaks against the answer."""

    def edit(record):
        return changed(record, outcome="failed", reason="told so") if of(record, NAME, EndRecord) else record

    found = touched(honest, edit)
    assert "comparison.pairs[0].yardsticks.recovery_accuracy.n" in found
    assert any(where.startswith("headless against vanilla, recovery_accuracy") for where in found)


def test_an_answer_is_there_at_the_end(honest):
    found = touched(honest, lambda record: None if record.kind == "comparison" else record)
    assert found == ["a comparison where the study came to its end"]


def test_what_is_but_rounding_is_no_difference_by_other_code_either(tmp_path):
    records = [study_record(seeds=6)]
    for seed in range(1, 7):
        records += [*run("headless", seed, 0.1 + 0.2), *run("vanilla", seed, 0.3)]
    answer = compare(History.of(records))
    records += [phase("compare", "begin"), ComparisonRecord(time=9.0, comparison=answer.to_json())]
    found = Verification()
    check_comparison(found, [*records, phase("compare", "end")], Location(tmp_path))
    assert found.mismatches == []
    assert found.checks["comparison, by other code"] == 12


def test_what_is_compared_is_the_protocols(honest):
    """The design beside the protocol; and the protocol beside the study's file."""

    def edit(record, *, protocol):
        if not isinstance(record, StudyRecord):
            return record
        fields = {"design": changed(record.design, margin=1e-6)}
        if protocol:
            confirm = record.protocol["confirm"] | {"margin": 1e-6}
            fields["protocol"] = record.protocol | {"confirm": confirm}
        return changed(record, **fields)

    assert "session 1: by its protocol.margin" in touched(honest, lambda r: edit(r, protocol=False))
    found = touched(honest, lambda r: edit(r, protocol=True))
    assert "session 1: protocol" in found  # its digest
    assert "study.yaml: protocol.confirm.margin" in found
