"""The training loop: from a trial's configuration to its reports. Needs neither Ray nor a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from trainables.corpora.stream.manifest import Manifest
from trainables.corpora.stream.token_stream import Batch, TokenStream, local_batches, sequence_digest
from trainables.errors import InputError
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.passes import take
from trainables.models.body_config import body_config
from trainables.models.pretrained import load_pretrained
from trainables.objectives.learner import Learner
from trainables.objectives.registry import find_objective
from trainables.training.checkpoint import Checkpoints
from trainables.training.compilation import compile_layers
from trainables.training.config import MEASURED_UNITS, TrialConfig
from trainables.training.energy import EnergyCounter
from trainables.training.meters import LossMeter, OverheadMeter, Spending, StepMeter
from trainables.training.micro_batch import largest_micro_batch
from trainables.training.stepper import PreparedStep, Stepper
from trainables.training.world import World

Feed = Callable[..., Generator[Batch, None, None]]
"""``local_batches`` or ``ray_data_batches``."""


def make_learner(config: TrialConfig, manifest: Manifest) -> Learner:
    """The trial's model under its objective, with newly drawn weights.

    Raises:
        InputError: the model does not fit the objective.
    """
    objective = find_objective(config.objective).of(config.options)
    body = body_config(
        config.model,
        objective.task,
        vocabulary_size=manifest.vocabulary_size,
        sequence_length=manifest.sequence_length,
    )
    separator = manifest.separator_token if config.document_attention else None
    return Learner(body, objective, separator=separator)


Status = Literal["running", "completed", "interrupted", "diverged"]


@dataclass(frozen=True)
class Report:
    """What a trial says of itself."""

    status: Status
    """All but ``running`` are a trial's last word."""
    measure: dict[str, Any]
    """The fields of the ledger's ``measure`` record."""
    messages: tuple[str, ...] = ()
    """For a person: what was found out or went otherwise than asked for."""


