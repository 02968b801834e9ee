"""The search: arms in balance, halving of both kinds, every sampler resumed anywhere, and what Optuna itself reads."""

import copy
import json
import random
import sys
from collections import Counter
from pathlib import Path

import optuna
import optuna.cli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrator.scheduling.optuna_file import OPTUNA_FILE, OptunaFile

from orchestrator.ledger.history import History
from orchestrator.scheduling.halving import Rungs
from orchestrator.scheduling.search import SearchPhase, best_trials
from orchestrator.scheduling.search_budget import HOPELESS_TRIALS
from search_spaces import Space
from tests.helpers.phases import PRIMARY, TOKENS, Driver, study
from trainables.errors import InputError
from trainables.storage import Location

ALGORITHMS = ("tpe", "gp", "cma_es", "random", "qmc", "grid")


def widest_gap(spec, records):
    """How far apart the arms' spending ever was, read from the ledger alone, record by record."""
    spent, arms, widest = {}, dict.fromkeys(spec.arms, 0.0), 0.0
    for record in records:
        if record["kind"] == "measure":
            now = record["spent"]["tokens"] / TOKENS
            arms[record["arm"]] += now - spent.get(record["trial"], 0.0)
            spent[record["trial"]] = now
        widest = max(widest, max(arms.values()) - min(arms.values()))
    return widest


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 4, 7]),
    st.sampled_from(["stopping", "promotion"]),
    st.sampled_from([1, 3]),
    st.sampled_from([3, 5.5]),
    st.sampled_from([1, 2]),
)
def test_arms_spend_alike_at_every_moment(seed, capacity, kind, rungs, budget, concurrent):
    """Trials of unequal length: stopped, paused, broken, several at a time, an odd number of arms."""

    class Finer(Driver):
        reports = tuple(i / 20 for i in range(1, 20))

    spec = study(
        f"search.halving={{kind: {kind}, rungs: {rungs}}}",
        f"search.budget_per_arm={budget}",
        f"search.concurrent_per_arm={concurrent}",
        "search.algorithm=random",
        "arms.third={objective: mlm}",
    )
    driver = Finer(spec, seed=seed, capacity=capacity).run()
    assert widest_gap(spec, driver.records) <= concurrent + 1e-9
    for arm in spec.arms:
        assert budget - 1 < driver.spent(arm) <= budget + 1e-9
        assert all(t.outcome for t in driver.history.trials_of("search", arm))


def test_an_arm_that_always_breaks_ends_the_search_in_balance():
    class Hopeless(Driver):
        def advance(self, name):
            if self.running[name].arm == "headless":
                self.end(name, "diverged")
            else:
                super().advance(name)

    driver = Hopeless(study("search.budget_per_arm=6"), trouble=False).run()
    assert Counter(t.outcome for t in driver.history.trials_of("search", "headless")) == {"diverged": HOPELESS_TRIALS}
    assert 0 < driver.spent("vanilla") <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("higher", [True, False])
def test_stopping_is_optunas_successive_halving(seed, higher):
    """Trials report in any order; also where values are equal."""
    rng = random.Random(seed)
    reduction = rng.choice([2, 3, 4])
    direction = "maximize" if higher else "minimize"
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=reduction)
    reference = optuna.create_study(direction=direction, pruner=pruner)
    rungs = Rungs(3, reduction, higher_is_better=higher)
    running = [(reference.ask(), number, 0) for number in range(40)]
    fates = []
    while running:
        trial, number, rung = running.pop(rng.randrange(min(5, len(running))))
        value = rng.randrange(12) / 10
        trial.report(value, reduction**rung)
        fates.append(trial.should_prune())
        assert rungs.arrive(number, rung, value) == (not fates[-1])
        if not fates[-1] and rung < 2:
            running.append((trial, number, rung + 1))
    assert {True, False} == set(fates)


