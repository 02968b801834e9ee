"""Phases driven without Ray, over made-up reports: chance decides how trials fare."""

from __future__ import annotations

import random
from collections.abc import Sequence

from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.records import Record
from orchestrator.scheduling.search import SearchPhase
from orchestrator.scheduling.trials import WritesDecisions
from tests.helpers.ledgers import end, measure, spent, trial
from tests.helpers.ledgers import study as study_record

PRIMARY = "recovery_accuracy"
TOKENS = 160_000


def study(*overrides):
    return load_study("demo", [f"budget.tokens={TOKENS}", *overrides])


def history_of(spec, records: Sequence[Record] = ()) -> History:
    """Of a session of the study that has begun, or of what earlier ones recorded."""
    return History.of(records or [study_record(of=design_of(spec))])


class Driver:
    """Does what the executor does, one report at a time; chance decides how trials fare.

    Args:
        spec: the study.
        phase: the class of the phase.
        seed: of the chance.
        trouble: trials may break.
        earlier: what earlier sessions recorded; the phase goes on from it.
        capacity: trials at a time.
    """

    reports = ()  # besides those at rungs

    def __init__(self, spec, phase=SearchPhase, seed=0, *, trouble=True, earlier=(), capacity=2):
        self.spec, self.kind, self.trouble, self.capacity = spec, phase, trouble, capacity
        self.rng = random.Random(seed)
        self.records: list[Record] = list(earlier) or [study_record(of=design_of(spec))]
        self.history, self.running = History.of(self.records), {}
        self.phase = WritesDecisions(phase(spec, self.history, "corpus"), self.record)
        self.begun, self.widest, self.repeating = [], 0.0, set()

    def record(self, record):
        record = record.model_copy(update={"time": 1e9 + len(self.records)})
        self.records.append(record)
        self.history.apply(record)

    def begin(self, planned):
        """Write that an attempt begins, where the reports before it end."""
        known = self.history.trials.get(planned.trial)
        step = known.measures[-1].step if known and known.measures else 0
        fields = {
            "seed": planned.seed,
            "configuration": dict(planned.configuration),
            "attempt": planned.attempt,
            "start_step": step,
            "amount": planned.config.budget.amount,
        }
        attempt = trial(planned.phase, planned.arm, planned.number, name=planned.trial, **fields)
        self.running[planned.trial] = planned, attempt
        self.begun.append((planned.trial, dict(planned.configuration)))
        if step:
            self.repeating.add(planned.trial)
        self.record(attempt)

    def start_all(self):
        while len(self.running) < self.capacity and not self.phase.exhausted():
            planned = self.phase.next()
            if planned is None:
                return
            assert planned.trial not in self.running
            self.begin(planned)

    def spent(self, arm):
        return self.history.spent("search", arm, "tokens") / TOKENS

    def end(self, name, outcome):
        _, attempt = self.running.pop(name)
        self.record(end(attempt, outcome))
        self.phase.ended(self.history.trials[name], outcome)

    def score(self, planned, progress):
        """A pure function of the trial and how far it is: the same in every session."""
        chance = random.Random(f"{planned.arm}/{planned.number}/{planned.seed}").random()
        return 0.5 * chance + 0.3 * progress

    def tokens(self, planned, progress):
        return progress * TOKENS

    def progress(self, planned, progress):
        """That is reported, where a report is due at ``progress``."""
        return progress

    def advance(self, name):
        planned, attempt = self.running[name]
        history = self.history.trials[name]
        rungs = planned.config.rungs
        if name in self.repeating:  # the report of the checkpoint that it goes on from
            self.repeating.remove(name)
            if history.progress == 1.0:
                self.end(name, "completed")
            elif self.phase.prunes(history, history.measures[-1]):
                self.end(name, "pruned")
            return
        if self.trouble and self.rng.random() < 0.08:
            self.end(name, self.rng.choice(["failed", "diverged", "retried"]))
            return
        points = sorted({*rungs, *self.reports, 1.0})
        progress = next((f for f in points if f > history.progress + 1e-12), 1.0)
        rung = rungs.index(progress) if progress in rungs else None
        scored = rung is not None or progress == 1.0
        report = measure(
            attempt,
            round(1e6 * progress),
            self.progress(planned, progress),
            spent=spent(tokens=self.tokens(planned, progress)),
            rung=rung,
            scores={PRIMARY: self.score(planned, progress)} if scored else {},
        )
        self.record(report)
        if progress == 1.0:
            self.end(name, "completed")
        elif self.phase.prunes(self.history.trials[name], report):
            self.end(name, "pruned")

    def run(self, reports=10_000):
        for _ in range(reports):
            self.start_all()
            if not self.running:
                assert self.phase.exhausted()
                return self
            self.advance(self.rng.choice(sorted(self.running)))
            spending = [self.spent(arm) for arm in self.spec.arms]
            if self.kind is SearchPhase:
                self.widest = max(self.widest, max(spending) - min(spending))
        return self
