"""A study's cap, over phases driven without Ray: spending is what a made-up clock says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.compare import compare
from orchestrator.analysis.selection import best_trials
from orchestrator.config.extension import extended
from orchestrator.config.files import freeze, load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.records import CapRecord, EndRecord, ExtensionRecord
from orchestrator.planning.arm_plan import arm_plans, require_confirmable
from orchestrator.reporting.plan_table import show_plan
from orchestrator.scheduling import confirmation
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.search import SearchPhase
from orchestrator.scheduling.study_budget import MARGIN, StudyBudget
from tests.helpers.ledgers import begun, end, measure, spent, trial
from tests.helpers.ledgers import study as study_record
from tests.helpers.timed_phases import ANYTIME, OVERHEAD, SECONDS, TOKENS, Driver, Recorded, mismatches, study
from trainables.errors import InputError


def budget(spec, history):
    return StudyBudget(spec, history, spec.cap)


@pytest.mark.parametrize("top", [1, 2])
@pytest.mark.parametrize("rungs", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_cap_in_the_budget_s_unit_is_kept_to_the_token(seed, rungs, top):
    trials = 2 * 4 * top + 5.5
    spec = study(
        f"cap={{tokens: {trials * TOKENS}}}", "confirm.seeds=4", f"confirm.top={top}",
        f"search.halving.rungs={rungs}", "search.budget_per_arm=50",
    )  # fmt: skip
    driver = Driver(spec, seed).run(SearchPhase)
    a, b = driver.spent_in_search()
    assert abs(a - b) <= 1
    assert 5.5 - 2 < a + b <= 5.5
    assert "search ends here" in driver.history.events[-1].message
    driver.run(ConfirmPhase)
    assert all(len(seeds) == 4 * top for seeds in driver.seeds())
    assert driver.history.planned_seeds == 4
    assert driver.history.spending().total("tokens") <= trials * TOKENS * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    seconds=st.integers(1500, 6000),
    capacity=st.sampled_from([1, 2, 4]),
    unit=st.sampled_from(["device_seconds", "usd"]),
    trouble=st.sampled_from([0.0, 0.1]),
)
def test_a_cap_in_time_pays_for_confirmation_and_never_for_half_a_pair(seed, seconds, capacity, unit, trouble):
    spec = study(
        f"cap={{{unit}: {seconds}}}", "confirm.seeds=5", "search.budget_per_arm=100",
        "resources.prices.cpu_hour=1", "search.halving.rungs=2",
    )  # fmt: skip
    driver = Driver(spec, seed, capacity, trouble).run(SearchPhase)
    a, b = driver.spent_in_search()
    assert abs(a - b) <= 2 + 1e-9
    cap = budget(spec, driver.history)
    whole = 5 * (sum(SECONDS.values()) + 2 * OVERHEAD)
    # One trial has the clock while others stand: their waiting is billed, as it is where a device is held.
    if capacity == 1 and not trouble:
        assert cap.reserve == pytest.approx(whole, rel=0.02)
        assert seconds - cap.spent >= whole
        assert seconds - cap.spent < whole * (1 + MARGIN) + 2 * (SECONDS["vanilla"] + OVERHEAD) * 2
    driver.run(ConfirmPhase)
    one, other = driver.seeds()
    assert one == other
    if capacity == 1 and not trouble:
        assert len(one) == 5
        assert driver.history.spending().total(unit) <= seconds


def test_a_longer_confirmation_with_its_cooldowns_is_kept_back():
    """Runs of twice the budget, and 0.2 of each for those that leave it: 2.4 trial budgets a run."""
    overrides = (f"confirm.budget={{tokens: {2 * TOKENS}}}", *ANYTIME, "confirm.seeds=4")
    amount = (2 * 4 * 2.4 + 6) * TOKENS
    spec = study(f"cap={{tokens: {amount}}}", *overrides, "search.budget_per_arm=50")
    driver = Driver(spec).run(SearchPhase)
    assert budget(spec, driver.history).reserve == pytest.approx(2 * 4 * 2.4 * TOKENS)
    assert 6 - 2 < sum(driver.spent_in_search()) <= 6
    driver.run(ConfirmPhase)
    assert [len(seeds) for seeds in driver.seeds()] == [4, 4]
    driver.run(AnytimePhase)
    assert len(driver.history.trials_of("anytime")) == 2 * 4 * 2
    assert 0.9 * amount < driver.history.spending().total("tokens") <= amount * (1 + 1e-9)
    # Without a search the cap ends it where a seed's cooldowns, and those of the seeds before, no longer fit.
    spec = study(f"cap={{tokens: {(2 * 3 * 2.4 - 0.1) * TOKENS}}}", *overrides, "search.budget_per_arm=0")
    assert [len(seeds) for seeds in Driver(spec).run(ConfirmPhase).seeds()] == [2, 2]


def test_in_seconds_a_longer_confirmation_is_told_from_the_search_and_then_by_its_own_runs():
    """By what a unit of the budget has cost so far, with all overhead: a longer run starts no more often."""
    spec = study(f"confirm.budget={{tokens: {2 * TOKENS}}}", "cap={device_seconds: 9000}", "search.budget_per_arm=2")
    driver = Driver(spec, capacity=1).run(SearchPhase)
    runs = 2 * sum(SECONDS.values()) + 2 * OVERHEAD
    assert budget(spec, driver.history).reserve == pytest.approx(spec.confirm.seeds * runs)
    driver.run(ConfirmPhase)
    assert budget(spec, driver.history).reserve == pytest.approx(spec.confirm.seeds * runs)


def test_a_trial_costs_what_those_before_it_did():
    """Completed ones of its phase, then any that ended; of the search, where its own phase has none."""
    spec = study("cap={device_seconds: 9000}", "search.budget_per_arm=2", "confirm.seeds=3")
    history = History.of([study_record(of=design_of(spec))])
    known = budget(spec, history)

    def add(phase, number, outcome, progress, seconds):
        own = trial(phase, "vanilla", number, amount=TOKENS)
        held = spent(tokens=progress * TOKENS, device_seconds=seconds, wall_seconds=seconds)
        for record in (own, begun(own), measure(own, 1, progress, time=1.0 + seconds, spent=held),
                       end(own, outcome, time=1.0 + seconds)):  # fmt: skip
            history.apply(record)

    def costs():
        return [known.trial_cost(phase, "vanilla") for phase in ("search", "confirm")]

    assert known.waits_for_costs("search")
    assert costs() == [0.0, 0.0]
    add("search", 0, "diverged", 0.25, 30.0)
    assert costs() == [0.0, 0.0], "nothing is known of the other arm"
    own = trial("search", "headless", 0, amount=TOKENS)
    for record in (own, begun(own), measure(own, 1, 1.0, spent=spent(tokens=TOKENS)), end(own)):
        history.apply(record)
    assert not known.waits_for_costs("search")
    assert costs() == pytest.approx([120.0, 120.0])
    add("search", 1, "completed", 1.0, 80.0)
    add("search", 2, "completed", 1.0, 100.0)
    add("search", 3, "pruned", 0.5, 90.0)
    assert costs() == pytest.approx([90.0, 90.0])
    add("confirm", 0, "failed", 0.5, 75.0)
    assert costs() == pytest.approx([90.0, 150.0])
    add("confirm", 1, "completed", 1.0, 140.0)
    assert costs() == pytest.approx([90.0, 140.0])


def test_a_seed_of_another_budget_has_not_begun():
    spec = study(f"cap={{tokens: {9 * TOKENS}}}", "search.budget_per_arm=0", "confirm.seeds=3")
    driver = Driver(spec).run(ConfirmPhase)
    assert [len(seeds) for seeds in driver.seeds()] == [3, 3]
    longer = study(
        f"cap={{tokens: {9 * TOKENS}}}", "search.budget_per_arm=0", "confirm.seeds=3",
        f"confirm.budget={{tokens: {2 * TOKENS}}}",
    )  # fmt: skip
    assert not budget(longer, driver.history).allows_runs(longer.arms)
    assert ConfirmPhase(longer, driver.history, "corpus").exhausted()


def test_confirmation_ends_with_a_whole_seed_and_is_compared():
    spec = study("cap={device_seconds: 1000}", "search.budget_per_arm=0", "confirm.seeds=9")
    driver = Driver(spec, capacity=1).run(ConfirmPhase)
    # Before the first pair is done nothing is known; a pair costs 160 seconds.
    one, other = driver.seeds()
    assert one == other
    assert len(one) == 6
    event = driver.history.events[-1]
    assert (event.seeds, event.phase) == (6, "confirm")
    assert "after 6 of 9 seeds" in event.message
    assert driver.history.planned_seeds == 6
    (pair,) = compare(driver.history).pairs
    assert pair.pending == 0


def test_a_half_run_seed_is_finished_whatever_is_left():
    spec = study("cap={device_seconds: 360}", "search.budget_per_arm=0", "confirm.seeds=9")
    driver = Recorded(spec, capacity=1).run(ConfirmPhase)
    ends = [i for i, r in enumerate(driver.records) if isinstance(r, EndRecord) and r.trial == "confirm-vanilla-001"]
    history = History.of(driver.records[: ends[0] + 1])
    resumed = ConfirmPhase(spec, history, "corpus")
    assert not resumed.exhausted()
    assert resumed.next().trial == "confirm-headless-001", "of each other seed the arms come in opposite order"


def test_a_seed_that_fits_only_if_it_costs_no_more_than_those_before_does_not_begin():
    spec = study("cap={device_seconds: 330}", "search.budget_per_arm=0", "confirm.seeds=9")
    driver = Driver(spec, capacity=1).run(ConfirmPhase)  # a pair costs 160 seconds
    assert [len(seeds) for seeds in driver.seeds()] == [1, 1]


def test_where_nothing_is_known_of_costs_one_seed_and_a_trial_an_arm_begin():
    class Watched(Driver):
        waited = False

        def begin(self, planned):
            ended = {t.arm for t in self.history.trials_of(planned.phase) if t.outcome}
            running = [p for p, _ in self.running.values() if planned.phase == "confirm" or p.arm == planned.arm]
            if ended != set(self.spec.arms):
                assert all(planned.phase == "confirm" and p.seed == planned.seed for p in running)
                self.waited = True
            super().begin(planned)

    overrides = ("resources.prices.cpu_hour=1", "confirm.seeds=4", "search.parallel=4")
    spec = study("cap={usd: 300}", *overrides, "search.budget_per_arm=0")
    driver = Watched(spec, capacity=8).run(ConfirmPhase)  # each run has about the cap for its price
    assert [len(seeds) for seeds in driver.seeds()] == [1, 1]
    assert driver.waited
    spec = study("cap={usd: 20000}", *overrides, "search.budget_per_arm=8")
    driver = Watched(spec, capacity=8).run(SearchPhase)
    assert driver.waited
    assert len(driver.history.trials_of("search")) >= 16


@pytest.mark.parametrize("rungs", [1, 3])
@pytest.mark.parametrize(("top", "waiting"), [(1, 0.0), (2, 0.0), (1, 300.0)])
def test_what_confirmation_evaluates_more_than_the_search_is_paid_for_in_whole_seeds(rungs, top, waiting):
    """A completed trial of the search tells what a run costs, until there is one: the last seeds may not begin.

    What trials waited for room is no device's time.
    """
    overrides = (f"search.halving.rungs={rungs}", f"confirm.top={top}", "confirm.evaluations=8")
    spec = study("cap={device_seconds: 5000}", *overrides, "confirm.seeds=3", "search.budget_per_arm=100")
    driver = Driver(spec, capacity=1, evaluation=9.0, waiting=waiting).run(SearchPhase)
    cap = budget(spec, driver.history)

    def runs(evaluations):
        return top * (sum(SECONDS.values()) + 2 * (OVERHEAD + 9.0 * evaluations))

    in_search, in_confirmation = rungs, 7 + len(spec.yardsticks.names)
    assert cap.reserve == pytest.approx(3 * runs(in_search))
    left = 5000 - cap.spent
    assert left >= cap.reserve
    driver.run(ConfirmPhase)
    assert cap.reserve == pytest.approx(3 * runs(in_confirmation))
    one, other = driver.seeds()
    assert one == other
    # Each seed after the first begins if what is left pays for it by what the runs before it cost, and the margin.
    paid = 1
    while paid < 3 and left - paid * runs(in_confirmation) >= (1 + MARGIN) * runs(in_confirmation):
        paid += 1
    assert len(one) == paid * top
    assert cap.spent <= 5000


def searched_and_confirmed(cap, **changes):
    """Two search trials an arm and three seeds: ten trial budgets, of a cap that is then extended."""
    overrides = ("search.halving.rungs=1", "search.budget_per_arm=2", "confirm.seeds=3")
    driver = Driver(study(f"cap={{tokens: {10 * TOKENS}}}", *overrides)).run(SearchPhase).run(ConfirmPhase)
    assert [len(seeds) for seeds in driver.seeds()] == [3, 3]
    driver.record(ExtensionRecord(changes={key.replace("__", "."): (None, new) for key, new in changes.items()}))
    changed = [f"{key.replace('__', '.')}={new}" for key, new in changes.items()]
    driver.spec = study(f"cap={{tokens: {cap * TOKENS}}}", *overrides, *changed)
    driver.session()
    return driver


@pytest.mark.parametrize(("cap", "seeds"), [(10, 0), (13.9, 1), (16, 3), (99, 3)])
def test_runs_that_a_seed_gains_by_an_extension_have_to_fit(cap, seeds):
    driver = searched_and_confirmed(cap, confirm__top=2).run(ConfirmPhase)
    assert [len(own) for own in driver.seeds()] == [3 + seeds] * 2
    assert driver.history.spending().total("tokens") <= max(10, cap) * TOKENS * (1 + 1e-9)
    messages = [event.message for event in driver.history.events if isinstance(event, CapRecord)]
    if seeds < 3:
        assert f"without {2 * (3 - seeds)} runs" in messages[-1]
        assert driver.history.planned_seeds == 3


def test_seeds_of_a_new_best_configuration_have_to_fit():
    driver = searched_and_confirmed(10, search__budget_per_arm=9)
    before = {arm: best_trials(driver.history, arm, 1) for arm in driver.spec.arms}
    capped, driver.spec = driver.spec, driver.spec.model_copy(update={"cap": None})
    driver.run(SearchPhase)
    assert any(best_trials(driver.history, arm, 1) != before[arm] for arm in before)
    driver.spec = capped
    assert [len(seeds) for seeds in driver.run(ConfirmPhase).seeds()] == [3, 3]


def test_a_half_run_seed_is_finished_after_an_extension_of_the_seeds():
    spec = study(f"cap={{tokens: {8 * TOKENS}}}", "search.budget_per_arm=0", "confirm.seeds=4")
    driver = Driver(spec)
    phase = ConfirmPhase(spec, driver.history, "corpus")
    for _ in range(5):
        driver.begin(phase.next())
        driver.advance(phase, next(iter(driver.running)))
    driver.record(ExtensionRecord(changes={"confirm.seeds": (4, 9)}))
    driver.spec = study(f"cap={{tokens: {5 * TOKENS}}}", "search.budget_per_arm=0", "confirm.seeds=9")
    driver.session()
    assert [len(seeds) for seeds in driver.run(ConfirmPhase).seeds()] == [3, 3]


def test_a_search_that_the_cap_ended_goes_on_with_a_larger_one():
    overrides = ("confirm.seeds=3", "search.budget_per_arm=50")
    driver = Driver(study(f"cap={{tokens: {10 * TOKENS}}}", *overrides)).run(SearchPhase)
    before = sum(driver.spent_in_search())
    driver.run(ConfirmPhase)
    driver.record(ExtensionRecord(changes={"cap.tokens": (10 * TOKENS, 30 * TOKENS)}))
    assert "search" not in driver.history.phases
    driver.spec = study(f"cap={{tokens: {30 * TOKENS}}}", *overrides)
    driver.run(SearchPhase)
    assert sum(driver.spent_in_search()) > before + 5
    # One that its own budget ended does not.
    driver = searched_and_confirmed(20)
    driver.record(ExtensionRecord(changes={"cap.tokens": (10 * TOKENS, 20 * TOKENS)}))
    assert driver.history.phases["search"] == "end"
    assert "confirm" not in driver.history.phases


@pytest.mark.parametrize("answer", [False, True])
def test_the_answer_ended_confirmation_and_not_the_cap(monkeypatch, answer):
    monkeypatch.setattr(confirmation, "answered", lambda history: answer)
    spec = study(
        f"cap={{tokens: {8 * TOKENS}}}", "search.budget_per_arm=0", "confirm.seeds=9", "confirm.stopping={minimum: 4}"
    )  # fmt: skip
    driver = Driver(spec).run(ConfirmPhase)
    assert [len(seeds) for seeds in driver.seeds()] == [4, 4]
    assert [event.kind for event in driver.history.events] == ([] if answer else ["cap"])
    assert driver.history.planned_seeds == (9 if answer else 4)


@pytest.mark.parametrize(
    "overrides",
    [
        [f"cap={{tokens: {11.9 * TOKENS}}}", "confirm.seeds=6", "search.budget_per_arm=0"],
        [f"cap={{tokens: {12.9 * TOKENS}}}", "confirm.seeds=6", "search.budget_per_arm=1"],
        ["budget={device_seconds: 60}", "cap={device_seconds: 700}", "confirm.seeds=6"],
        ["budget={wall_seconds: 60}", "cap={device_seconds: 1300}", "resources.workers=2", "confirm.seeds=6",
         "training.batch_sequences=32", "arms.headless.space=clm"],
        ["budget={usd: 1}", "cap={device_seconds: 13900}", "resources.gpus_per_worker=1",
         "resources.prices.gpu_hour=3.6", "confirm.seeds=6"],
        [f"cap={{tokens: {(24 + 1.9) * TOKENS}}}", "confirm.seeds=6", f"confirm.budget={{tokens: {2 * TOKENS}}}"],
        [f"cap={{tokens: {(14.4 + 1.9) * TOKENS}}}", "confirm.seeds=6", *ANYTIME],
    ],
)  # fmt: skip
def test_a_cap_that_cannot_pay_for_confirmation_is_refused(overrides):
    spec = load_study("demo", [f"budget={{tokens: {TOKENS}}}", *overrides])
    with pytest.raises(InputError, match="cannot pay for confirmation") as error:
        require_confirmable(arm_plans(spec))
    assert error.value.where.startswith("cap.")
    with pytest.raises(InputError, match="cannot pay"):
        show_plan(spec)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [f"cap={{tokens: {14 * TOKENS}}}", "confirm.seeds=6"],
        [f"cap={{tokens: {(24 + 2) * TOKENS}}}", "confirm.seeds=6", f"confirm.budget={{tokens: {2 * TOKENS}}}"],
        [f"cap={{tokens: {(14.4 + 2) * TOKENS}}}", "confirm.seeds=6", *ANYTIME],
        ["cap={joules: 1}"],
        ["cap={device_seconds: 1}"],
    ],
)
def test_what_may_be_enough_is_not_refused(overrides):
    require_confirmable(arm_plans(study(*overrides)))


@pytest.mark.parametrize("key", ["budget", "cap"])
def test_dollars_need_prices(key):
    with pytest.raises(InputError, match=f"a {key} in usd needs prices") as error:
        load_study("demo", [f"{key}={{usd: 5}}"] if key == "cap" else ["budget={usd: 5}"])
    assert f"{key}.usd" in error.value.where
    assert load_study("demo", [f"{key}={{usd: 5}}", "resources.prices.gpu_hour=2"])


def test_two_units_of_a_cap_are_refused():
    with pytest.raises(InputError, match="both set") as error:
        study("cap={tokens: 5, usd: 2}")
    assert "--set cap=" in error.value.remedy


def test_a_cap_is_extended_in_its_own_unit():
    spec = study(f"cap={{tokens: {20 * TOKENS}}}")
    with pytest.raises(InputError, match="a cap in tokens cannot become one in flops") as error:
        extended(spec, ["cap={flops: 1e15}"], "studies/demo")
    assert "cap.tokens=AMOUNT" in error.value.remedy
    assert extended(spec, [f"cap.tokens={21 * TOKENS}"], "")[1] == {"cap.tokens": (20 * TOKENS, 21 * TOKENS)}
    assert extended(spec, ["cap=null"], "")[0].cap is None


@pytest.mark.parametrize("unit", ["tokens", "device_seconds", "usd"])
def test_verification_follows_a_cap_through_extensions(unit):
    seed = {"tokens": 2.0 * TOKENS, "device_seconds": 160.0, "usd": 160.0}[unit]
    cap = f"cap={{{unit}: {4.5 * seed}}}"
    spec = study(cap, "resources.prices.cpu_hour=1", "search.budget_per_arm=0", "confirm.seeds=9")
    driver = Recorded(spec, capacity=1).run(ConfirmPhase)
    first = len(driver.seeds()[0])
    driver.extend(f"cap.{unit}={6.5 * seed}").run(ConfirmPhase)
    driver.extend("confirm.seeds=12").run(ConfirmPhase)
    second = len(driver.seeds()[0])
    longer = f"confirm.budget={{tokens: {2 * TOKENS}}}"
    driver.extend(f"cap.{unit}={11 * seed}", longer).run(ConfirmPhase)
    ends = [record.seeds for record in driver.records if isinstance(record, CapRecord)]
    assert 2 < first < second
    assert ends[:3] == [first, second, second]
    assert 0 < ends[3] < second  # of the larger budget
    driver.extend("cap=null").run(ConfirmPhase)
    assert [len(own) for own in driver.seeds()] == [second + 12] * 2
    assert mismatches(driver.compare()) == []


def test_verification_needs_no_file_of_a_search_space(tmp_path):
    space = tmp_path / "space.yaml"
    space.write_text("dimensions: {learning_rate: {type: float, low: 0.001, high: 0.01}}\n")
    overrides = ("search.budget_per_arm=0", "confirm.seeds=9", f"arms.vanilla.space={space}")
    driver = Recorded(study(f"cap={{tokens: {5 * TOKENS}}}", *overrides)).run(ConfirmPhase)
    driver.spec = freeze(driver.spec)  # as it lies in the study's folder
    space.unlink()
    assert isinstance(driver.records[-2], CapRecord)
    assert mismatches(driver) == []


@pytest.mark.parametrize("use", ["cap={usd: 500}", "budget={usd: 5}"])
def test_prices_stay_where_dollars_count(use):
    prices = ("search.halving.rungs=1", "resources.prices={cpu_hour: 1, gpu_hour: 1}")
    cheaper = ["resources.prices.cpu_hour=0.1"]
    with pytest.raises(InputError, match=r"'resources.prices.cpu_hour' of a study that has begun cannot change"):
        extended(study(use, *prices), cheaper, "here")
    _, changes = extended(study("cap={tokens: 1e9}", *prices), cheaper, "here")
    assert changes == {"resources.prices.cpu_hour": (1.0, 0.1)}
    if not use.startswith("budget"):
        _, changes = extended(study(use, *prices), ["resources.workers=2"], "here")
        assert changes == {"resources.workers": (1, 2)}
