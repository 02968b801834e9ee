"""Useful, overhead and lost, against a simulation that knows what every attempt really did."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ResourcesRecord
from orchestrator.scheduling.study_budget import StudyBudget
from tests.helpers.ledgers import begun, end, measure, spent, study, trial

CAUSES = ("startup", "data_wait", "evaluation", "checkpoint")
STEP = {"tokens": 128, "flops": 1e6, "wall_seconds": 2.0, "device_seconds": 4.0, "usd": 0.5}


class Simulation:
    """A trial of two workers: a step takes two seconds, a report nothing; attempts are killed, saved or finish.

    A cut is a kill that leaves an end record, one of the whole study, which leaves none, or a stop that saves.
    """

    def __init__(self, seed):
        self.chance, self.clock, self.records = random.Random(seed), 1000.0, []
        self.checkpoints, self.truth = [0], []
        self.write(study(usd_per_hour=450.0))

    def write(self, record):
        self.records.append(record.model_copy(update={"time": self.clock}))

    def spent(self, step):
        return spent(**{unit: amount * step for unit, amount in STEP.items()})

    def attempt(self, number, length, kind):
        chance, truth = self.chance, {"overhead": dict.fromkeys(CAUSES, 0.0), "asked": self.clock}
        if chance.random() < 0.15 and len(self.checkpoints) > 1:  # the newest is damaged
            self.checkpoints.pop()
        step = truth["start"] = truth["reported"] = self.checkpoints[-1]
        own = trial("search", "a", 0, name="t", attempt=number, start_step=step, workers=2)
        self.write(own)
        self.truth.append(truth)
        truth["placement"] = self.tick(3)
        if kind != "finish" and chance.random() < 0.1:
            truth["begun"] = False
            return self.cut(own, kind, step, truth)
        truth["begun"] = True
        truth["overhead"]["startup"] += self.tick(2)
        overhead = truth["overhead"]
        self.write(begun(own, step=step, spent=self.spent(step), overhead=dict(overhead)))
        if chance.random() < 0.3:  # a report that was lost on its way comes again, from before the checkpoint
            self.report(own, chance.randint(0, step), overhead)
            truth["known"] = dict(overhead)
        for _ in range(length):
            overhead["data_wait"] += self.tick(0.5)
            self.clock += STEP["wall_seconds"]
            step += 1
            event = chance.random()
            if event < 0.3:
                overhead["evaluation"] += self.tick(1)
                overhead["checkpoint"] += self.tick(1)
                self.checkpoints.append(step)
            if event < 0.2 or event > 0.7:  # a checkpoint may be there of which no report came
                self.report(own, step, overhead)
                truth["reported"], truth["known"] = step, dict(overhead)
        return self.cut(own, kind, step, truth)

    def report(self, own, step, overhead):
        self.write(measure(own, step, spent=self.spent(step), overhead=dict(overhead)))

    def cut(self, own, kind, step, truth):
        truth["reached"] = step
        if kind == "save" and truth["begun"]:
            self.checkpoints.append(step)
            truth["reported"] = step
            saved = {"spent": self.spent(step), "overhead": dict(truth["overhead"])}
            self.write(end(own, "interrupted", **saved))
        elif kind == "finish":
            self.report(own, step, truth["overhead"])
            truth["reported"] = step
            self.write(end(own))
        elif kind == "study":
            self.write(ResourcesRecord(cluster={}))
            truth["ended"] = self.clock
            self.clock += 50.0  # nobody is there to see
            self.write(study(usd_per_hour=450.0))
        else:
            self.clock += 0.25
            self.write(end(own, "retried", "killed"))
        truth.setdefault("ended", self.clock)

    def tick(self, most):
        seconds = self.chance.randrange(int(most * 8)) / 8
        self.clock += seconds
        return seconds


KINDS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["kill", "study", "save"])), max_size=8)


def simulated(seed, cuts):
    simulation = Simulation(seed)
    for number, (length, kind) in enumerate([*cuts, (5, "finish")], 1):
        simulation.attempt(number, length, kind)
    return simulation


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 10**6), KINDS)
def test_nothing_is_counted_twice_and_nothing_is_lost(seed, cuts):
    simulation = simulated(seed, cuts)
    history = History.of(simulation.records)
    trial, truth = history.trials["t"], simulation.truth
    spendings = trial.spendings(history.updated)
    assert len(spendings) == len(truth)
    for index, (spending, real) in enumerate(zip(spendings, truth, strict=True)):
        elapsed = real["ended"] - real["asked"]
        assert spending.wall_seconds == pytest.approx(elapsed)
        placed = real["placement"] if real["begun"] else elapsed
        assert spending.device_seconds == pytest.approx(2 * (elapsed - placed))
        later = [other["start"] for other in truth[index + 1 :] if other["begun"]]
        steps_useful = max(0, min([real["reached"], *later]) - real["start"])
        steps_done = real["reached"] - real["start"]
        seen = max(real["reported"], *later[:1], real["start"]) - real["start"]
        for unit, amount in STEP.items():
            assert spending.useful.get(unit, 0.0) == pytest.approx(steps_useful * amount)
            lost = spending.lost.get(unit, 0.0)
            assert lost == pytest.approx((seen - steps_useful) * amount)
            assert lost <= (steps_done - steps_useful) * amount + 1e-6
        # What was done after the last report is within what is not accounted for.
        unseen = (steps_done - seen) * STEP["wall_seconds"]
        assert spending.unreported_seconds >= unseen - 1e-6
        assert spending.overhead["placement"] == pytest.approx(placed)
        if real["begun"]:
            for cause, seconds in spending.overhead.items():
                assert cause == "placement" or seconds <= real["overhead"][cause] + 1e-9
    whole = history.spending()
    for unit, amount in STEP.items():
        assert whole.useful[unit] == pytest.approx(trial.spent[unit])
        assert trial.spent[unit] == pytest.approx(truth[-1]["reached"] * amount)
    assert whole.wall_seconds == pytest.approx(sum(real["ended"] - real["asked"] for real in truth))
    assert history.spending("search", "a") == whole
    assert not history.spending("confirm").useful


@pytest.mark.parametrize("cut", range(3, 60, 4))
def test_a_study_in_the_middle_accounts_for_all_of_the_time_so_far(cut):
    simulation = simulated(5, [(6, "kill"), (7, "study"), (3, "save")])
    records = simulation.records[:cut]
    history = History.of(records)
    spendings = history.trials["t"].spendings(history.updated)
    asked = [real["asked"] for real in simulation.truth[: len(spendings)]]
    ended = [real["ended"] for real in simulation.truth[: len(spendings)]]
    ended[-1] = min(ended[-1], history.updated)
    assert sum(s.wall_seconds for s in spendings) == pytest.approx(sum(ended) - sum(asked))


def test_in_one_unit():
    history = History.of(simulated(3, [(9, "kill")]).records)
    whole = history.spending()
    steps = whole.useful["tokens"] + whole.lost["tokens"]
    assert whole.total("tokens") == steps
    held = whole.total("wall_seconds") - whole.overhead["placement"]
    assert whole.total("device_seconds") == whole.device_seconds == pytest.approx(2 * held)
    assert 0 < held < whole.total("wall_seconds")
    assert whole.total("usd") == pytest.approx(whole.device_seconds / 8)
    assert whole.total("joules") == 0.0


def test_waiting_for_room_holds_no_device():
    """Eight trials of ten seconds and four workers each, on room for two: the last has waited for thirty."""
    records = [study(usd_per_hour=3.6)]
    for number in range(8):
        own, at = trial("search", "a", number, time=0.0, workers=4), 10.0 * (number // 2)
        seconds = spent(wall_seconds=10.0, device_seconds=40.0, usd=0.04)
        records += [
            own,
            begun(own, time=at, spent=spent(usd=0.0), overhead={"startup": 0.0}),
            measure(own, 1, 1.0, time=at + 10.0, spent=seconds, overhead={"startup": 0.0}),
            end(own, time=at + 10.0),
        ]
    records.sort(key=lambda record: record.time)
    spending = History.of(records).spending()
    assert spending.device_seconds == pytest.approx(320.0)
    assert spending.total("wall_seconds") == pytest.approx(80.0 + 2 * (10 + 20 + 30))
    assert spending.total("usd") == pytest.approx(0.32)
    amid = History.of([record for record in records if record.time <= 10.0]).spending()
    assert amid.device_seconds == pytest.approx(80.0), "six wait"
    assert amid.wall_seconds == pytest.approx(80.0)


def test_an_attempt_costs_what_its_own_session_paid():
    """Ten seconds of steps and ten of overhead an attempt, the second in a session at a tenth of the price."""
    records, clock, dollars = [], 0.0, 0.0
    for attempt, price in enumerate((1.0, 0.1), 1):
        own = trial("search", "a", 0, name="t", time=clock, attempt=attempt, start_step=attempt - 1)
        before = spent(device_seconds=clock / 2, wall_seconds=clock / 2, usd=dollars)
        records += [
            study(time=clock, usd_per_hour=3600 * price),
            own,
            begun(own, time=clock + 10.0, spent=before, overhead={"startup": 10.0}),
        ]
        clock, dollars = clock + 20.0, dollars + 10 * price
        amounts = spent(device_seconds=clock / 2, wall_seconds=clock / 2, usd=dollars)
        records += [
            measure(own, attempt, 0.1, time=clock, spent=amounts, overhead={"startup": 10.0}),
            end(own, "interrupted", time=clock),
        ]
        history = History.of(records)
        assert history.spending().total("usd") == pytest.approx((20.0, 22.0)[attempt - 1])
    spec = load_study("demo", ["cap={usd: 30}", "resources.prices.cpu_hour=1"])
    cap = StudyBudget(spec, history, spec.cap)
    assert cap.spent == pytest.approx(22.0)


@pytest.mark.parametrize("share", [None, 0.5])
def test_what_an_attempt_trained_whose_beginning_was_lost_counts_as_useful(share):
    """The study's process was killed with the record on its way; the trial trained on, and left a checkpoint. A branch
    has what its run had spent before: how much of that is its own nobody knows."""
    first = trial("search", "a", 0, name="t", share=share)
    second = trial("search", "a", 0, name="t", attempt=2, start_step=4, share=share)
    reached = spent(tokens=512, steps=4)
    history = History.of(
        [study(), first, second, begun(second, step=4, spent=reached), measure(second, 4, spent=reached), end(second)]
    )
    useful = [spending.useful.get("tokens", 0.0) for spending in history.trials["t"].spendings(2.0)]
    assert useful == [512.0 if share is None else 0.0, 0.0]
