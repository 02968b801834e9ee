"""The training loop: from a trial's configuration to its reports. Needs neither Ray nor a network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainables.config import Config
from trainables.corpora.stream import Batch, TokenStream, local_batches, sequence_digest
from trainables.evaluation import EvaluationConfig, Evaluator
from trainables.models.learner import Learner, MicroBatch
from trainables.models.shapes import ModelConfig, body_config
from trainables.objectives import find_objective
from trainables.training.batch import BatchMaker
from trainables.training.budget import BudgetConfig, Spending
from trainables.training.checkpoint import Checkpoints
from trainables.training.optimiser import TrainingConfig, make_optimiser
from trainables.training.schedule import learning_rate_share
from trainables.training.world import World

Feed = Callable[..., Generator[Batch, None, None]]
"""``local_batches`` or ``ray_data_batches``."""


class TrialConfig(Config):
    """Everything that one trial depends on."""

    trial: str
    """Its name, unique in the study; its checkpoints lie under it."""
    objective: str
    options: dict[str, float | int | None] = Field(default_factory=dict)
    """The objective's settings."""
    model: ModelConfig
    training: TrainingConfig
    budget: BudgetConfig
    seed: int
    corpus: str
    """Folder of the packed corpus."""
    alpha: float
    maximum_repetition: float
    evaluation: EvaluationConfig
    split: Literal["validation", "test"]
    yardsticks: tuple[str, ...]
    """All are taken at the end; at evaluations before it only the first, the primary."""
    rungs: tuple[float, ...] = ()
    """Progress at which the search may stop the trial: an evaluation and a checkpoint each."""
    evaluations: tuple[float, ...] = ()
    """Further progress points with an evaluation and a checkpoint."""
    reports: int = 20
    """Reports over the run, evenly by progress."""


Status = Literal["running", "completed", "interrupted", "diverged"]


@dataclass(frozen=True)
class Report:
    """What a trial says of itself."""

    status: Status
    """All but ``running`` are a trial's last word."""
    measure: dict[str, Any]
    """The fields of the ledger's ``measure`` record."""