def promotions(values, reduction, num_rungs, budget):
    """Algorithm 2 of Li et al. (2020), one worker: ``get_job`` as printed, over a table of values."""
    rungs = [{} for _ in range(num_rungs)]  # number: value
    promoted = [set() for _ in range(num_rungs)]
    jobs, begun = [], 0
    while len(jobs) < budget:
        for k in reversed(range(num_rungs - 1)):
            best = sorted(rungs[k], key=lambda n: (-rungs[k][n], n))[: len(rungs[k]) // reduction]
            candidates = [n for n in best if n not in promoted[k]]
            if candidates:
                promoted[k].add(candidates[0])
                job = candidates[0], k + 1
                break
        else:
            job, begun = (begun, 0), begun + 1
        jobs.append(job)
        rungs[job[1]][job[0]] = values[job]
    return jobs


@pytest.mark.parametrize("reduction", [2, 3])
def test_promotion_is_the_papers(reduction):
    spec = study(
        f"search.halving={{kind: promotion, reduction: {reduction}, rungs: 3}}",
        "search.budget_per_arm=9",
        "search.algorithm=random",
    )
    driver = Driver(spec, trouble=False, capacity=1).run()
    for arm in spec.arms:
        measures = [r for r in driver.records if r["kind"] == "measure" and r["arm"] == arm]
        jobs = [(int(r["trial"][-3:]), 2 if r["rung"] is None else r["rung"]) for r in measures]
        values = {job: r["yardsticks"][PRIMARY]["overall"] for job, r in zip(jobs, measures, strict=True)}
        # Where the trial was not run so far, its value cannot matter to what came before.
        table = {(n, k): values.get((n, k), 0.0) for n in range(len(jobs)) for k in range(3)}
        assert jobs == promotions(table, reduction, 3, len(jobs))
        assert {k for _, k in jobs} == {0, 1, 2}
        trials = driver.history.trials_of("search", arm)
        assert {t.outcome for t in trials} == {"completed", "pruned"}
        # No step is trained twice: attempts begin where the last ended.
        for trial in trials:
            begun = [r["start_step"] for r in driver.records if r["kind"] == "trial" and r["trial"] == trial.trial]
            steps = [m["step"] for m in trial.measures]
            assert begun == [0, *steps[:-1]]


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_cut_off_anywhere_goes_on_as_if_it_had_not_been(algorithm, kind):
    """Cut after every record of the ledger: the same suggestions, outcomes and order of each arm's work."""

    def search(history=None):
        spec = study(
            f"search.halving={{kind: {kind}, rungs: 2}}",
            f"search.budget_per_arm={4 if algorithm == 'gp' else 6}",
            f"search.algorithm={algorithm}",
            "search.startup_trials=2",
            "search.grid_points=5",
        )
        return Driver(spec, trouble=False, capacity=1, history=history).run()

    whole = search()
    assert {t.outcome for t in whole.history.trials.values()} == {"completed", "pruned"}
    assert max(t.number for t in whole.history.trials.values()) >= 4

    def arms_work(records):
        return {
            arm: [
                (r["trial"], r["configuration"]) if r["kind"] == "trial" else (r["trial"], r["step"])
                for r in records
                if r.get("arm") == arm and (r["kind"] == "measure" or (r.get("attempt") == 1 and r["kind"] == "trial"))
            ]
            for arm in whole.spec.arms
        }

    for cut in range(1, len(whole.records), 3 if algorithm == "gp" else 1):
        before = whole.records[:cut]
        resumed = search(History.of(copy.deepcopy(before)))
        assert arms_work(before + resumed.records) == arms_work(whole.records), cut
        for name, trial in whole.history.trials.items():
            again = resumed.history.trials[name]
            assert (again.outcome, again.progress) == (trial.outcome, trial.progress), (cut, name)


@pytest.mark.parametrize("algorithm", ["cma_es", "tpe"])
def test_trials_side_by_side_are_lived_through_in_the_ledgers_order(algorithm):
    """Which trials had ended when one was suggested decides the suggestion: CMA-ES keeps generations of them."""
    overrides = ("search.concurrent_per_arm=4", "search.budget_per_arm=14", f"search.algorithm={algorithm}")
    whole = Driver(study(*overrides), seed=1, capacity=8).run()
    assert Counter(t.outcome for t in whole.history.trials.values())["completed"] > 8
    for cut in [i for i, r in enumerate(whole.records) if r["kind"] == "trial" and r["attempt"] == 1]:
        record = whole.records[cut]
        history = History.of(copy.deepcopy(whole.records[:cut]))
        phase = SearchPhase(whole.spec, history, "corpus")
        assert phase._searches[record["arm"]].ask() == record["configuration"], cut


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_samplers_differ_by_seed_and_arm_and_stay_inside(algorithm):
    spaces = {}
    for seed in (0, 1):
        spec = study(f"search.algorithm={algorithm}", f"seed={seed}", "search.budget_per_arm=6")
        driver = Driver(spec, trouble=False, capacity=1).run()
        for arm, own in spec.arms.items():
            rates = [t.configuration["learning_rate"] for t in driver.history.trials_of("search", arm)]
            dimension = own.load_space().dimensions["learning_rate"]
            assert all(dimension.low <= rate <= dimension.high for rate in rates)
            spaces[seed, arm] = rates[1:6]  # the first is the space's own
    assert len({tuple(rates) for rates in spaces.values()}) == 4


def test_samplers_look_for_the_better():
    """Where one end is best, they go there, and where trials diverge they do not stay."""

    class Slope(Driver):
        def score(self, planned, progress):
            return planned.configuration["learning_rate"] * progress

        def advance(self, name):
            if self.running[name].configuration["learning_rate"] > 7e-3:
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
        study("search.algorithm=grid", "search.budget_per_arm=30", "search.halving.rungs=1"), trouble=False
    ).run()
    vanilla = [t.configuration["learning_rate"] for t in driver.history.trials_of("search", "vanilla")]
    assert vanilla[0] == 1e-3  # the space's first, which is a point of the grid too
    assert sorted(vanilla) == pytest.approx(space["learning_rate"])
    # Three trials of one arm end the other's search too, a trial's budget on.
    assert len(driver.history.trials_of("search", "headless")) == 4


