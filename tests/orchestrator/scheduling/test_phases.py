"""Who gets the next trial, and what a search remembers: phases driven without Ray, over made-up reports."""

import random
import subprocess
import sys
from functools import partial

import optuna
import pytest

from orchestrator.analysis.compare import compare
from orchestrator.analysis.selection import best_trials
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, TrialRecord
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.trials import Planner
from tests.helpers.ledgers import changed
from tests.helpers.phases import PRIMARY, TOKENS, Driver, study


def test_a_stop_that_was_not_written_down_is_carried_out():
    whole = Driver(study("search.budget_per_arm=6"), trouble=False, capacity=1).run()
    cut = next(i for i, r in enumerate(whole.records) if isinstance(r, EndRecord) and r.outcome == "pruned")
    resumed = Driver(whole.spec, trouble=False, capacity=1, earlier=whole.records[:cut]).run(2)
    assert resumed.history.trials[whole.records[cut].trial].outcome == "pruned"


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
        def tokens(self, planned, progress):
            return (1.001 if progress == 1.0 else progress) * TOKENS

        def start_all(self):
            """As ever, but for what the driver checks of tokens, of which there are too many."""
            planned = None if self.running or self.phase.exhausted() else self.phase.next()
            if planned is not None:
                self.begin(planned)

    spec = study("search.halving.rungs=1", "search.budget_per_arm=4")
    driver = Slow(spec, trouble=False, capacity=1).run()
    assert [len(driver.history.trials_of("search", arm)) for arm in spec.arms] == [4, 4]


def test_the_best_are_completed_ones():
    driver = Driver(study("search.budget_per_arm=8", "search.algorithm=random"), trouble=False).run()
    history = driver.history
    best = best_trials(history, "vanilla", 3)
    completed = [t for t in history.trials_of("search", "vanilla") if t.outcome == "completed"]
    assert best == sorted(completed, key=lambda t: -t.score(PRIMARY))[:3]
    pruned = next(t for t in history.trials.values() if t.outcome == "pruned")
    last = pruned.measures[-1]
    better = last.yardsticks[PRIMARY].model_copy(update={"overall": 5.0})
    pruned.measures.append(last.model_copy(update={"yardsticks": {PRIMARY: better}}))
    assert pruned.score(PRIMARY) == 5.0
    assert pruned not in best_trials(history, pruned.arm, 100)


def test_confirmation_pairs_seeds_and_runs_nothing_twice():
    spec = study("confirm.top=2", "search.algorithm=random", "confirm.seeds=3")
    search = Driver(spec, trouble=False).run()
    confirm = Driver(spec, ConfirmPhase, trouble=False, earlier=search.records, capacity=1)
    confirm.run(7)
    done = {name for name, t in confirm.history.trials.items() if t.phase == "confirm" and t.outcome}
    assert done
    again = Driver(spec, ConfirmPhase, trouble=False, earlier=confirm.records, capacity=1).run()
    assert not done & {name for name, _ in again.begun}
    runs = again.history.trials_of("confirm")
    assert {t.outcome for t in runs} == {"completed"}
    assert len(runs) == 2 * 2 * 3
    for arm in spec.arms:
        best = [t.configuration for t in best_trials(again.history, arm, 2)]
        for configuration in best:
            own = [t for t in runs if t.arm == arm and t.configuration == configuration]
            assert [t.seed for t in own] == [1, 2, 3]
    assert (spec.seed, spec.confirm.seeds) == (0, 3)


def test_a_configuration_is_confirmed_once_however_often_it_was_tried():
    spec = study("confirm.top=2", "search.algorithm=random", "confirm.seeds=3", "search.halving.rungs=1")
    searched = Driver(spec, trouble=False).run()
    twice = {}  # the second best has the configuration of the best
    for arm in spec.arms:
        first, second, _ = best_trials(searched.history, arm, 3)
        twice[second.trial] = first.configuration
    records = [
        changed(r, configuration=twice[r.trial]) if isinstance(r, TrialRecord) and r.trial in twice else r
        for r in searched.records
    ]
    history = History.of(records)
    for arm in spec.arms:
        first, _, third = best_trials(searched.history, arm, 3)
        assert [t.trial for t in best_trials(history, arm, 2)] == [first.trial, third.trial]
    # Cut off while its first runs are under way, it plans each of them once.
    driver = Driver(spec, ConfirmPhase, trouble=False, earlier=records, capacity=3)
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
    configs = {planned.arm: planned.config for planned, _ in driver.running.values()}
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


