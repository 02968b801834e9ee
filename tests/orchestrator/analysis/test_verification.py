"""What ``h2h verify`` makes of ledgers that honest studies have left, and of ones from which something was taken."""

from __future__ import annotations

import copy
import random

import pytest

from orchestrator.ledger.history import History
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.search import SearchPhase, trial_name
from tests.helpers.timed_phases import ANYTIME, TOKENS, Recorded, study
from tests.helpers.verification import mismatches

KINDS = {"search": SearchPhase, "confirm": ConfirmPhase, "anytime": AnytimePhase}


class Whole(Recorded):
    """A study from its search to its end, some of whose trials break, and which may be cut off and gone on with."""

    def __init__(self, spec, broken=0.0, **options):
        self.broken = broken
        super().__init__(spec, **options)

    def advance(self, phase, name):
        if self.chance.random() < self.broken:
            return self.end(phase, name, self.chance.choice(["diverged", "failed"]))
        return super().advance(phase, name)

    def study(self):
        for name, kind in KINDS.items():
            if self.history.phases.get(name) != "end" and (name != "anytime" or self.spec.confirm.anytime):
                self.run(kind)
        self.record("phase", phase="compare", status="begin")
        self.record("comparison")
        self.record("phase", phase="compare", status="end")
        return self

    def run(self, kind):
        super().run(kind)
        if kind is SearchPhase:  # the executor gives up what is paused before the phase's last record
            end = self.records.pop()
            self.history.phases["search"] = "begin"
            for trial in self.history.trials_of("search"):
                if trial.paused:
                    keys = {"phase": "search", "arm": trial.arm, "trial": trial.trial}
                    self.record("end", **keys, attempt=trial.attempts, outcome="pruned", reason="")
            self.record(**{key: value for key, value in end.items() if key != "time"})
        return self

    def cut(self, place):
        """The session ends with a record, as a process that is killed."""
        self.records = self.records[:place]
        self.history, self.running = History.of(copy.deepcopy(self.records)), {}
        self.record("study", usd_per_hour=3600.0)
        return self


