"""The search: arms in balance, halving, every sampler resumed anywhere, and what Optuna itself reads."""

import json
import math
import random
import sys
from collections import Counter
from pathlib import Path

import optuna
import optuna.cli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, MeasureRecord, TrialRecord
from orchestrator.reporting.optuna_journal import OPTUNA_FILE, write_optuna_journal
from orchestrator.scheduling.arm_search import HOPELESS_TRIALS
from orchestrator.scheduling.search import SearchPhase
from search_spaces import Space
from tests.helpers.ledgers import changed
from tests.helpers.phases import PRIMARY, TOKENS, Driver, study
from trainables.errors import InputError
from trainables.storage import Location

ALGORITHMS = ("tpe", "gp", "cma_es", "random", "qmc", "grid")


def work_of(driver):
    """What is the same however the trials were run: each trial's configuration, how it ended, and its reports."""
    return {
        name: (trial.configuration, trial.outcome, [(m.step, m.rung, m.progress, m.yardsticks) for m in trial.measures])
        for name, trial in driver.history.trials.items()
    }


class Fated(Driver):
    """Trials break by what they are, whenever they are run; reports come between rungs, too."""

    reports = tuple(i / 20 for i in range(1, 20))

    def advance(self, name):
        planned, _ = self.running[name]
        fate = random.Random(f"fate/{planned.arm}/{planned.number}").random()
        if fate < 0.15 and self.history.trials[name].progress > fate * 3:
            self.end(name, ("diverged", "failed", "lost")[planned.number % 3])
        elif self.rng.random() < 0.05:
            self.end(name, self.rng.choice(["interrupted", "retried"]))
        else:
            super().advance(name)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.sampled_from(["tpe", "random", "qmc"]),
    st.sampled_from([1, 3]),
    st.sampled_from([3, 5.5]),
    st.sampled_from([1, 2, 4, 7]),
)
def test_the_search_is_the_same_however_its_trials_run(seed, capacity, algorithm, rungs, budget, parallel):
    """One at a time, or many, whichever ends first, with attempts that are repeated: the same trials to the bit, and
    each arm spends its budget."""
    spec = study(
        f"search.halving.rungs={rungs}",
        f"search.budget_per_arm={budget}",
        f"search.parallel={parallel}",
        f"search.algorithm={algorithm}",
        "arms.third={objective: mlm}",
    )
    one_by_one = Fated(spec, seed=0, capacity=1, trouble=False).run()
    side_by_side = Fated(spec, seed=seed, capacity=capacity, trouble=False).run()
    assert work_of(side_by_side) == work_of(one_by_one)
    for arm in spec.arms:
        assert budget - (1 if rungs == 1 else 1 / 9) < one_by_one.spent(arm) <= budget + 1e-9
        assert all(t.outcome for t in one_by_one.history.trials_of("search", arm))


def test_an_arm_that_always_breaks_ends_the_search_in_balance():
    class Hopeless(Driver):
        def advance(self, name):
            if self.running[name][0].arm == "headless":
                self.end(name, "diverged")
            else:
                super().advance(name)

    for parallel in (1, 4):
        spec = study("search.budget_per_arm=30", f"search.parallel={parallel}")
        driver = Hopeless(spec, trouble=False).run()
        outcomes = Counter(t.outcome for t in driver.history.trials_of("search", "headless"))
        assert outcomes == {"diverged": HOPELESS_TRIALS + parallel - 1}, "those that ran by then, too"
        # A ninth of a trial is what each of them would have taken; then LEAD, what runs, and a trial more.
        assert 0 < driver.spent("vanilla") <= HOPELESS_TRIALS / 9 + 2 * parallel + 1


def replayed(driver, arm):
    """Of each arrival of an arm's trials at a rung and each time that one goes on: (trial, rung, scores there, whether
    it went on), read from the ledger alone."""
    at_rung, last, found = {}, {}, []
    for record in driver.records:
        name = getattr(record, "trial", None)
        if getattr(record, "arm", None) != arm or getattr(record, "phase", "") != "search":
            continue
        if isinstance(record, MeasureRecord) and record.rung is not None:
            at_rung.setdefault(record.rung, {})[name] = record.yardsticks[PRIMARY].overall
            last[name] = record.rung
            found.append([name, record.rung, dict(at_rung[record.rung]), True])
        elif isinstance(record, EndRecord) and record.outcome == "pruned":
            next(entry for entry in reversed(found) if entry[0] == name)[3] = False
        elif isinstance(record, TrialRecord) and record.attempt > 1:
            found.append([name, last[name], dict(at_rung[last[name]]), True])
    return found


