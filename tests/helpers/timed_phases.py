"""Phases driven without Ray, whose spending is what a made-up clock says, and the ledger that they leave."""

from __future__ import annotations

import json
import random

from orchestrator.config.extension import extended
from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import deciding, protocol
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.search import SearchPhase

TOKENS = 100_000
SECONDS = {"headless": 40.0, "vanilla": 100.0}
"""Of the steps of a whole trial."""
OVERHEAD = 10.0
ANYTIME = ("training.schedule=wsd", "training.cooldown=0.4", "training.warmup=0.01", "confirm.anytime=[0.2, 0.3]")
"""Cooldowns of 0.4 x (0.2 + 0.3) = 0.2 of each confirmation run."""


def study(*overrides):
    return load_study("demo", [f"budget={{tokens: {TOKENS}}}", "search.algorithm=random", *overrides])


class Driver:
    """Does what the executor does, one report at a time, trials side by side on a clock of their own each."""

    def __init__(self, spec, seed=0, capacity=2, trouble=0.0, evaluation=0.0, waiting=0.0):
        self.spec, self.capacity, self.trouble = spec, capacity, trouble
        self.evaluation, self.waiting = evaluation, waiting  # seconds, of a yardstick, and for room
        self.chance, self.clock, self.running = random.Random(seed), 0.0, {}
        self.history, self.leaves = History(), {}
        self.record(
            "study", seeds=spec.confirm.seeds, usd_per_hour=3600.0, margin=spec.confirm.margin,
            arms={arm: {"task": "causal", "headless": False, "objective": "clm"} for arm in spec.arms},
            budget={"unit": spec.budget.unit, "amount": spec.budget.amount},
            yardsticks={"primary": "recovery_accuracy", "others": []},
        )  # fmt: skip

    def record(self, kind, **fields):
        self.history.apply({"kind": kind, "time": self.clock, **fields})

    def run(self, kind):
        phase = kind(self.spec, self.history, "corpus")
        name = {SearchPhase: "search", ConfirmPhase: "confirm", AnytimePhase: "anytime"}[kind]
        self.record("phase", phase=name, status="begin")
        while True:
            while len(self.running) < self.capacity and not phase.exhausted():
                planned = phase.next()
                if planned is None:
                    break
                self.begin(planned)
            if not self.running:
                break
            self.advance(phase, self.chance.choice(sorted(self.running)))
        if message := phase.ended_early():
            seeds = phase.seeds_begun() if name == "confirm" else None
            self.record("cap", message=message, phase=name, seeds=seeds)
        self.record("phase", phase=name, status="end")
        return self

    def keys(self, planned):
        return {"phase": planned.phase, "arm": planned.arm, "trial": planned.trial, "attempt": planned.attempt}

    def begin(self, planned):
        self.running[planned.trial] = planned
        # A trial begins anew after a failure: all that it had is lost. One that was paused goes on.
        known = self.history.trials.get(planned.trial)
        kept = known.progress if known and known.paused else 0.0
        if planned.share is not None:
            self.leaves[planned.trial] = planned.config.training.stable_share
        self.record(
            "trial", **self.keys(planned), number=planned.number, seed=planned.seed, start_step=int(100 * kept),
            configuration=dict(planned.configuration), workers=1, amount=planned.config.budget.amount,
            share=planned.share,
        )  # fmt: skip
        self.clock += self.waiting
        before = self.spent(planned, self.leaves.get(planned.trial, kept))
        self.record("begun", **self.keys(planned), step=int(100 * kept), workers=1,
                    spent=before, overhead={"startup": 0.0})  # fmt: skip

    def spent(self, planned, progress):
        share = progress * planned.config.budget.amount / TOKENS
        seconds = share * SECONDS[planned.arm]
        timed = dict.fromkeys(("wall_seconds", "device_seconds", "usd"), seconds)
        return {"tokens": share * TOKENS, "steps": 100 * share, "flops": 1e9 * share, **timed}

    def advance(self, phase, name):
        planned, trial = self.running[name], self.history.trials[name]
        own = [m for m in trial.measures if m["attempt"] == planned.attempt]
        before = trial.progress
        points = sorted({*planned.config.rungs, *(planned.config.evaluations if self.evaluation else ()), 1.0})
        share = next(f for f in points if f > before + 1e-9)
        names = planned.config.yardsticks if share == 1.0 else planned.config.yardsticks[:1]
        # One trial at a time has the clock, so all its seconds are told by its records.
        longer = planned.config.budget.amount / TOKENS
        self.clock += (share - before) * longer * SECONDS[planned.arm] + (OVERHEAD if not own else 0.0)
        self.clock += self.evaluation * len(names)
        evaluated = self.evaluation * (len(names) + sum(len(m["yardsticks"]) for m in own))
        if self.chance.random() < self.trouble and trial.attempts < 3:
            return self.end(phase, name, "retried")
        score = {"overall": random.Random(name).random() * share, "languages": {}}
        rung = planned.config.rungs.index(share) if share in planned.config.rungs else None
        measure = {"step": int(100 * share), "progress": share, "spent": self.spent(planned, share),
                   "overhead": {"startup": OVERHEAD, "evaluation": evaluated}, "rung": rung,
                   "yardsticks": dict.fromkeys(names, score)}  # fmt: skip
        self.record("measure", **self.keys(planned), **measure)
        if share == 1.0:
            self.end(phase, name, "completed")
        elif verdict := phase.verdict(trial, measure):
            self.end(phase, name, verdict)
        return None

    def end(self, phase, name, outcome):
        planned = self.running.pop(name)
        self.record("end", **self.keys(planned), outcome=outcome, reason="")
        phase.ended(self.history.trials[name], outcome)

    def spent_in_search(self):
        return [self.history.spent("search", arm, "tokens") / TOKENS for arm in self.spec.arms]

    def seeds(self):
        return [sorted(trial.seed for trial in self.history.trials_of("confirm", arm)) for arm in self.spec.arms]


class Recorded(Driver):
    """With its ledger as it would be in a study's folder, and extended as a study is."""

    def __init__(self, spec, **options):
        self.records = []
        super().__init__(spec, **options)

    def record(self, kind, **fields):
        if kind == "study":
            fields["protocol"] = protocol(self.spec.model_dump(mode="json"))
            fields |= deciding(fields["protocol"])
        super().record(kind, **fields)
        record = {"kind": kind, "time": self.clock, **fields}
        self.records.append(json.loads(json.dumps(record)))

    def run(self, kind):
        if kind is not SearchPhase and self.history.phases.get("search") != "end":
            self.run(SearchPhase)
        return super().run(kind)

    def extend(self, *overrides):
        before = self.spec
        self.spec, changes = extended(before, overrides, "")
        self.record("extension", changes=changes)
        self.record("study", usd_per_hour=3600.0)
        return self