@dataclass
class _Meter:
    """Seconds that are not training, by cause."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("startup", "data_wait", "evaluation", "checkpoint"), 0.0)
    )

    @contextmanager
    def measure(self, cause: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[cause] += time.perf_counter() - start


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
    """

    def __init__(
        self,
        config: TrialConfig,
        stream: TokenStream,
        checkpoints: Checkpoints | None = None,
        world: World | None = None,
        feed: Feed = local_batches,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config, self.stream, self.checkpoints, self.feed = config, stream, checkpoints, feed
        self.world = world or World()
        self.should_stop = should_stop
        self.meter = _Meter()
        with self.meter.measure("startup"):
            self._build()

    def _build(self) -> None:
        config, device = self.config, self.world.device
        manifest = self.stream.corpus.manifest
        objective = find_objective(config.objective)
        options = objective.options.model_validate(config.options)
        torch.manual_seed(config.seed)
        body = body_config(
            config.model,
            objective.task,
            vocabulary_size=manifest.vocabulary_size,
            sequence_length=manifest.sequence_length,
        )
        self.learner = Learner(body, objective, options).to(device)
        self.optimiser = make_optimiser(self.learner, config.training, device)
        self.model: nn.Module = self.learner
        if self.world.size > 1:
            ids = [device.index] if device.type == "cuda" else None
            self.model = DistributedDataParallel(self.learner, device_ids=ids)
        self.batches = BatchMaker(
            objective, options, manifest, config.seed, config.training.mask_rate, device
        )
        self.evaluator = Evaluator(self.stream.corpus, config.evaluation, config.split, device)
        self.spent = Spending()
        self.learning_rate = 0.0
        self.next_sequence = 0
        self.digest = 0
        self.seen_l = np.zeros(len(self.stream.corpus.languages), dtype=np.int64)
        self.step_seconds = 0.0
        self.losses = _LossMeter(device)
        self.saved: Report | None = None
        self._resume()

    def _resume(self) -> None:
        steps = self.checkpoints.steps() if self.checkpoints else []
        self.start_step = steps[-1] if steps else 0
        if self.checkpoints is None or not steps:
            return
        state = self.checkpoints.load(self.start_step, self.learner, self.optimiser)
        self.spent = Spending(**state["spent"])
        self.next_sequence = state["next_sequence"]
        total, count = state["losses"]
        self.losses.restore(0.0, count)
        # The workers' parts add up: one goes on from the sums, the others from nothing.
        if self.world.rank == 0:
            self.losses.restore(total, count)
            self.digest = int(state["digest"], 16)
            self.seen_l[:] = state["seen"]
        self.step_seconds = state["step_seconds"]
        self.meter.seconds |= state["overhead"]
        if state["measure"]["yardsticks"]:
            self.saved = Report("completed" if state["finished"] else "running", state["measure"])

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, float(getattr(self.spent, self.config.budget.unit)) / self.config.budget.amount)

    def run(self) -> Iterator[Report]:
        """Train from where the last checkpoint is to the end of the budget, yielding reports.

        A report at a rung or an evaluation comes with a checkpoint: a crash costs what came after it. The last
        report is ``completed``, ``interrupted`` (``should_stop`` said so; a checkpoint is saved) or ``diverged``.
        A resumed run first repeats the report that came with its checkpoint, which may not have reached its reader;
        for a completed one that is all.
        """
        if self.saved is not None:
            yield self.saved
            if self.saved.status == "completed":
                return
        self.model.train()
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
                with self.meter.measure("data_wait"):
                    batch = next(feed)
                if self.spent.steps == self.start_step:
                    with self.meter.measure("startup"):
                        self._warm_up(batch)
                before, start = self.progress, time.perf_counter()
                affordable = self._affordable(batch)
                if affordable is not None:
                    self.losses.add(self._step(start, *affordable))
                crossed = [point for point in fractions if before < point <= self.progress]
                cut = affordable is None or len(affordable[0].number_N) < len(batch.number_N)
                ended = cut or self.progress >= 1.0
                if crossed or ended:
                    report = self._report("completed" if ended else "running", crossed)
                    yield report
                    if report.status != "running":
                        return
        finally:
            feed.close()

    def _expected_sequences(self) -> int | None:
        """Sequences the run will still ask for at most; None where the budget does not tell."""
        unit, amount = self.config.budget.unit, self.config.budget.amount
        length = self.stream.corpus.manifest.sequence_length
        per_sequence: dict[str, float] = {
            "tokens": length,
            "steps": 1 / self.config.training.batch_sequences,
            "flops": self.learner.flops(1, length, 0, 0),
        }
        if unit not in per_sequence:
            return None
        return max(1, math.ceil(amount / per_sequence[unit]) - self.next_sequence)

    def _report_points(self) -> list[float]:
        even = [(i + 1) / self.config.reports for i in range(self.config.reports)]
        return sorted({*even, *self.config.rungs, *self.config.evaluations})

    # --- one step -------------------------------------------------------------------------------------------------

    def _affordable(self, batch: Batch) -> tuple[Batch, list[MicroBatch], int] | None:
        """The batch, cut so that the budget is not overshot, its micro-batches and FLOPs; None if nothing fits."""
        unit, amount = self.config.budget.unit, self.config.budget.amount
        left = amount - getattr(self.spent, unit)
        size = len(batch.number_N)
        if unit == "device_seconds":
            # Time is known afterwards only: the step before tells how long this one will take.
            return None if self.world.largest(self.step_seconds) > left else self._prepare(batch)
        if unit == "steps":
            return None if left < 1 else self._prepare(batch)
        if unit == "tokens":
            affordable = int(left) // (batch.token_NL.shape[1] * self.world.size)
            return self._prepare(_rows(batch, slice(min(size, affordable)))) if affordable else None
        prepared = self._prepare(batch)
        if prepared[2] <= left:
            return prepared
        # FLOPs are not linear in the sequences (the candidates grow with them): bisect.
        best, affordable, too_many = None, 0, size
        while too_many - affordable > 1:
            middle = (affordable + too_many) // 2
            prepared = self._prepare(_rows(batch, slice(middle)))
            if prepared[2] <= left:
                best, affordable = prepared, middle
            else:
                too_many = middle
        return best

    def _prepare(self, batch: Batch) -> tuple[Batch, list[MicroBatch], int]:
        rows = self.config.training.micro_batch_sequences or len(batch.number_N)
        parts = [_rows(batch, slice(start, start + rows)) for start in range(0, len(batch.number_N), rows)]
        micro_batches = [self.batches.make(part) for part in parts]
        flops = sum(
            self.learner.flops(
                m.input_NL.shape[0], m.input_NL.shape[1], len(m.target_K), self.batches.num_candidates(m)
            )
            for m in micro_batches
        )
        return batch, micro_batches, self.world.sum_integers(flops)

    def _loss(self, micro_batches: list[MicroBatch], *, synchronise: bool) -> torch.Tensor:
        """Forward and backward passes; returns this worker's part of the batch's mean loss."""
        device = self.world.device
        num_targets = sum(len(m.target_K) for m in micro_batches) * self.world.size
        total = torch.zeros((), device=device)
        for number, micro_batch in enumerate(micro_batches):
            last = number == len(micro_batches) - 1
            wrapped = isinstance(self.model, DistributedDataParallel)
            quiet = wrapped and not (last and synchronise)
            with self.model.no_sync() if quiet else nullcontext():  # type: ignore[operator]
                with torch.autocast(device.type, torch.bfloat16, enabled=self._bfloat16):
                    loss = self.model(micro_batch) / num_targets
                # DistributedDataParallel averages over the workers; the loss is a sum over them.
                (loss * self.world.size).backward()
            total += loss.detach()
        return total

    @property
    def _bfloat16(self) -> bool:
        precision = self.config.training.precision
        return precision == "bfloat16" or (precision == "auto" and self.world.device.type == "cuda")

    def _warm_up(self, batch: Batch) -> None:
        """One step without an update, so that first-use costs count as start-up and not as training."""
        cuda = self.world.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.world.device] if cuda else []):
            self._loss(self._prepare(batch)[1], synchronise=False)
        self.optimiser.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()

    def _step(self, start: float, batch: Batch, micro_batches: list[MicroBatch], flops: int) -> torch.Tensor:
        """One update. Its time counts from ``start``: corrupting and finding candidates are part of an objective."""
        config = self.config.training
        num_sequences = len(batch.number_N) * self.world.size
        tokens = num_sequences * batch.token_NL.shape[1]
        cost = {"tokens": tokens, "steps": 1, "flops": flops, "device_seconds": self.step_seconds}
        middle = self.progress + 0.5 * cost[self.config.budget.unit] / self.config.budget.amount
        rate = config.learning_rate * learning_rate_share(
            middle, config.warmup, config.schedule, config.learning_rate_floor
        )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss = self._loss(micro_batches, synchronise=True)
        nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.world.device.type == "cuda" and self.config.budget.unit == "device_seconds":
            torch.cuda.synchronize()

        self.learning_rate = rate
        self.spent.steps += 1
        self.spent.tokens += tokens
        self.spent.flops += flops
        self.next_sequence += num_sequences
        self.digest = (self.digest + sequence_digest(batch)) % (1 << 64)
        self.seen_l += np.bincount(batch.language_N, minlength=len(self.seen_l))
        seconds = (time.perf_counter() - start) * self.world.size
        if self.config.budget.unit == "device_seconds":
            seconds = self.world.largest(seconds)
        self.step_seconds = seconds
        self.spent.device_seconds += seconds
        return loss

    # --- reports --------------------------------------------------------------------------------------------------

    def _report(self, status: Status, crossed: Sequence[float] = ()) -> Report:
        if self.world.device.type == "cuda":
            start = time.perf_counter()
            torch.cuda.synchronize()
            # The same for all workers: their progress must agree.
            self.spent.device_seconds += self.world.largest(time.perf_counter() - start) * self.world.size
        loss = self.losses.mean(self.world)
        if loss is not None and not math.isfinite(loss):
            status = "diverged"
        if status != "interrupted":  # an interrupted run goes on with the losses so far
            self.losses.restore(0.0, 0)
        losses = self.losses.state(self.world)
        rungs = [number for number, rung in enumerate(self.config.rungs) if rung in crossed]
        milestone = any(point in crossed for point in (*self.config.rungs, *self.config.evaluations))
        milestone = status == "completed" or (status == "running" and milestone)
        yardsticks = self._evaluate(status == "completed") if milestone else {}
        counts = [self.world.sum_integers(int(count)) for count in self.seen_l]
        digest = f"{self.world.sum_integers(self.digest):016x}"
        measure = {
            "step": self.spent.steps,
            "progress": self.progress,
            "spent": self.spent.record(),
            "overhead": dict(self.meter.seconds),
            "loss": None if status == "diverged" else loss,
            "learning_rate": self.learning_rate,
            "digest": digest,
            "mix": dict(zip(self.stream.corpus.languages, counts, strict=True)),
            "rung": rungs[-1] if rungs else None,
            "yardsticks": yardsticks,
        }
        if milestone or status == "interrupted":
            with self.meter.measure("checkpoint"):
                self._save(status, measure, counts, losses)
            measure["overhead"] = dict(self.meter.seconds)
        return Report(status, measure)

    def _evaluate(self, final: bool) -> dict[str, Any]:
        with self.meter.measure("evaluation"):
            if self.world.rank > 0:
                return {}
            names = self.config.yardsticks if final else self.config.yardsticks[:1]
            return dict(self.evaluator.take(self.learner, names))

    def _save(
        self, status: Status, measure: dict[str, Any], counts: list[int], losses: tuple[float, int]
    ) -> None:
        if self.checkpoints is None or self.world.rank > 0:
            return
        state = {
            "spent": self.spent.record(),
            "next_sequence": self.next_sequence,
            "digest": measure["digest"],
            "seen": counts,
            "losses": losses,
            "step_seconds": self.step_seconds,
            "overhead": measure["overhead"],
            "measure": measure,
        }
        optimiser = None if status == "completed" else self.optimiser
        self.checkpoints.save(self.spent.steps, self.learner, optimiser, state)


class _LossMeter:
    """The mean loss since the last report, kept on the device so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._total = torch.zeros((), device=device)
        self._count = 0

    def add(self, loss: torch.Tensor) -> None:
        self._total += loss
        self._count += 1

    def mean(self, world: World) -> float | None:
        if not self._count:
            return None
        return world.sum_floats([float(self._total) / self._count])[0]

    def state(self, world: World) -> tuple[float, int]:
        return world.sum_floats([float(self._total)])[0], self._count

    def restore(self, total: float, count: int) -> None:
        self._total.fill_(total)
        self._count = count


def _rows(batch: Batch, rows: slice) -> Batch:
    return Batch(batch.token_NL[rows], batch.language_N[rows], batch.number_N[rows])
