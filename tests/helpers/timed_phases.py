"""Phases driven without Ray, whose spending is what a made-up clock says, and the ledger that they leave."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from orchestrator.analysis.compare import compare
from orchestrator.config.extension import extended
from orchestrator.config.files import dump_study, freeze, load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of, study_digest
from orchestrator.ledger.records import ComparisonRecord, ExtensionRecord, parse_record, to_line
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.search import SearchPhase
from orchestrator.scheduling.trials import WritesDecisions
from orchestrator.verification.verify import verify
from tests.helpers.ledgers import begun, cap, end, measure, phase, spent, trial, write_ledger
from tests.helpers.ledgers import study as study_record
from trainables.storage import Location

TOKENS = 100_000
SECONDS = {"headless": 40.0, "vanilla": 100.0}
"""Of the steps of a whole trial."""
OVERHEAD = 10.0
ANYTIME = ("training.schedule=wsd", "training.cooldown=0.4", "training.warmup=0.01", "confirm.anytime=[0.2, 0.3]")
"""Cooldowns of 0.4 x (0.2 + 0.3) = 0.2 of each confirmation run."""
NAMES = {SearchPhase: "search", ConfirmPhase: "confirm", AnytimePhase: "anytime"}


def study(*overrides):
    return load_study("demo", [f"budget={{tokens: {TOKENS}}}", "search.algorithm=random", *overrides])


class Driver:
    """Does what the executor does, one report at a time, trials side by side on a clock of their own each."""

    alike = 0.0
    """Share of a trial's score that is the same for all."""

    def __init__(self, spec, seed=0, capacity=2, trouble=0.0, evaluation=0.0, waiting=0.0):
        self.spec, self.capacity, self.trouble = spec, capacity, trouble
        self.evaluation, self.waiting = evaluation, waiting  # seconds, of a yardstick, and for room
        self.chance, self.clock, self.running = random.Random(seed), 0.0, {}
        self.history, self.leaves = History(), {}
        self.session()

    def session(self):
        self.record(study_record(usd_per_hour=3600.0, of=design_of(self.spec)))

    def record(self, record):
        self.history.apply(record.model_copy(update={"time": self.clock}))

    def run(self, kind):
        phase_of_trials = kind(self.spec, self.history, "corpus")
        driven = WritesDecisions(phase_of_trials, self.record)
        name = NAMES[kind]
        self.record(phase(name, "begin"))
        while True:
            while len(self.running) < self.capacity and not driven.exhausted():
                planned = driven.next()
                if planned is None:
                    break
                self.begin(planned)
            if not self.running:
                break
            self.advance(driven, self.chance.choice(sorted(self.running)))
        if message := driven.ended_early():
            self.record(cap(name, phase_of_trials.seeds_begun() if name == "confirm" else None, message))
        self.record(phase(name, "end"))
        return self

    def begin(self, planned):
        # A trial begins anew after a failure: all that it had is lost. One that had stopped goes on from there.
        known = self.history.trials.get(planned.trial)
        stopped = known is not None and known.outcome == "pruned"
        if stopped:
            self.leaves[planned.trial] = known.progress
        elif planned.share is None:
            self.leaves.pop(planned.trial, None)
        if planned.share is not None:
            self.leaves[planned.trial] = planned.config.training.stable_share
        attempt = trial(
            planned.phase,
            planned.arm,
            planned.number,
            name=planned.trial,
            attempt=planned.attempt,
            seed=planned.seed,
            configuration=dict(planned.configuration),
            amount=planned.config.budget.amount,
            share=planned.share,
            start_step=known.measures[-1].step if stopped else 0,
        )
        self.running[planned.trial] = planned, attempt
        self.record(attempt)
        self.clock += self.waiting
        before = self.spent(planned, self.leaves.get(planned.trial, 0.0))
        self.record(begun(attempt, spent=before, overhead={"startup": 0.0}))

    def spent(self, planned, progress):
        share = progress * planned.config.budget.amount / TOKENS
        seconds = share * SECONDS[planned.arm]
        timed = dict.fromkeys(("wall_seconds", "device_seconds", "usd"), seconds)
        return spent(tokens=share * TOKENS, steps=100 * share, flops=1e9 * share, hardware_flops=1e9 * share, **timed)

    def advance(self, driven, name):
        (planned, attempt), known = self.running[name], self.history.trials[name]
        own = [m for m in known.measures if m.attempt == planned.attempt]
        before = known.progress
        points = sorted({*planned.config.rungs, *(planned.config.evaluations if self.evaluation else ()), 1.0})
        share = next(f for f in points if f > before + 1e-9)
        names = planned.config.yardsticks if share == 1.0 else planned.config.yardsticks[:1]
        # One trial at a time has the clock, so all its seconds are told by its records.
        longer = planned.config.budget.amount / TOKENS
        self.clock += (share - before) * longer * SECONDS[planned.arm] + (OVERHEAD if not own else 0.0)
        self.clock += self.evaluation * len(names)
        evaluated = self.evaluation * (len(names) + sum(len(m.yardsticks) for m in own))
        if self.chance.random() < self.trouble and known.attempts < 3:
            self.end(driven, name, "retried")
            return
        report = measure(
            attempt,
            int(100 * share),
            share,
            spent=self.spent(planned, share),
            overhead={"startup": OVERHEAD, "evaluation": evaluated},
            rung=planned.config.rungs.index(share) if share in planned.config.rungs else None,
            scores=dict.fromkeys(names, (self.alike + (1 - self.alike) * random.Random(name).random()) * share),
        )
        self.record(report)
        if share == 1.0:
            self.end(driven, name, "completed")
        elif driven.prunes(known, report):
            self.end(driven, name, "pruned")

    def end(self, driven, name, outcome):
        _, attempt = self.running.pop(name)
        self.record(end(attempt, outcome))
        driven.ended(self.history.trials[name], outcome)

    def spent_in_search(self):
        return [self.history.spent("search", arm, "tokens") / TOKENS for arm in self.spec.arms]

    def seeds(self):
        return [sorted(trial.seed for trial in self.history.trials_of("confirm", arm)) for arm in self.spec.arms]