@pytest.mark.parametrize("reduction", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_only_the_best_of_those_at_a_rung_go_on(reduction, seed):
    """From the ledger alone, until what is left is kept back for the last ones: at once or taken up later, a trial goes
    on if fewer than one in ``reduction`` of those there is better, and so none before so many are there."""
    spec = study(
        f"search.halving={{reduction: {reduction}, rungs: 3}}",
        "search.budget_per_arm=12",
        f"seed={seed}",
        "search.parallel=1",
    )
    driver = Driver(spec, seed=seed, trouble=False, capacity=1).run()
    for arm in spec.arms:
        entries = replayed(driver, arm)
        fates = Counter()
        for name, rung, there, went_on in entries[: len(entries) * 2 // 3]:
            better = sum(score > there[name] for score in there.values())
            assert not went_on or better < len(there) // reduction, (name, rung)
            fates[went_on, len(there) < reduction] += 1
        assert set(fates) == {(False, True), (True, False), (False, False)}
        assert any(record.attempt > 1 for record in driver.records if isinstance(record, TrialRecord)), "taken up"


class Ranked(Driver):
    """The later a trial, the better it is."""

    def score(self, planned, progress):
        return (0.1 + planned.number / 1000) * progress


def test_the_first_configuration_gets_no_free_pass():
    """The worst of all is stopped, though it was the best when it came to the rung."""
    driver = Ranked(study("search.budget_per_arm=4", "search.algorithm=random"), trouble=False).run()
    for arm in driver.spec.arms:
        trials = driver.history.trials_of("search", arm)
        assert (trials[0].outcome, trials[0].progress) == ("pruned", pytest.approx(1 / 9))
        assert max(t.number for t in trials if t.outcome == "completed") > 3


def test_a_good_first_configuration_is_no_bar_for_the_others():
    """Where it is the best of all, others come to the end too."""

    class FirstBest(Driver):
        def score(self, planned, progress):
            return (0.9 if planned.number == 0 else 0.5 - planned.number / 1000) * progress

    driver = FirstBest(study("search.budget_per_arm=6", "search.algorithm=random"), trouble=False).run()
    for arm in driver.spec.arms:
        outcomes = [t.outcome for t in driver.history.trials_of("search", arm)]
        assert outcomes[0] == "completed"
        assert outcomes.count("completed") >= 2


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 8, 20])
@pytest.mark.parametrize("top", [1, 2])
def test_a_search_spends_what_it_has_and_ends_with_completed_trials(budget, top):
    if top > budget:
        pytest.skip("no search can")
    for halving in ("{reduction: 3, rungs: 3}", "{reduction: 2, rungs: 2}", "{rungs: 1}"):
        spec = study(f"search.budget_per_arm={budget}", f"search.halving={halving}", f"confirm.top={top}")
        for capacity in (1, 2):
            driver = Driver(spec, trouble=False, capacity=capacity).run()
            for arm in spec.arms:
                assert driver.spent(arm) == pytest.approx(budget), halving
                outcomes = Counter(t.outcome for t in driver.history.trials_of("search", arm))
                assert outcomes["completed"] >= top


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3]))
def test_arms_spend_all_but_a_rung_whatever_breaks(seed, capacity, concurrent):
    """Trials that diverge anywhere, several at a time, reports that are a part of a step beyond their rungs."""

    class Overshooting(Driver):
        reports = tuple(i / 7 for i in range(1, 7))

        def advance(self, name):
            if self.rng.random() < 0.1:
                self.end(name, "diverged")
            else:
                super().advance(name)

        def tokens(self, planned, progress):
            return min(1.0, progress + (0.004 if progress in planned.config.rungs else 0.0)) * TOKENS

        def progress(self, planned, progress):
            return self.tokens(planned, progress) / TOKENS

    spec = study("search.budget_per_arm=8", f"search.parallel={concurrent}", "search.algorithm=random")
    driver = Overshooting(spec, seed=seed, capacity=capacity).run()
    spent = [driver.spent(arm) for arm in spec.arms]
    late = concurrent * 0.004  # before the first arrival nobody knows of it
    assert all(8 - (1 / 9 + 0.004) < one <= 8 + late for one in spent)
    assert min(spent) >= 0.95 * 8
    assert max(spent) - min(spent) <= 0.02 * 8