PROMOTION = "search.halving={kind: promotion, rungs: 3}"
GRID = ["search.algorithm=grid", "search.grid_points=1", "search.budget_per_arm=12"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["search.budget_per_arm=6"],
        ["search.budget_per_arm=6", "search.concurrent_per_arm=3"],
        ["search.budget_per_arm=6", PROMOTION, "search.concurrent_per_arm=2"],
        ["search.budget_per_arm=0"],
        ["search.budget_per_arm=4", "search.halving.rungs=1", "search.cost=flops", "search.algorithm=tpe"],
        ["search.budget_per_arm=4", "search.algorithm=cma_es", PROMOTION],
        GRID,
        ["search.budget_per_arm=30", f"cap={{tokens: {15 * TOKENS}}}"],
        ["search.budget_per_arm=30", f"cap={{tokens: {15 * TOKENS}}}", PROMOTION],
        ["search.budget_per_arm=30", "cap={device_seconds: 1500}", PROMOTION],
        ["search.budget_per_arm=2", "cap={usd: 900}", "resources.prices.cpu_hour=1", "confirm.seeds=9"],
        ["search.budget_per_arm=2", "confirm.stopping={minimum: 3}", "confirm.margin=0.3"],
        ["search.budget_per_arm=2", *ANYTIME, "confirm.top=2"],
    ],
)
@pytest.mark.parametrize("broken", [0.0, 0.15])
def test_an_honest_study_is_as_it_should_be(overrides, broken):
    spec = study("confirm.seeds=4", *overrides)
    chance = random.Random(str(overrides))
    driver = Whole(spec, broken, trouble=broken / 2, capacity=3).study()
    assert mismatches(driver.records) == []
    for _ in range(3):
        whole = len(driver.records)
        driver.cut(chance.randrange(whole // 4, whole)).study()
        assert mismatches(driver.records) == []
    for more in ("search.budget_per_arm=33", "confirm.seeds=10", f"confirm.budget.tokens={2 * TOKENS}"):
        driver.extend(more)
        driver.cut(len(driver.records) - 1).study()
        assert mismatches(driver.records) == []
    if spec.cap is not None:
        assert mismatches(driver.extend("cap=null").study().records) == []


def test_an_arm_of_which_all_trials_break_ends_the_search():
    class Broken(Whole):
        def advance(self, phase, name):
            if self.running[name].arm == "vanilla":
                return self.end(phase, name, "diverged")
            return super().advance(phase, name)

    driver = Broken(study("search.budget_per_arm=6")).run(SearchPhase)
    assert len(driver.history.trials_of("search", "vanilla")) == 16
    assert mismatches(driver.records) == []
    without = [r for r in driver.records if r.get("trial") != "search-vanilla-015"]
    assert "the end of search: nothing was left to begin" in mismatches(without)


@pytest.fixture(scope="module")
def honest() -> Whole:
    """Scores by chance, so that neither arm is ahead."""
    overrides = ("search.budget_per_arm=6", "confirm.seeds=12", "confirm.stopping={minimum: 6}")
    driver = Whole(study(*overrides, "confirm.evaluations=4"), evaluation=1.0).study()
    assert mismatches(driver.records) == []
    return driver


@pytest.fixture
def records(honest):
    return copy.deepcopy(honest.records)


def of(records, *names):
    return [record for record in records if record.get("trial") in names]


def before_the_end(records, phase, more):
    """With more records before a phase's end."""
    [end] = (i for i, r in enumerate(records) if (r.get("phase"), r.get("status")) == (phase, "end"))
    return [*records[:end], *more, *records[end:]]


def without(records, *names):
    """Trials never were: those after them have their numbers, and their seeds."""
    kept = [record | {} for record in records if record.get("trial") not in names]
    numbers, renamed = {}, {}
    for record in kept:
        if record["kind"] == "trial" and record["trial"] not in renamed:
            place = record["phase"], record["arm"]
            record["number"] = numbers[place] = numbers.get(place, -1) + 1
            renamed[record["trial"]] = trial_name(*place, record["number"])
    for record in kept:
        if "trial" in record:
            record["trial"] = renamed[record["trial"]]
    return kept


def test_a_confirmation_run_is_not_run_twice(records):
    again = [r | {"trial": "confirm-vanilla-012"} for r in of(records, "confirm-vanilla-003")]
    again[0]["number"] = 12
    found = mismatches(before_the_end(records, "confirm", again))
    assert found == ["confirm-vanilla-012: the next seed of its configuration"]


def test_no_attempt_follows_an_outcome(records):
    again = [r | {"attempt": 2} for r in of(records, "confirm-vanilla-003")]
    found = mismatches(before_the_end(records, "confirm", again))
    assert found == ["confirm-vanilla-003: attempt 2: may begin"]
    found = mismatches(before_the_end(records, "confirm", again[1:-1]))
    assert "confirm-vanilla-003: measure of attempt 2 while it runs" in found
    measure = of(records, "confirm-vanilla-003")[-2]
    assert mismatches(before_the_end(records, "confirm", [measure])) == [
        "confirm-vanilla-003: measure of attempt 1 while it runs"
    ]


def test_attempts_are_counted(records):
    for record in of(records, "search-vanilla-001"):
        record["attempt"] = 2
    assert "search-vanilla-001: attempt 2: its number" in mismatches(records)


def test_a_search_is_gone_on_with_after_an_extension_alone():
    """What was paused when it ended was given up, and may be promoted only then."""
    driver = Whole(study("search.budget_per_arm=6", "confirm.seeds=2", PROMOTION), capacity=1).study()
    before = {t.trial for t in driver.history.trials_of("search") if t.outcome == "pruned"}
    driver.extend("search.budget_per_arm=12").study()
    promoted = [t for t in driver.history.trials_of("search") if t.trial in before and t.outcome != "pruned"]
    assert promoted
    assert mismatches(driver.records) == []
    place = next(i for i, r in enumerate(driver.records) if r["kind"] == "extension")
    found = mismatches(driver.records[:place] + driver.records[place + 2 :])
    assert "phase search: after its end" in found


def test_seeds_are_not_left_out(records, honest):
    lost = [t.trial for t in honest.history.trials_of("confirm") if t.seed in (2, 5)]
    assert "confirm-headless-001: the next seed of its configuration" in mismatches(without(records, *lost))
    gone = [r for r in records if r.get("trial") not in lost]
    assert "confirm-headless-002: its number" in mismatches(gone)


def test_confirmation_goes_on_until_it_has_its_answer(records, honest):
    """Its last seed is not among the others by chance: adaptive stopping asked for it."""
    last = max(t.seed for t in honest.history.trials_of("confirm"))
    assert last > 6
    lost = [t.trial for t in honest.history.trials_of("confirm") if t.seed == last]
    found = mismatches(without(records, *lost))
    assert found == ["the end of confirm: nothing was left to begin"]


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_trials_of_a_search_are_not_left_out(kind):
    halving = f"search.halving={{kind: {kind}, rungs: 2}}"
    driver = Whole(study("search.budget_per_arm=6", "confirm.seeds=2", halving), capacity=1).study()
    for number in (0, 3):
        lost = [trial_name("search", arm, number) for arm in driver.spec.arms]
        completed = [t for t in driver.history.trials_of("search") if t.outcome == "completed"]
        lost += [t.trial for t in completed if t.number != number][:1]
        records = copy.deepcopy(driver.records)
        found = mismatches([r for r in records if r.get("trial") not in lost])
        assert any(where.endswith("its number") for where in found)
        assert "the end of search: nothing was left to begin" in mismatches(without(records, *lost))


@pytest.mark.parametrize("unit", ["tokens", "device_seconds"])
def test_a_cap_that_would_have_paid_ended_no_search(unit):
    amount = {"tokens": 20.0 * TOKENS, "device_seconds": 2600.0}[unit]
    spec = study(f"cap={{{unit}: {amount}}}", "search.budget_per_arm=50", "confirm.seeds=3")
    driver = Whole(spec, capacity=1).study()
    assert [r["phase"] for r in driver.records if r["kind"] == "cap"] == ["search"]
    last = [driver.history.trials_of("search", arm)[-1].trial for arm in spec.arms]
    found = mismatches(without(copy.deepcopy(driver.records), *last))
    assert "the cap's end of search: what was next refused" in found
    unsaid = [r for r in driver.records if r["kind"] != "cap"]
    assert "the end of search: nothing was left to begin" in mismatches(unsaid)


@pytest.mark.parametrize("phase", ["search", "confirm"])
def test_a_phase_that_never_ended_is_not_passed_over(records, phase):
    """Without the record of its end, nobody would ask what was left."""
    found = mismatches([r for r in records if (r.get("phase"), r.get("status")) != (phase, "end")])
    assert any(where.startswith("before ") and where.endswith(f".{phase}") for where in found), found


def test_trials_begin_in_their_phase(records):
    begin = next(i for i, r in enumerate(records) if (r["kind"], r.get("phase")) == ("phase", "confirm"))
    records.insert(begin + 3, records.pop(begin))
    assert any(where.endswith("begins in its phase") for where in mismatches(records))


def outcome(records, name, outcome):
    [end] = (r for r in of(records, name) if r["kind"] == "end")
    end["outcome"] = outcome
    return records


@pytest.mark.parametrize("short", [1.0, 0.995])
@pytest.mark.parametrize("name", ["search-vanilla-000", "confirm-vanilla-002"])
def test_what_came_to_its_end_has_completed(records, name, short):
    """Also where the last bit of the budget bought no step."""
    last = of(records, name)[-2]
    last["progress"], last["spent"]["tokens"] = short, short * TOKENS
    assert mismatches(records) == []
    for other in ("failed", "diverged", "pruned", "paused"):
        assert f"{name}: its outcome" in mismatches(outcome(copy.deepcopy(records), name, other))


def test_what_did_not_come_to_its_end_has_not_completed(records, honest):
    pruned = next(t.trial for t in honest.history.trials_of("search") if t.outcome == "pruned")
    assert f"{pruned}: its outcome" in mismatches(outcome(copy.deepcopy(records), pruned, "completed"))
    # Along a confirmation run's curve the primary yardstick is taken too, and not the others.
    name = "confirm-vanilla-002"
    last = of(records, name)[-2]
    cut = [r for r in records if r is not last]
    assert mismatches(outcome(copy.deepcopy(cut), name, "completed")) == [f"{name}: its outcome"]
    assert f"{name}: its outcome" not in mismatches(outcome(cut, name, "failed"))


def test_cut_off_between_its_last_report_and_its_outcome(honest):
    """Then another attempt is to report it again; it may fail before it has, but only in another session."""
    name = "confirm-vanilla-002"
    place = next(i for i, r in enumerate(honest.records) if (r["kind"], r.get("trial")) == ("end", name))
    begin, end = of(honest.records, name)[0], honest.records[place]
    again = [begin | {"attempt": 2, "start_step": 100}, end | {"attempt": 2, "outcome": "failed"}]
    assert mismatches([*honest.records[:place], honest.records[0], *again]) == []
    assert mismatches([*honest.records[:place], *again]) == [f"{name}: attempt 2: may begin"]
    retried = [end | {"outcome": "retried"}, begin | {"attempt": 2, "start_step": 100}]
    assert mismatches([*honest.records[:place], *retried, end | {"attempt": 2}]) == []


def test_a_run_that_left_another_is_of_its_seed():
    driver = Whole(study("search.budget_per_arm=0", "confirm.seeds=3", *ANYTIME)).study()
    name = "anytime-vanilla-001-at-0.2"
    for record in of(driver.records, name):
        if record["kind"] == "trial":
            record["seed"] = 3
    assert f"{name}: it left a run of its seed and configuration" in mismatches(driver.records)
    gone = [r for r in driver.records if r.get("trial") != name]
    assert "the end of anytime: nothing was left to begin" in mismatches(gone)