class Trial:
    """One trial on one worker: build, train, report.

    Args:
        config: the trial.
        stream: of the trial's corpus and seed.
        checkpoints: where it saves and goes on from; None saves nothing.
        world: this worker among those that train together.
        feed: moves the stream's batches.
        should_stop: asked between steps; True ends the run with a checkpoint, to be resumed. With several workers it
            must give all of them the same answer.
        energy: counter of what this worker's device takes; None where the machine does not tell.
        usd_per_hour: price of a worker; None where there is none.

    Raises:
        InputError: the model does not fit the objective, or the budget is in a unit that is not measured here.
    """

    def __init__(
        self,
        config: TrialConfig,
        stream: TokenStream,
        checkpoints: Checkpoints | None = None,
        world: World | None = None,
        feed: Feed = local_batches,
        should_stop: Callable[[], bool] = lambda: False,
        energy: EnergyCounter | None = None,
        usd_per_hour: float | None = None,
    ) -> None:
        self.config, self.stream, self.checkpoints, self.feed = config, stream, checkpoints, feed
        self.world = world or World()
        self.should_stop = should_stop
        self.usd_per_hour = usd_per_hour
        self.spent = Spending(joules=None if energy is None else 0.0, usd=None if usd_per_hour is None else 0.0)
        self._require_measured()
        self.meter, self.step_meter = OverheadMeter(), StepMeter(energy)
        with self.meter.measure("startup"):
            self._build()

    def _build(self) -> None:
        config, device = self.config, self.world.device

        def make_stepper() -> Stepper:
            torch.manual_seed(config.seed)
            learner = make_learner(config, self.stream.corpus.manifest)
            if config.model.pretrained is not None:
                load_pretrained(learner.body, learner.head, learner.config, config.model.pretrained)
            return Stepper(learner.to(device), self.stream, config.training, self.world)

        self._make_stepper = make_stepper
        self.stepper = make_stepper()
        if self.world.rank > 0:  # all workers began with the same weights; each drops out what it likes
            torch.manual_seed(int(np.random.default_rng([config.seed, self.world.rank]).integers(1 << 62)))
        self.held_out = HeldOut(self.stream.corpus, config.evaluation, config.split)
        self.learning_rate = 0.0
        self.next_sequence = 0
        self.digest = 0
        self.seen_l = np.zeros(len(self.stream.corpus.languages), dtype=np.int64)
        self.step_cost = 0.0  # of the last step, in the binding unit
        self.losses = LossMeter(device)
        self.messages: list[str] = []
        self.reported: list[dict[str, Any]] = []  # the measures of this and earlier attempts, in their order
        self.finished = False
        self._resume()

    def _resume(self) -> None:
        self.start_step = 0
        if self.checkpoints is None:
            return
        saved, messages = self.checkpoints.load_newest(self._layout, self.world)
        self.messages += messages
        if saved is None:
            return
        self.stepper.load(saved.tensors)
        state = saved.state
        self.start_step = saved.step
        self.stepper.micro_batch_sequences = state["micro_batch_sequences"]
        known = self.spent.record()
        self.spent = Spending(**{unit: amount for unit, amount in state["spent"].items() if unit in known})
        self._require_measured()
        self.next_sequence = state["next_sequence"]
        total, count = state["losses"]
        self.losses.restore(0.0, count)
        # The workers' parts add up: one goes on from the sums, the others from nothing.
        if self.world.rank == 0:
            self.losses.restore(total, count)
            self.digest = int(state["digest"], 16)
            self.seen_l[:] = state["seen"]
        self.step_cost = state["step_cost"]
        self.finished = state["finished"]
        self.reported = list(state.get("reports", ()))
        if state["measure"]["yardsticks"]:
            self.reported.append(state["measure"])

    def _layout(self, state: dict[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
        """What is to be read of a checkpoint; the learner has a head or not as it had."""
        if self.stepper.restored and not state["restored"]:
            self.stepper = self._make_stepper()  # a newer checkpoint was damaged, this one is of before
        if state["restored"] and not self.stepper.restored:
            self.stepper.restore_head()
        return self.stepper.layout()

    def _require_measured(self) -> None:
        """Refuse a budget in a unit that is not measured here, or was not where the trial ran before."""
        unit = self.config.budget.unit
        if getattr(self.spent, unit) is None:
            raise InputError(
                f"a budget in {unit} cannot be kept here",
                where=f"budget.{unit}",
                why={
                    "joules": "no energy counter is readable, or none was where the trial ran before",
                    "usd": "the devices of this trial have no price, or had none when it began",
                }[unit],
                remedy="another unit, or see docs/budgets.md for what this one needs",
            )

    @property
    def _spent_of_budget(self) -> float:
        return float(getattr(self.spent, self.config.budget.unit))

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, self._spent_of_budget / self.config.budget.amount)

    def run(self, known_step: int = 0) -> Iterator[Report]:
        """Train from where the last checkpoint is to the end of the budget, yielding reports.

        A report at a rung or an evaluation comes with a checkpoint: a crash costs what came after it. The last
        report is ``completed``, ``interrupted`` (``should_stop`` said so; a checkpoint is saved) or ``diverged``.
        A resumed run first repeats the reports of before its checkpoint, and that which came with it: a run does not
        wait until its reports are read, so that a crash may have lost any of them, also if a checkpoint is newer. For
        a completed run that is all.

        Args:
            known_step: of the last report that reached its reader; those before it did too, and are not repeated.
        """
        earlier = tuple(self.reported)
        for measure in earlier:
            completed = self.finished and measure is earlier[-1]
            if completed or measure["step"] >= known_step:
                # Overhead is each attempt's own.
                again = measure | {"overhead": dict(self.meter.seconds)}
                yield Report("completed" if completed else "running", again)
        if self.finished:
            return
        self.stepper.learner.train()
        world = self.world
        share = max(1, self.config.training.batch_sequences // world.size)
        feed = self.feed(
            self.stream,
            self.next_sequence,
            share,
            world.rank,
            world.size,
            expected=self._expected_sequences(),
        )
        fractions = self._report_points()
        try:
            while True:
                if self.should_stop():
                    yield self._report("interrupted")
                    return
                is_first = self.spent.steps == self.start_step
                with self.meter.measure("startup" if is_first else "data_wait"):
                    batch = next(feed)
                if is_first:
                    self._start_up(batch)
                if self._head_is_due():
                    self._settle_clock()
                    with self.meter.measure("startup"):
                        self.stepper.restore_head()
                        self.stepper.rehearse(self.stepper.prepare(batch, self.next_sequence))
                before = self.progress
                # From here: corrupting and finding candidates are part of an objective.
                self.step_meter.start()
                affordable = self._affordable(batch)
                if affordable is not None:
                    self.losses.add(self._step(affordable))
                crossed = [point for point in fractions if before < point <= self.progress]
                self._branch(before)
                cut = affordable is None or len(affordable.batch.number_N) < len(batch.number_N)
                ended = cut or self.progress >= 1.0
                if crossed or ended:
                    report = self._report("completed" if ended else "running", crossed)
                    yield report
                    if report.status != "running":
                        return
        finally:
            feed.close()
            if self.checkpoints is not None:
                self.checkpoints.close()

    def _expected_sequences(self) -> int | None:
        """Sequences the run will still ask for at most; None where the budget does not tell."""
        unit, amount = self.config.budget.unit, self.config.budget.amount
        length = self.stream.corpus.manifest.sequence_length
        if unit in MEASURED_UNITS:
            return None
        least_flops = self.stepper.learner.flops(1, length, 0, 0)
        per_sequence: dict[str, float] = {
            "tokens": length,
            "steps": 1 / self.config.training.batch_sequences,
            "flops": least_flops,
            "hardware_flops": least_flops,
        }
        return max(1, math.ceil(amount / per_sequence[unit]) - self.next_sequence)

    def _report_points(self) -> list[float]:
        even = [(i + 1) / self.config.reports for i in range(self.config.reports)]
        return sorted({*even, *self.config.rungs, *self.config.evaluations})

    # --- one step -------------------------------------------------------------------------------------------------

    def _start_up(self, batch: Batch) -> None:
        stepper, training = self.stepper, self.config.training

        def rehearse(rows: int) -> None:
            stepper.micro_batch_sequences = rows
            step = stepper.prepare(batch, self.next_sequence)
            # The second finds the gradients of the first in memory; more would tell nothing new.
            stepper.rehearse(step._replace(parts=step.parts[:2]))

        with self.meter.measure("startup"):
            if stepper.micro_batch_sequences == "auto":
                moments = 2 * sum(p.nbytes for p in stepper.learner.parameters() if p.requires_grad)
                rows = largest_micro_batch(rehearse, len(batch.number_N), self.world, moments)
                stepper.micro_batch_sequences = rows
                self.messages.append(f"micro-batches of {rows} of {len(batch.number_N)} sequences")
            step = stepper.prepare(batch, self.next_sequence)
        if training.compile:
            with self.meter.measure("compile"):
                message = compile_layers(stepper.learner.body, lambda: stepper.rehearse(step))
            self.messages += [message] if message else []
        with self.meter.measure("startup"):
            stepper.rehearse(step)

    def _head_is_due(self) -> bool:
        restoration = self.config.training.restoration
        return restoration is not None and not self.stepper.restored and self.progress >= 1.0 - restoration.share

    def _affordable(self, batch: Batch) -> PreparedStep | None:
        """The step, cut so that the budget is not overshot; None if nothing fits."""
        unit, amount = self.config.budget.unit, self.config.budget.amount
        left = amount - self._spent_of_budget
        size = len(batch.number_N)
        if unit in MEASURED_UNITS:
            return None if self._likely_cost() > left else self._prepare(batch, size)
        if unit == "steps":
            return None if left < 1 else self._prepare(batch, size)
        if unit == "tokens":
            affordable = max(0, int(left)) // (batch.token_NL.shape[1] * self.world.size)
            return self._prepare(batch, min(size, affordable)) if affordable else None
        prepared = self._prepare(batch, size)
        if getattr(prepared, unit) <= left:
            return prepared
        # FLOPs are not linear in the sequences (the candidates grow with them): bisect.
        best, affordable, too_many = None, 0, size
        while too_many - affordable > 1:
            middle = (affordable + too_many) // 2
            prepared = self._prepare(batch, middle)
            if getattr(prepared, unit) <= left:
                best, affordable = prepared, middle
            else:
                too_many = middle
        return best

    def _likely_cost(self) -> float:
        """What a step will cost in a unit that is measured afterwards.

        That of the step before or the mean, whichever is greater: an energy counter moves on in leaps, so of a single
        short step it may say nothing.
        """
        return max(self.step_cost, self._spent_of_budget / max(1, self.spent.steps))

    def _prepare(self, batch: Batch, num_sequences: int) -> PreparedStep:
        return self.stepper.prepare(batch.rows(slice(num_sequences)), self.next_sequence)

    def _step(self, step: PreparedStep) -> torch.Tensor:
        """One update, billed from where the meter was started."""
        batch, unit = step.batch, self.config.budget.unit
        num_sequences = len(batch.number_N) * self.world.size
        tokens = num_sequences * batch.token_NL.shape[1]
        known = {"tokens": tokens, "steps": 1, "flops": step.flops, "hardware_flops": step.hardware_flops}
        cost = self._likely_cost() if unit in MEASURED_UNITS else known[unit]
        middle = self.progress + 0.5 * cost / self.config.budget.amount
        self.learning_rate = self.config.training.rate_at(middle, restored=self.stepper.restored)
        before = self._spent_of_budget
        loss = self.stepper.step(step, self.learning_rate)
        if self.world.device.type == "cuda" and unit in MEASURED_UNITS:
            torch.cuda.synchronize()
        self.step_meter.stop()

        self.spent.steps += 1
        self.spent.tokens += tokens
        self.spent.flops += step.flops
        self.spent.hardware_flops += step.hardware_flops
        self.next_sequence += num_sequences
        self.digest = (self.digest + sequence_digest(batch)) % (1 << 64)
        self.seen_l += np.bincount(batch.language_N, minlength=len(self.seen_l))
        if unit in MEASURED_UNITS:  # the workers' progress must agree at every step
            self._bill()
        self.step_cost = self._spent_of_budget - before
        return loss

    # --- reports --------------------------------------------------------------------------------------------------

    def _settle_clock(self) -> None:
        """Wait for the steps that are under way, and bill them."""
        if self.world.device.type == "cuda":
            self.step_meter.start()
            torch.cuda.synchronize()
            self.step_meter.stop()
        self._bill()

    def _bill(self) -> None:
        """Bill what the steps since the last call took; all workers call it together."""
        seconds, joules = self.step_meter.take(self.world)
        self.spent.wall_seconds += seconds
        self.spent.device_seconds += seconds * self.world.size
        if self.spent.joules is not None:
            self.spent.joules += joules
        if self.spent.usd is not None and self.usd_per_hour is not None:
            self.spent.usd += seconds * self.world.size * self.usd_per_hour / 3600

    def _report(self, status: Status, crossed: Sequence[float] = ()) -> Report:
        self._settle_clock()
        loss = self.losses.mean(self.world)
        if loss is not None and not math.isfinite(loss):
            status = "diverged"
        if status != "interrupted":  # an interrupted run goes on with the losses so far
            self.losses.restore(0.0, 0)
        losses = self.losses.state(self.world)
        rungs = [number for number, rung in enumerate(self.config.rungs) if rung in crossed]
        milestone = any(point in crossed for point in (*self.config.rungs, *self.config.evaluations))
        milestone = status == "completed" or (status == "running" and milestone)
        if status == "completed" and self.config.training.restoration is not None and not self.stepper.restored:
            self.messages.append("no head was restored: training.restoration.share was less than a step")
        yardsticks = self._evaluate(status == "completed") if milestone else {}
        measure = {
            "step": self.spent.steps,
            "progress": self.progress,
            "spent": self.spent.record(),
            "overhead": dict(self.meter.seconds),
            "loss": None if status == "diverged" else loss,
            "learning_rate": self.learning_rate,
            "digest": self._digest(),
            "mix": dict(zip(self.stream.corpus.languages, self._seen(), strict=True)),
            "rung": rungs[-1] if rungs else None,
            "yardsticks": yardsticks,
        }
        if milestone or status == "interrupted":
            with self.meter.measure("checkpoint"):
                self._save(status, measure, losses)
            measure["overhead"] = dict(self.meter.seconds)
        if status != "interrupted":
            self.reported.append(measure)
        messages, self.messages = tuple(self.messages), []
        return Report(status, measure, messages)

    def _evaluate(self, final: bool) -> dict[str, Any]:
        names = self.config.yardsticks if final else self.config.yardsticks[:1]
        with self.meter.measure("evaluation"), self.stepper.evaluated() as learner:
            if self.world.rank > 0 and self.config.training.parallel == "ddp":
                return {}
            # Sharded weights are gathered layer by layer, by all workers together.
            return {name: score.record() for name, score in take(learner, self.held_out, names).items()}

    def _branch(self, before: float) -> None:
        """Leave the state to the branches whose point the step has crossed.

        It comes before the trial's own checkpoint: one that is cut off comes by here again, or what it left is whole.
        """
        for branch in self.config.branches:
            if before < branch.progress <= self.progress and self.checkpoints is not None:
                self._settle_clock()
                with self.meter.measure("checkpoint"):
                    beginning = Checkpoints(self.checkpoints.folder.parent / branch.trial)
                    nothing = dict.fromkeys(self.meter.seconds, 0.0)
                    beginning.save(
                        self.spent.steps,
                        self.stepper.tensors(finished=False),
                        self._state({"overhead": nothing, "yardsticks": {}}, (0.0, 0)),
                        self.world,
                    )
                    beginning.wait()
                    beginning.close()

    def _save(self, status: Status, measure: dict[str, Any], losses: tuple[float, int]) -> None:
        if self.checkpoints is None:
            return
        self.checkpoints.save(
            self.spent.steps,
            self.stepper.tensors(finished=status == "completed"),
            self._state(measure, losses, self.reported),
            self.world,
        )
        if status != "running" or (self.config.pauses and measure["rung"] is not None):
            self.checkpoints.wait()

    def _state(
        self, measure: dict[str, Any], losses: tuple[float, int], reports: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """What the run goes on from beside its tensors. All workers must call it together.

        Args:
            measure: of the report that comes with it.
            losses: since that report.
            reports: the measures of those before, a few hundred bytes each.
        """
        return {
            "restored": self.stepper.restored,
            "micro_batch_sequences": self.stepper.micro_batch_sequences,
            "spent": self.spent.record(),
            "next_sequence": self.next_sequence,
            "digest": self._digest(),
            "seen": self._seen(),
            "losses": losses,
            "step_cost": self.step_cost,
            "measure": measure,
            "reports": list(reports),
        }

    def _digest(self) -> str:
        return f"{self.world.sum_integers(self.digest):016x}"

    def _seen(self) -> list[int]:
        """Sequences of each language, of all workers."""
        return [self.world.sum_integers(int(count)) for count in self.seen_l]
