"""Who gets the next trial, and what a search remembers: phases driven without Ray, over made-up reports."""

import copy
import subprocess
import sys

import optuna
import pytest

from orchestrator.ledger.history import History
from orchestrator.scheduling.confirmation import ConfirmPhase, confirm_seeds
from orchestrator.scheduling.search import Planner, SearchPhase, best_trials, trial_name
from orchestrator.scheduling.search_budget import Account
from tests.helpers.phases import PRIMARY, TOKENS, Driver, study


def test_a_verdict_that_was_not_written_down_is_carried_out():
    whole = Driver(study("search.budget_per_arm=6"), trouble=False, capacity=1).run()
    cut = next(i for i, r in enumerate(whole.records) if r.get("outcome") == "pruned")
    history = History.of(copy.deepcopy(whole.records[:cut]))
    resumed = Driver(whole.spec, trouble=False, capacity=1, history=history).run(2)
    assert resumed.history.trials[whole.records[cut]["trial"]].outcome == "pruned"


def test_halving_never_looks_at_another_arm():
    class Better(Driver):
        def score(self, planned, progress):
            return super().score(planned, progress) * 0.01 + (0.9 if planned.arm == "headless" else 0.0)

    fates = []
    for kind in (Driver, Better):
        driver = kind(study("search.algorithm=random"), trouble=False, capacity=1).run()
        fates.append([t.outcome for t in driver.history.trials_of("search", "vanilla")])
    assert fates[0] == fates[1]
    assert "pruned" in fates[0]


def test_a_trial_a_moment_too_long_costs_the_arm_no_trial():
    class Slow(Driver):
        def record(self, kind, **fields):
            if kind == "measure" and fields["progress"] == 1.0:
                fields["spent"] = {"tokens": 1.001 * TOKENS}
            super().record(kind, **fields)

    spec = study("search.halving.rungs=1", "search.budget_per_arm=4")
    driver = Slow(spec, trouble=False, capacity=1)
    driver.start_all = lambda: Driver.start_all(driver) if driver.spent("vanilla") < 2.9 else _start(driver)
    driver.run()
    assert [len(driver.history.trials_of("search", arm)) for arm in spec.arms] == [4, 4]


def _start(driver):
    planned = None if driver.running or driver.phase.exhausted() else driver.phase.next()
    if planned is not None:
        driver.running[planned.trial] = planned
        keys = {
            "phase": planned.phase,
            "arm": planned.arm,
            "trial": planned.trial,
            "attempt": planned.attempt,
        }
        driver.record(
            "trial",
            **keys,
            number=planned.number,
            seed=planned.seed,
            configuration=dict(planned.configuration),
            start_step=0,
        )


def test_the_best_are_completed_ones():
    driver = Driver(study("search.budget_per_arm=8", "search.algorithm=random"), trouble=False).run()
    history = driver.history
    best = best_trials(history, "vanilla", PRIMARY, 3)
    completed = [t for t in history.trials_of("search", "vanilla") if t.outcome == "completed"]
    assert best == sorted(completed, key=lambda t: -t.score(PRIMARY))[:3]
    pruned = next(t for t in history.trials.values() if t.outcome == "pruned")
    pruned.measures[-1]["yardsticks"][PRIMARY]["overall"] = 5.0
    assert pruned not in best_trials(history, pruned.arm, PRIMARY, 100)


def test_confirmation_pairs_seeds_and_runs_nothing_twice():
    spec = study("confirm.top=2", "search.algorithm=random", "confirm.seeds=3")
    search = Driver(spec, trouble=False).run()
    confirm = Driver(spec, ConfirmPhase, trouble=False, history=copy.deepcopy(search.history), capacity=1)
    confirm.run(7)
    done = {name for name, t in confirm.history.trials.items() if t.phase == "confirm" and t.outcome}
    assert done
    again = Driver(spec, ConfirmPhase, trouble=False, history=confirm.history, capacity=1).run()
    assert not done & {name for name, _ in again.begun}
    runs = again.history.trials_of("confirm")
    assert {t.outcome for t in runs} == {"completed"}
    assert len(runs) == 2 * 2 * 3
    for arm in spec.arms:
        best = [t.configuration for t in best_trials(again.history, arm, PRIMARY, 2)]
        for configuration in best:
            own = [t for t in runs if t.arm == arm and t.configuration == configuration]
            assert [t.seed for t in own] == confirm_seeds(spec)
    assert spec.seed not in confirm_seeds(spec)


def test_a_configuration_is_confirmed_once_however_often_it_was_tried():
    spec = study("confirm.top=2", "search.algorithm=random", "confirm.seeds=3", "search.halving.rungs=1")
    history = Driver(spec, trouble=False).run().history
    for arm in spec.arms:
        first, second, third = best_trials(history, arm, PRIMARY, 3)
        second.configuration = dict(first.configuration)
        assert best_trials(history, arm, PRIMARY, 2) == [first, third]
    # Cut off while its first runs are under way, it plans each of them once.
    driver = Driver(spec, ConfirmPhase, trouble=False, history=history, capacity=3)
    driver.start_all()
    again = ConfirmPhase(spec, driver.history, "corpus")
    names = [run.trial for run in iter(again.next, None)]
    assert len(names) == len(set(names)) == 2 * 2 * 3