@pytest.mark.parametrize("broken", [(), (3,), (0, 4, 8), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_a_grid_of_which_trials_break_brings_one_to_its_end(broken, seed):
    """By promotion, with no more points than the rule needs if none of them breaks; also where it was cut off."""

    class Breaking(Driver):
        def advance(self, name):
            planned = self.running[name]
            if planned.arm == "vanilla" and planned.number in broken:
                self.end(name, "diverged")
            else:
                super().advance(name)

    halving = "search.halving={kind: promotion, rungs: 3}"
    spec = study("search.algorithm=grid", "search.grid_points=8", halving, f"seed={seed}")
    assert spec.search.budget_per_arm > spec.search.halving.finishing_budget
    whole = Breaking(spec, trouble=False, capacity=1).run()
    assert widest_gap(spec, whole.records) <= 1 + 1e-9
    vanilla = whole.history.trials_of("search", "vanilla")
    assert len(vanilla) == 9
    assert [t.number for t in vanilla if t.outcome == "diverged"] == list(broken)
    completed = [t for t in vanilla if t.outcome == "completed"]
    if not broken:
        assert completed
    else:
        assert len(completed) == 1  # nothing beyond what the answer needs
        furthest = [t for t in vanilla if t.progress > 1 / 9 + 1e-9]
        assert completed[0].measures[0]["yardsticks"] == max(
            (t.measures[0]["yardsticks"] for t in furthest), key=lambda scores: scores[PRIMARY]["overall"]
        )
    for cut in range(1, len(whole.records), 3):
        history = History.of(copy.deepcopy(whole.records[:cut]))
        resumed = Breaking(spec, trouble=False, capacity=1, history=history).run().history
        for name, trial in whole.history.trials.items():
            again = resumed.trials[name]
            assert (again.outcome, again.progress) == (trial.outcome, trial.progress), (cut, name)


def test_an_arm_that_is_given_up_keeps_its_best():
    """By promotion a trial that paused before all others broke is brought to its end, and nothing is begun after it."""

    class Breaking(Driver):
        def advance(self, name):
            planned = self.running[name]
            if planned.arm == "headless" and planned.number > 1:
                self.end(name, "failed")
            else:
                super().advance(name)

    halving = "search.halving={kind: promotion, rungs: 3}"
    spec = study(halving, "search.budget_per_arm=9", "search.algorithm=random")
    driver = Breaking(spec, trouble=False, capacity=1).run()
    headless = driver.history.trials_of("search", "headless")
    ends = Counter(t.outcome for t in headless)
    assert ends == {"completed": 1, "pruned": 1, "failed": HOPELESS_TRIALS}
    first, second = (t.measures[0]["yardsticks"][PRIMARY]["overall"] for t in headless[:2])
    assert headless[0 if first > second else 1].outcome == "completed"
    assert widest_gap(spec, driver.records) <= 1 + 1e-9


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


def test_cheap_configurations_as_a_second_objective():
    class Priced(Driver):
        def price(self, planned):
            return planned.configuration["learning_rate"]

    spec = study("search.cost=flops", "search.halving.rungs=1", "search.budget_per_arm=12", "confirm.margin=0.1")
    driver = Priced(spec, trouble=False, capacity=1).run()
    for arm in spec.arms:
        optuna_study = driver.phase._searches[arm]._study
        assert [d.name for d in optuna_study.directions] == ["MAXIMIZE", "MINIMIZE"]
        trials = driver.history.trials_of("search", arm)
        best = max(t.score(PRIMARY) for t in trials)
        alike = [t for t in trials if t.score(PRIMARY) >= best - 0.1]
        chosen = best_trials(driver.history, arm, PRIMARY, 1, "flops", 0.1)[0]
        assert chosen.spent["flops"] == min(t.spent["flops"] for t in alike)
        assert len(alike) > 1
        chosen.measures[-1]["spent"].pop("flops")  # as joules are, on a machine without a counter
        others = best_trials(driver.history, arm, PRIMARY, 12, "flops", 0.1)
        assert others[: len(alike)][-1] is chosen


REFUSALS = {
    ("search.halving={kind: promotion, rungs: 3}", "search.budget_per_arm=2"): (
        "no trial to its end",
        "2.33",
    ),
    ("search.cost=flops",): ("stops no trials", "search.halving.rungs=1"),
    ("search.cost=tokens", "search.halving.rungs=1"): ("all trials cost the same", "flops"),
    ("search.cost=flops", "search.halving.rungs=1", "search.algorithm=cma_es"): (
        "one objective",
        "tpe or gp",
    ),
    ("search.algorithm=grid", "search.grid_points=400"): ("480000 points", "search.grid_points"),
    ("search.algorithm=grid", "arms.headless.space=partial.yaml"): (
        "leaves out temperature",
        "every setting",
    ),
    ("search.algorithm=grid", "search.grid_points=8", "search.halving={kind: promotion, rungs: 4}"): (
        "a grid of 9 points may bring",  # `first` is none of the eight
        "27 trials",
        "arms.vanilla.space",
    ),
    ("search.algorithm=grid", "search.grid_points=7", "search.halving={kind: promotion, rungs: 3}"): (
        "a grid of 7 points may bring",  # `first` is one of the seven
        "9 trials",
        "search.grid_points",
    ),
    ("search.algorithm=cma_es", "arms.vanilla.space=choices.yaml"): ("nothing to search", "numbers only"),
    ("search.algorithm=bohb",): ("must be", "'tpe'"),
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


def said(optuna_study):
    return [
        (t.number, t.state, t.params, t.distributions, t.values, t.intermediate_values, t.user_attrs)
        for t in optuna_study.trials
    ]


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_plain_optuna_reads_the_search(tmp_path, kind):
    spec = study(f"search.halving={{kind: {kind}, rungs: 3}}", "search.budget_per_arm=12", "search.algorithm=random")
    driver = Driver(spec, seed=4)
    with OptunaFile(Location(tmp_path), spec, driver.history) as file:
        driver.then = file.apply
        driver.run()
    states = {"completed": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "diverged": "FAIL"}
    seen = set()
    for arm, optuna_study in read(tmp_path).items():
        trials = driver.history.trials_of("search", arm)
        assert len(trials) == len(optuna_study.trials)
        for trial, known in zip(trials, optuna_study.trials, strict=True):
            seen.add(trial.outcome)
            assert known.state.name == states[trial.outcome]
            assert known.params == trial.configuration
            assert known.distributions.keys() == trial.configuration.keys()
            values = {
                3 ** m["rung"]: m["yardsticks"][PRIMARY]["overall"] for m in trial.evaluations if m["rung"] is not None
            }
            assert known.intermediate_values == values
            if trial.outcome == "completed":
                assert known.value == trial.score(PRIMARY)
            elif trial.outcome == "pruned":
                assert known.value == values[max(values)]
            wanted = {"arm": arm, "trial": trial.trial, "seed": trial.seed, "spent": trial.spent}
            assert known.user_attrs == wanted | {"outcome": trial.outcome, "reason": trial.reason}
        assert optuna_study.best_value == max(t.score(PRIMARY) for t in trials if t.outcome == "completed")
    assert seen == set(states)


def test_two_objectives_in_the_file(tmp_path):
    spec = study("search.cost=flops", "search.halving.rungs=1", "search.budget_per_arm=4")
    driver = Driver(spec)
    with OptunaFile(Location(tmp_path), spec, driver.history) as file:
        driver.then = file.apply
        driver.run()
    for arm, optuna_study in read(tmp_path).items():
        values = [t.values for t in optuna_study.trials if t.state.name == "COMPLETE"]
        completed = [t for t in driver.history.trials_of("search", arm) if t.outcome == "completed"]
        assert values == [[t.score(PRIMARY), t.spent["flops"]] for t in completed]
        assert optuna_study.best_trials


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_the_file_never_disagrees_with_the_ledger(tmp_path, kind):
    """Killed after any record, also amid the writing of a line: made anew from the ledger it says what it had said."""
    spec = study(f"search.halving={{kind: {kind}, rungs: 3}}", "search.budget_per_arm=4", "search.algorithm=random")
    driver, states = Driver(spec, seed=2), []
    with OptunaFile(Location(tmp_path), spec, driver.history) as file:

        def then(record):
            file.apply(record)
            states.append({arm: said(s) for arm, s in read(tmp_path).items()})

        driver.then = then
        driver.run()
    for cut in range(len(driver.records)):
        path = tmp_path / OPTUNA_FILE
        path.write_bytes(path.read_bytes()[:-3])  # the session before was killed
        history = History.of(copy.deepcopy(driver.records[: cut + 1]))
        with OptunaFile(Location(tmp_path), spec, history):
            again = {arm: said(s) for arm, s in read(tmp_path).items()}
        assert again == states[cut], cut
    times = [t.datetime_complete for t in read(tmp_path)["vanilla"].trials]
    ends = [
        r["time"] for r in driver.records if r["kind"] == "end" and r["arm"] == "vanilla" and r["outcome"] != "paused"
    ]
    assert sorted(t.timestamp() for t in times if t)[-1] == max(ends)
    assert [p.name for p in tmp_path.iterdir()] == [OPTUNA_FILE]


def test_the_file_holds_text_alone(tmp_path):
    """CMA-ES keeps its state as a pickle in Optuna's trials: it stays out of the study's folder."""
    spec = study("search.algorithm=cma_es", "search.budget_per_arm=12", "search.halving.rungs=1")
    driver = Driver(spec, trouble=False)
    with OptunaFile(Location(tmp_path), spec, driver.history) as file:
        driver.then = file.apply
        driver.run()
    lines = [json.loads(line) for line in (tmp_path / OPTUNA_FILE).read_text().splitlines()]
    inner = driver.phase._searches["headless"]._study
    assert any("cma:optimizer:0" in t.system_attrs for t in inner.trials), "the check is blind"
    assert not any("system_attr" in line or line.get("system_attrs") for line in lines)


def test_optunas_command_line_reads_the_file(tmp_path, capsys, monkeypatch):
    spec = study("search.budget_per_arm=2", "search.algorithm=random")
    driver = Driver(spec)
    with OptunaFile(Location(tmp_path), spec, driver.history) as file:
        driver.then = file.apply
        driver.run()
    argv = ["optuna", "studies", "--storage", str(tmp_path / OPTUNA_FILE), "-f", "json"]
    monkeypatch.setattr(sys, "argv", argv)
    optuna.cli.main()
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert names == [f"{spec.name}/{arm}" for arm in spec.arms]


@pytest.mark.parametrize("algorithm", ["random", "tpe", "gp"])
def test_an_extended_search_goes_on_with_trials_that_were_left_paused(tmp_path, algorithm):
    overrides = ("search.halving={kind: promotion, rungs: 3}", f"search.algorithm={algorithm}")
    spec = study(*overrides, "search.budget_per_arm=3")
    before = Driver(spec, trouble=False, capacity=1).run()
    left = {t.trial for t in before.history.trials.values() if t.outcome == "pruned"}
    extension = {"kind": "extension", "time": 2e9, "changes": {"search.budget_per_arm": [3, 6]}}
    records, wider = [*before.records, extension], study(*overrides, "search.budget_per_arm=6")
    driver = Driver(wider, trouble=False, capacity=1, history=History.of(copy.deepcopy(records)))
    states = []
    with OptunaFile(Location(tmp_path), wider, driver.history) as file:

        def then(record):
            file.apply(record)
            states.append({arm: said(s) for arm, s in read(tmp_path).items()})

        driver.then = then
        driver.run()
    revived = {r["trial"] for r in driver.records if r["kind"] == "trial"} & left
    assert revived
    for name in revived:  # from their checkpoints: no step is trained twice
        begins = [r["start_step"] for r in records + driver.records if r["kind"] == "trial" and r["trial"] == name]
        assert begins == [0, *(m["step"] for m in driver.history.trials[name].measures)][: len(begins)]
    for arm in spec.arms:
        assert 5 < driver.spent(arm) <= 6 + 1e-9
    for cut in range(len(driver.records)):
        history = History.of(copy.deepcopy(records + driver.records[: cut + 1]))
        with OptunaFile(Location(tmp_path), wider, history):
            assert {arm: said(s) for arm, s in read(tmp_path).items()} == states[cut], cut
