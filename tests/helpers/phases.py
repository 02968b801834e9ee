"""Phases driven without Ray, over made-up reports: chance decides how trials fare."""

from __future__ import annotations

import copy
import random

from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.scheduling.search import SearchPhase

PRIMARY = "recovery_accuracy"
TOKENS = 160_000


def study(*overrides):
    return load_study("demo", [f"budget.tokens={TOKENS}", *overrides])


class Driver:
    """Does what the executor does, one report at a time; chance decides how trials fare."""

    reports = ()  # besides those at rungs

    def __init__(self, spec, phase=SearchPhase, seed=0, *, trouble=True, history=None, capacity=2):
        self.spec, self.kind, self.trouble, self.capacity = spec, phase, trouble, capacity
        self.rng = random.Random(seed)
        self.history, self.records, self.running = history or History(), [], {}
        self.phase = phase(spec, self.history, "corpus")
        self.begun, self.widest, self.repeating = [], 0.0, set()
        self.then = lambda record: None

    def record(self, kind, **fields):
        record = {"kind": kind, "time": 1e9 + len(self.records), **fields}
        self.records.append(copy.deepcopy(record))
        self.history.apply(record)
        self.then(record)

    def start_all(self):
        while len(self.running) < self.capacity and not self.phase.exhausted():
            planned = self.phase.next()
            if planned is None:
                return
            name, known = planned.trial, self.history.trials.get(planned.trial)
            assert name not in self.running
            step = known.measures[-1]["step"] if known and known.measures else 0
            if known is None and planned.phase == "search":
                assert (
                    self.spent(planned.arm) + self.owed(planned.arm) + self.target(planned, 0)
                    <= self.spec.search.budget_per_arm + 1e-6
                )
            self.running[name] = planned
            self.begun.append((name, dict(planned.configuration)))
            if step:
                self.repeating.add(name)
            keys = {"phase": planned.phase, "arm": planned.arm, "trial": name, "attempt": planned.attempt}
            self.record(
                "trial",
                **keys,
                number=planned.number,
                seed=planned.seed,
                configuration=dict(planned.configuration),
                start_step=step,
            )

    def spent(self, arm):
        return self.history.spent("search", arm, "tokens") / TOKENS

    def owed(self, arm):
        running = [(p, self.history.trials[n].progress) for n, p in self.running.items() if p.arm == arm]
        return sum(self.target(planned, progress) - progress for planned, progress in running)

    def target(self, planned, progress):
        rungs = planned.config.rungs if self.spec.search.halving.kind == "promotion" else ()
        return min((rung for rung in rungs if rung > progress + 1e-9), default=1.0)

    def end(self, name, outcome):
        planned = self.running.pop(name)
        keys = {"phase": planned.phase, "arm": planned.arm, "trial": name, "attempt": planned.attempt}
        self.record("end", **keys, outcome=outcome, reason="")
        self.phase.ended(self.history.trials[name], outcome)

    def score(self, planned, progress):
        """A pure function of the trial and how far it is: the same in every session."""
        chance = random.Random(f"{planned.arm}/{planned.number}/{planned.seed}").random()
        return 0.5 * chance + 0.3 * progress

    def price(self, planned):
        return 1.0

    def advance(self, name):
        planned = self.running[name]
        history = self.history.trials[name]
        rungs = planned.config.rungs
        if name in self.repeating:  # the report of the checkpoint that it goes on from
            self.repeating.remove(name)
            if history.progress == 1.0:
                self.end(name, "completed")
            elif verdict := self.phase.verdict(history, history.measures[-1]):
                self.end(name, verdict)
            return
        if self.trouble and self.rng.random() < 0.08:
            self.end(name, self.rng.choice(["failed", "diverged", "retried"]))
            return
        points = sorted({*rungs, *self.reports, 1.0})
        nxt = next((f for f in points if f > history.progress + 1e-12), 1.0)
        rung = rungs.index(nxt) if nxt in rungs else None
        step = round(1e6 * nxt)
        measure = {
            "step": step,
            "progress": nxt,
            "spent": {"tokens": nxt * TOKENS, "flops": nxt * self.price(planned)},
            "rung": rung,
            "yardsticks": {PRIMARY: {"overall": self.score(planned, nxt), "languages": {}}}
            if rung is not None or nxt == 1.0
            else {},
        }
        keys = {"phase": planned.phase, "arm": planned.arm, "trial": name, "attempt": planned.attempt}
        self.record("measure", **keys, **measure)
        if nxt == 1.0:
            self.end(name, "completed")
        elif verdict := self.phase.verdict(self.history.trials[name], measure):
            self.end(name, verdict)

    def run(self, reports=10_000):
        for _ in range(reports):
            self.start_all()
            if not self.running:
                assert self.phase.exhausted()
                for trial in self.phase.left_over():
                    keys = {name: getattr(trial, name) for name in ("phase", "arm", "trial")}
                    self.record("end", **keys, attempt=trial.attempts, outcome="pruned", reason="")
                return self
            self.advance(self.rng.choice(sorted(self.running)))
            spending = [self.spent(arm) for arm in self.spec.arms]
            if self.kind is SearchPhase:
                self.widest = max(self.widest, max(spending) - min(spending))
        return self