def test_an_attempt_that_is_repeated_is_the_next_to_run():
    """Its trial keeps its place and its configuration; nothing new begins before it."""
    driver = Driver(study("search.budget_per_arm=6"), trouble=False, capacity=1)
    driver.start_all()
    [(name, (planned, _))] = driver.running.items()
    driver.end(name, "retried")
    again = driver.phase.next()
    assert (again.trial, again.attempt, again.configuration) == (name, 2, planned.configuration)
    assert driver.history.trials[name].failures == 1


@pytest.mark.parametrize("stopping", [True, False])
def test_a_spare_seed_of_all_arms_replaces_one_of_which_a_run_was_lost(stopping):
    """And another where the spare is lost too, in every session; never more than there are seeds."""
    settings = ["search.budget_per_arm=0", "confirm.seeds=4"]
    spec = study(*settings, *(["confirm.stopping.minimum=3"] if stopping else []))
    lost = {1: "headless", 3: "vanilla", 5: "vanilla"}
    for of_lost, seeds in ((lost, 7), (dict.fromkeys(range(1, 20), "vanilla"), 8)):
        driver = Driver(spec, ConfirmPhase, trouble=False)
        for _ in range(100):
            if driver.rng.random() < 0.3:
                running = list(driver.running)
                for name in running:
                    driver.end(name, "interrupted")
                driver = Driver(spec, ConfirmPhase, trouble=False, earlier=driver.records)
            driver.start_all()
            if not driver.running:
                break
            name = driver.rng.choice(sorted(driver.running))
            planned, _ = driver.running[name]
            if of_lost.get(planned.seed) == planned.arm:
                driver.end(name, "lost")
            else:
                driver.advance(name)
        trials = driver.history.trials_of("confirm")
        assert {(t.arm, t.seed) for t in trials} == {(a, s) for a in spec.arms for s in range(1, seeds + 1)}
        assert all(t.outcome in ("completed", "lost") for t in trials)


@pytest.mark.parametrize(("slots", "then"), [(2, 1), (3, 1), (4, 4), (5, 5), (16, 16)])
def test_a_free_slot_begins_the_next_run_where_there_is_room_for_two_seeds(slots, then):
    """Where the slower arm's runs were waited for, the slots of the others would be idle. With room for one seed, the
    answer is asked for after each."""
    spec = study("search.budget_per_arm=0", "confirm.seeds=40", "confirm.stopping.minimum=2")
    driver = Driver(spec, partial(ConfirmPhase, slots=slots), trouble=False, capacity=slots)

    def end_the_first():
        driver.start_all()
        name = min(driver.running, key=lambda name: driver.running[name][0].seed)
        while name in driver.running:
            driver.advance(name)

    for _ in range(4):
        end_the_first()
    assert {run.seed for run in driver.history.trials_of("confirm") if run.outcome == "completed"} == {1, 2}
    end_the_first()
    driver.start_all()
    assert len(driver.running) == then


def test_seeds_side_by_side_fill_the_slots_and_change_no_answer():
    """With a look after each seed: those that had begun beyond the answer are in no number, and are said."""

    class Clear(Driver):
        def score(self, planned, progress):
            chance = random.Random(f"{planned.arm}/{planned.seed}").random()
            return (0.5 if planned.arm == "headless" else 0.4) + 0.02 * chance

    spec = study("search.budget_per_arm=0", "confirm.seeds=14", "confirm.stopping.minimum=6")
    told = []
    for slots in (2, 8):
        driver = Clear(spec, partial(ConfirmPhase, slots=slots), trouble=False, capacity=slots)
        most = 0
        while True:
            driver.start_all()
            if not driver.running:
                break
            most = max(most, len(driver.running))
            driver.advance(min(driver.running))
        assert most == slots
        comparison = compare(driver.history)
        (pair,) = comparison.pairs
        assert (pair.verdict, pair.yardsticks[PRIMARY].n) == ("headless", 6)
        told.append((len(driver.history.trials_of("confirm")), pair, verdict_in_words(comparison)))
    (few, pair, said), (more, again, said_again) = told
    assert (few, again) == (12, pair)
    assert 12 < more <= 12 + 8 + 4, "one arm's runs all end before the other's"
    assert "ran beside it" not in said
    assert f"{(more - 12) // 2} more seed" in said_again