def test_planned_trials_carry_the_arms_settings():
    spec = study(
        "arms.headless.options={temperature: 0.5}",
        "arms.headless.space=clm",
        "training.beta1=0.8",
        "arms.headless.training={beta1: 0.7}",
    )
    driver = Driver(spec)
    driver.start_all()
    configs = {planned.arm: planned.config for planned in driver.running.values()}
    assert configs["headless"].options == {"temperature": 0.5}
    assert (configs["headless"].training.beta1, configs["vanilla"].training.beta1) == (0.7, 0.8)
    assert configs["headless"].split == "validation"
    assert configs["headless"].rungs == spec.search.halving.fractions
    assert configs["vanilla"].training.learning_rate == 1e-3  # the space's first


@pytest.mark.parametrize("phase", ["search", "confirm"])
def test_planned_trials_carry_how_the_text_is_read(phase):
    keys = ("alpha", "maximum_repetition", "document_attention")
    for values in ((0.7, 3.0, True), (0.2, 5.0, False)):
        settings = [f"corpora.{key}={value}" for key, value in zip(keys, values, strict=True)]
        planned = Planner(study(*settings), History(), "corpus").plan(phase, "vanilla", 0, 1, {})
        assert tuple(getattr(planned.config, key) for key in keys) == values


def test_optuna_is_quiet_where_our_search_is_imported():
    script = "import optuna, orchestrator.scheduling.sampler; print(optuna.logging.get_verbosity())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(optuna.logging.WARNING)], done.stderr


def _records(trials, arm="vanilla"):
    """An arm's search as the ledger has it, one trial after another beside those that are still under way."""
    records = [{"kind": "study", "time": 0.0}]
    for name, outcome in trials:
        keys = {"phase": "search", "arm": arm, "trial": name, "attempt": 1, "time": float(len(records))}
        if outcome is None:
            own = {
                "number": int(name[-3:]),
                "seed": 0,
                "configuration": {"learning_rate": 1e-3},
                "start_step": 0,
            }
            records.append({"kind": "trial", **keys, **own})
        else:
            records.append({"kind": "end", **keys, "outcome": outcome, "reason": ""})
    return records


def test_broken_trials_in_a_row_are_those_that_ended_in_a_row():
    """The healthy trial began before the broken ones, and ended or paused after them, or the other way round."""
    for kind, healthy in (("stopping", "completed"), ("promotion", "paused")):
        halving = study(f"search.halving={{kind: {kind}, rungs: 2}}").search.halving
        names = [trial_name("search", "vanilla", number) for number in range(4)]
        begins = [(name, None) for name in names]
        for position in range(4):
            ends = [(name, "diverged") for name in names[1:]]
            ends.insert(position, (names[0], healthy))
            records = _records(begins + ends)
            history, live = History(), Account(study().budget, halving)
            for record in records:
                history.apply(record)
                if record["kind"] == "trial":
                    live.begin(record["trial"])
                elif record["kind"] == "end":
                    live.settle(history.trials[record["trial"]])
            resumed = Account(
                study().budget, halving, history.trials_of("search", "vanilla"), history.search["vanilla"]
            )
            assert live.broken == resumed.broken == 3 - position, (kind, position)


def test_live_and_resumed_accounts_agree():
    for kind in ("stopping", "promotion"):
        spec = study(
            f"search.halving={{kind: {kind}, rungs: 3}}", "search.budget_per_arm=8",
            "search.algorithm=random", "search.concurrent_per_arm=3",
        )  # fmt: skip

        class Troubled(Driver):
            def advance(self, name):
                if self.rng.random() < 0.4:
                    self.end(name, "diverged")
                else:
                    super().advance(name)

        for seed in range(2):
            driver = Troubled(spec, seed=seed, capacity=6)
            most = 0
            for _ in range(60):
                driver.start_all()
                if not driver.running:
                    break
                driver.advance(driver.rng.choice(sorted(driver.running)))
                resumed = SearchPhase(spec, History.of(copy.deepcopy(driver.records)), "corpus")
                for arm, account in driver.phase._accounts.items():
                    again = resumed._accounts[arm]
                    assert again.broken == account.broken
                    most = max(most, account.broken)
            assert most > 1


@pytest.mark.parametrize("rungs", [2, 3, 4])
@pytest.mark.parametrize("reduction", [2, 3])
@pytest.mark.parametrize("concurrent", [1, 2, 4, 8, 16])
def test_promotion_brings_a_trial_to_its_end_however_many_run_at_a_time(concurrent, reduction, rungs):
    """With no more than the least budget that a study may have, and with scores that rise from trial to trial, too."""

    class Rising(Driver):
        def score(self, planned, progress):
            return planned.number / 1000

    halving = f"search.halving={{kind: promotion, reduction: {reduction}, rungs: {rungs}}}"
    least = study(halving, "search.budget_per_arm=9").search.halving.finishing_budget
    for budget in (least, least + 0.7):
        spec = study(
            halving, f"search.budget_per_arm={budget}", f"search.concurrent_per_arm={concurrent}",
            "search.algorithm=random",
        )  # fmt: skip
        for seed, kind in enumerate([Driver, Driver, Rising, Rising]):
            driver = kind(spec, seed=seed, trouble=False, capacity=2 * concurrent).run()
            for arm in spec.arms:
                outcomes = [t.outcome for t in driver.history.trials_of("search", arm)]
                assert "completed" in outcomes, (budget, seed, kind)
                assert driver.spent(arm) <= budget + 1e-6