@pytest.mark.parametrize("parallel", [1, 4, 8])
def test_an_arm_completes_a_trial_although_all_go_beyond_their_rungs(parallel):
    """Side by side nobody knows of it before the first arrives: four begin, and what is left is less than was kept."""

    class Overshooting(Driver):
        def tokens(self, planned, progress):
            return min(1.0, progress + (0.017 if progress in planned.config.rungs else 0.0)) * TOKENS

        def progress(self, planned, progress):
            return self.tokens(planned, progress) / TOKENS

    spec = study("search.budget_per_arm=2", "search.halving={reduction: 3, rungs: 2}", f"search.parallel={parallel}")
    driver = Overshooting(spec, trouble=False, capacity=8).run()
    for arm in spec.arms:
        assert [t.outcome for t in driver.history.trials_of("search", arm)].count("completed") == 1
        assert driver.spent(arm) <= 2 + 4 * 0.017


@pytest.mark.parametrize(
    ("algorithm", "every"),
    [("tpe", 3), ("cma_es", 7), ("random", 1), ("qmc", 7), ("grid", 1)]
    + [pytest.param("gp", every, marks=pytest.mark.slow) for every in (1, 9)],
)
def test_a_search_cut_off_anywhere_goes_on_as_if_it_had_not_been(algorithm, every):
    """Cut after every record of the ledger: the same suggestions, reports and outcomes."""

    def search(earlier=()):
        spec = study(
            "search.halving.rungs=2",
            f"search.budget_per_arm={4 if algorithm == 'gp' else 6}",
            f"search.algorithm={algorithm}",
            "search.startup_trials=2",
            "search.grid_points=5",
        )
        return Driver(spec, trouble=False, capacity=1, earlier=earlier).run()

    whole = search()
    assert {t.outcome for t in whole.history.trials.values()} == {"completed", "pruned"}
    assert max(t.number for t in whole.history.trials.values()) >= 4

    for cut in range(1, len(whole.records), every):
        assert work_of(search(whole.records[:cut])) == work_of(whole), cut


@pytest.mark.parametrize("algorithm", ["tpe", "cma_es"])
def test_a_search_side_by_side_that_is_cut_off_goes_on_the_same(algorithm):
    """CMA-ES keeps generations of trials: it is asked again in the order of virtual time."""
    spec = study("search.parallel=4", "search.budget_per_arm=10", f"search.algorithm={algorithm}")
    whole = Fated(spec, seed=1, capacity=8, trouble=False).run()
    assert Counter(t.outcome for t in whole.history.trials.values())["completed"] > 8
    for cut in range(1, len(whole.records), 97):
        resumed = Fated(spec, seed=cut, capacity=3, trouble=False, earlier=whole.records[:cut]).run()
        assert work_of(resumed) == work_of(whole), cut


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_samplers_differ_by_seed_and_arm_and_stay_inside(algorithm):
    spaces = {}
    for seed in (0, 1):
        spec = study(f"search.algorithm={algorithm}", f"seed={seed}", "search.budget_per_arm=6")
        driver = Driver(spec, trouble=False, capacity=1).run()
        for arm, own in spec.arms.items():
            rates = [t.configuration["learning_rate"] for t in driver.history.trials_of("search", arm)]
            dimension = own.search_space.widest.dimensions["learning_rate"]
            assert all(dimension.low <= rate <= dimension.high for rate in rates)
            spaces[seed, arm] = rates[1:6]  # the first is the space's own
    assert len({tuple(rates) for rates in spaces.values()}) == 4