class Recorded(Driver):
    """With its ledger as it would be in a study's folder, and extended as a study is."""

    def __init__(self, spec, **options):
        self.records = []
        super().__init__(spec, **options)

    @property
    def file(self):
        """The study's, as it is frozen."""
        return dump_study(freeze(self.spec)).encode()

    def session(self):
        fixed, digest = freeze(self.spec).model_dump(mode="json"), study_digest(self.file)
        self.record(study_record(usd_per_hour=3600.0, fixed=fixed, digest=digest, of=design_of(self.spec)))

    def record(self, record):
        record = parse_record(to_line(record.model_copy(update={"time": self.clock})))
        self.history.apply(record)
        self.records.append(record)

    def run(self, kind):
        if kind is not SearchPhase and self.history.phases.get("search") != "end":
            self.run(SearchPhase)
        return super().run(kind)

    def study(self):
        """What of the study is left, to its end."""
        for kind, name in NAMES.items():
            if self.history.phases.get(name) != "end" and (name != "anytime" or self.spec.confirm.anytime):
                self.run(kind)
        return self.compare()

    def compare(self):
        self.record(phase("compare", "begin"))
        self.record(ComparisonRecord(comparison=compare(self.history).to_json()))
        self.record(phase("compare", "end"))
        return self

    def cut(self, place):
        """The session ends with a record, as a process that is killed, and another begins."""
        self.records = self.records[:place]
        self.history, self.running = History.of(self.records), {}
        self.session()
        return self

    def extend(self, *overrides):
        self.spec, changes = extended(self.spec, overrides, "")
        self.record(ExtensionRecord(changes=changes))
        self.session()
        return self

    def write(self, folder):
        """The study's folder; gives its location."""
        folder.mkdir()
        (folder / "study.yaml").write_bytes(self.file)
        write_ledger(folder, self.records)
        return Location(folder)


def mismatches(driver):
    """What ``h2h verify`` says of the folder that a driven study leaves."""
    with tempfile.TemporaryDirectory() as folder:
        return [mismatch.where for mismatch in verify(driver.write(Path(folder) / "study")).mismatches]