@pytest.mark.slow
def test_samplers_look_for_the_better():
    """Where one end is best, they go there, and where trials diverge they do not stay."""

    class Slope(Driver):
        def score(self, planned, progress):
            return planned.configuration["learning_rate"] * progress

        def advance(self, name):
            if self.running[name][0].configuration["learning_rate"] > 7e-3:
                self.end(name, "diverged")
            else:
                super().advance(name)

    medians = {}
    for algorithm in ("tpe", "gp", "cma_es", "random"):
        spec = study(f"search.algorithm={algorithm}", "search.budget_per_arm=16", "arms={vanilla: {objective: mlm}}")
        trials = Slope(spec, trouble=False, capacity=1).run().history.trials_of("search", "vanilla")
        late = sorted(t.configuration["learning_rate"] for t in trials[len(trials) // 2 :])
        medians[algorithm] = late[len(late) // 2]
        if algorithm != "random":
            diverged = sum(t.outcome == "diverged" for t in trials[len(trials) // 2 :])
            assert diverged < len(late) / 2, algorithm
    assert all(medians[a] > medians["random"] for a in ("tpe", "gp", "cma_es")), medians


def test_a_grid_is_gone_through_once():
    space = {"learning_rate": [1e-4, 1e-3, 1e-2]}
    driver = Driver(
        study("search.algorithm=grid", "search.budget_per_arm=30", "search.halving.rungs=1", "search.parallel=1"),
        trouble=False,
    ).run()
    vanilla = [t.configuration["learning_rate"] for t in driver.history.trials_of("search", "vanilla")]
    assert vanilla[0] == 1e-3  # the space's first, which is a point of the grid too
    assert sorted(vanilla) == pytest.approx(space["learning_rate"])
    # Three trials of one arm end the other's search too, a trial's budget on.
    assert len(driver.history.trials_of("search", "headless")) == 4


@pytest.mark.parametrize("broken", [(), (3,), (0, 4, 8), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_a_grid_of_which_trials_break_tries_every_other_point(broken, seed):
    """Also where it was cut off."""

    class Breaking(Driver):
        def advance(self, name):
            planned, _ = self.running[name]
            if planned.arm == "vanilla" and planned.number in broken:
                self.end(name, "diverged")
            else:
                super().advance(name)

    grid = ["search.algorithm=grid", "search.grid_points=8", "search.budget_per_arm=12", f"seed={seed}"]
    spec = study(*grid, "search.halving.rungs=1")
    whole = Breaking(spec, trouble=False, capacity=1).run()
    vanilla = whole.history.trials_of("search", "vanilla")
    rates = [t.configuration["learning_rate"] for t in vanilla]
    assert rates[0] == 1e-3  # the space's first, which is none of the eight
    assert sorted(rates[1:]) == pytest.approx([1e-4 * 100 ** (i / 7) for i in range(8)])
    assert [t.number for t in vanilla if t.outcome == "diverged"] == list(broken)
    assert {t.outcome for t in vanilla if t.number not in broken} == {"completed"}
    for cut in range(1, len(whole.records), 3):
        resumed = Breaking(spec, trouble=False, capacity=1, earlier=whole.records[:cut]).run().history
        for name, trial in whole.history.trials.items():
            again = resumed.trials[name]
            assert (again.outcome, again.progress) == (trial.outcome, trial.progress), (cut, name)
            assert again.configuration == trial.configuration


@pytest.mark.parametrize(
    ("dimension", "points", "values"),
    [
        ({"type": "float", "low": 1e-4, "high": 1e-2, "log": True}, 3, [1e-4, 1e-3, 1e-2]),
        ({"type": "float", "low": 0.0, "high": 1.0}, 5, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"type": "float", "low": 1.0, "high": 4.0, "log": True}, 1, [2.0]),
        ({"type": "float", "low": 2.0, "high": 2.0}, 4, [2.0]),
        ({"type": "int", "low": 1, "high": 3}, 7, [1, 2, 3]),
        ({"type": "int", "low": 1, "high": 64, "log": True}, 3, [1, 8, 64]),
        ({"type": "choice", "choices": [None, "x", 3]}, 2, [None, "x", 3]),
    ],
)
def test_grids(dimension, points, values):
    space = Space.model_validate({"dimensions": {"x": dimension, "y": {"type": "choice", "choices": [1, 2]}}})
    grid = space.grid(points)
    assert len(grid) == 2 * len(values)
    found = [entry["x"] for entry in grid if entry["y"] == 2]
    assert found == (pytest.approx(values) if isinstance(values[0], float) else values)
    assert all(type(a) is type(b) for a, b in zip(found, values, strict=True))


REFUSALS = {
    ("search.algorithm=grid", "search.grid_points=400"): ("more than 100,000 points", "search.grid_points"),
    ("search.algorithm=grid", "search.grid_points=1000000000000"): ("more than 100,000 points", "qmc"),
    ("search.algorithm=grid", "arms.headless.space=partial.yaml"): ("leaves out temperature", "every setting"),
    ("search.algorithm=cma_es", "arms.vanilla.space=choices.yaml"): ("nothing to search", "numbers only"),
    ("search.algorithm=bohb",): ("must be", "'tpe'"),
    ("search.budget_per_arm=0.5",): ("buys no trial", "at least 1"),
    ("search.halving={reduction: 2000}",): ("must be at most 1000",),
    ("search.halving.kind=promotion",): ("unknown key 'kind'", "reduction, rungs"),
    ("search.cost=flops",): ("unknown key 'cost'",),
}


@pytest.mark.parametrize("overrides", REFUSALS)
def test_what_cannot_be_searched_is_refused(overrides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("partial.yaml").write_text(
        "dimensions: {learning_rate: {type: float, low: 0.1, high: 1}, temperature: {type: float, low: 1, high: 2}}\n"
        "first: [{learning_rate: 0.5}]\n"
    )
    Path("choices.yaml").write_text("dimensions: {learning_rate: {type: choice, choices: [0.1, 0.2]}}\n")
    with pytest.raises(InputError) as caught:
        study(*overrides)
    for fragment in REFUSALS[overrides]:
        assert fragment in str(caught.value)


# --- Optuna's own file ----------------------------------------------------------------------------------------------


def read(folder):
    """By arm, what plain Optuna says of its trials."""
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(Path(folder) / OPTUNA_FILE))
    )
    return {
        name.partition("/")[2]: optuna.load_study(study_name=name, storage=storage)
        for name in optuna.get_all_study_names(storage)
    }


@pytest.mark.parametrize("primary", ["recovery_accuracy", "perplexity"])
def test_plain_optuna_reads_the_search(tmp_path, monkeypatch, primary):
    monkeypatch.setattr("tests.helpers.phases.PRIMARY", primary)
    spec = study(
        "search.halving.rungs=3", "search.budget_per_arm=12", "search.algorithm=random", f"yardsticks.primary={primary}"
    )
    driver = Driver(spec, seed=4).run()
    write_optuna_journal(Location(tmp_path), spec, driver.history)
    states = {"completed": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "diverged": "FAIL"}
    seen = set()
    for arm, optuna_study in read(tmp_path).items():
        trials = driver.history.trials_of("search", arm)
        assert optuna_study.direction.name == ("MAXIMIZE" if primary == "recovery_accuracy" else "MINIMIZE")
        assert len(trials) == len(optuna_study.trials)
        for trial, known in zip(trials, optuna_study.trials, strict=True):
            seen.add(trial.outcome)
            assert known.state.name == states[trial.outcome]
            assert known.params == trial.configuration
            assert known.distributions.keys() == trial.configuration.keys()
            values = {
                3**measure.rung: measure.yardsticks[primary].overall
                for measure in trial.evaluations
                if measure.rung is not None
            }
            assert known.intermediate_values == values
            if trial.outcome == "completed":
                assert known.value == trial.score(primary)
            elif trial.outcome == "pruned":
                assert known.value == values[max(values)]
            wanted = {"arm": arm, "trial": trial.trial, "seed": trial.seed, "spent": trial.spent, "by_hand": False}
            assert known.user_attrs == wanted | {"outcome": trial.outcome, "reason": trial.reason}
        best = max if primary == "recovery_accuracy" else min
        assert optuna_study.best_value == best(t.score(primary) for t in trials if t.outcome == "completed")
    assert seen == set(states)


def test_the_file_tells_when_trials_began_and_ended(tmp_path):
    driver = Driver(study("search.budget_per_arm=4", "search.algorithm=random"), seed=2).run()
    write_optuna_journal(Location(tmp_path), driver.spec, driver.history)
    for arm, optuna_study in read(tmp_path).items():
        own = [r for r in driver.records if getattr(r, "arm", "") == arm]
        begins = {r.number: r.time for r in own if isinstance(r, TrialRecord) and r.attempt == 1}
        ends = {r.trial: r.time for r in own if isinstance(r, EndRecord)}  # the last of each
        for known in optuna_study.trials:
            assert known.datetime_start.timestamp() == pytest.approx(begins[known.number])
            assert known.datetime_complete.timestamp() == pytest.approx(ends[known.user_attrs["trial"]])


def test_a_search_that_goes_on_makes_the_file_anew(tmp_path):
    """As an extension's does: with trials that still run, and then with what came of them."""
    spec = study("search.budget_per_arm=4", "search.algorithm=random")
    driver = Driver(spec, trouble=False, capacity=3).run(6)
    driver.start_all()
    assert driver.running
    write_optuna_journal(Location(tmp_path), spec, driver.history)
    before = {arm: [t.state.name for t in s.trials] for arm, s in read(tmp_path).items()}
    assert any("RUNNING" in states for states in before.values())
    wider = study("search.budget_per_arm=8", "search.algorithm=random")
    after = Driver(wider, trouble=False, earlier=driver.run().records).run()
    write_optuna_journal(Location(tmp_path), wider, after.history)
    for arm, optuna_study in read(tmp_path).items():
        assert len(optuna_study.trials) == len(after.history.trials_of("search", arm)) > len(before[arm])
        assert {t.state.name for t in optuna_study.trials} == {"COMPLETE", "PRUNED"}
    assert [p.name for p in tmp_path.iterdir()] == [OPTUNA_FILE]


def test_the_file_holds_text_alone(tmp_path):
    """CMA-ES keeps its state as a pickle in Optuna's trials: it stays out of the study's folder."""
    spec = study("search.algorithm=cma_es", "search.budget_per_arm=12", "search.halving.rungs=1", "search.parallel=1")
    driver = Driver(spec, trouble=False).run()
    write_optuna_journal(Location(tmp_path), spec, driver.history)
    lines = [json.loads(line) for line in (tmp_path / OPTUNA_FILE).read_text().splitlines()]
    inner = driver.phase._phase._arms["headless"].sampler._study
    assert any("cma:optimizer:0" in t.system_attrs for t in inner.trials), "the check is blind"
    assert lines
    assert not any("system_attr" in line or line.get("system_attrs") for line in lines)


def test_optunas_command_line_reads_the_file(tmp_path, capsys, monkeypatch):
    spec = study("search.budget_per_arm=2", "search.algorithm=random")
    driver = Driver(spec).run()
    write_optuna_journal(Location(tmp_path), spec, driver.history)
    argv = ["optuna", "studies", "--storage", str(tmp_path / OPTUNA_FILE), "-f", "json"]
    monkeypatch.setattr(sys, "argv", argv)
    optuna.cli.main()
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert names == [f"{spec.name}/{arm}" for arm in spec.arms]


@pytest.mark.parametrize("algorithm", ["random", "tpe", "gp"])
def test_an_extended_search_goes_on_where_it_was(algorithm):
    """What it has done is kept, and the new budget is spent."""
    overrides = ("search.halving.rungs=3", f"search.algorithm={algorithm}")
    before = Driver(study(*overrides, "search.budget_per_arm=3"), trouble=False, capacity=1).run()
    wider = study(*overrides, "search.budget_per_arm=6")
    driver = Driver(wider, trouble=False, capacity=1, earlier=before.records).run()
    assert driver.records[: len(before.records)] == before.records
    for name, trial in before.history.trials.items():
        # One that had stopped may be taken up, from where it was.
        assert driver.history.trials[name].measures[: len(trial.measures)] == trial.measures, "trained again"
    for arm in wider.arms:
        assert 5 < driver.spent(arm) <= 6 + 1e-9


class Uphill(Driver):
    """The higher the learning rate the better, up to one beyond the declared range."""

    def score(self, planned, progress):
        return progress / (1 + abs(math.log10(planned.configuration["learning_rate"] / 0.03)))


def test_a_range_is_widened_where_the_best_lies_at_its_bound(tmp_path):
    """Cut off anywhere it goes on with the same suggestions; and Optuna's file holds all of them."""
    space = "{dimensions: {learning_rate: {type: float, low: 1.0e-4, high: 1.0e-2, log: true%s}}}"
    rates = {}
    for limits in ("", ", highest: 0.1"):
        spec = study("search.budget_per_arm=8", f"arms={{vanilla: {{objective: clm, space: {space % limits}}}}}")
        whole = Uphill(spec, trouble=False, capacity=1).run()
        rates[limits] = [t.configuration["learning_rate"] for t in whole.history.trials_of("search", "vanilla")]
    assert max(rates[""]) <= 1e-2
    assert 1e-2 < max(rates[", highest: 0.1"]) <= 0.1
    begun = [(t.number, t.configuration) for t in whole.history.trials_of("search", "vanilla")]
    for cut in range(1, len(whole.records), 3):
        resumed = Uphill(spec, trouble=False, capacity=1, earlier=whole.records[:cut]).run()
        assert [(t.number, t.configuration) for t in resumed.history.trials_of("search", "vanilla")] == begun, cut
    write_optuna_journal(Location(tmp_path), spec, whole.history)
    assert len(read(tmp_path)["vanilla"].trials) == len(begun)


def test_a_decision_that_follows_from_nothing_is_refused():
    driver = Driver(study("search.budget_per_arm=2", "search.algorithm=random"), trouble=False).run()
    wrong = [changed(r, number=99) if r.kind == "decision" and r.decision == 3 else r for r in driver.records]
    with pytest.raises(InputError, match="a step of trial 99"):
        SearchPhase(driver.spec, History.of(wrong), "corpus")
