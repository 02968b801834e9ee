"""The training loop: from a trial's configuration to its reports. Needs neither Ray nor a network."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from trainables.config import LARGEST
from trainables.corpora.stream.token_stream import Batch, TokenStream, local_batches
from trainables.evaluation.passes import Taken
from trainables.models.body_config import body_config
from trainables.models.config import Task
from trainables.models.pretrained import load_pretrained
from trainables.objectives.learner import Learner
from trainables.objectives.objective import Scorer
from trainables.objectives.registry import find_objective
from trainables.storage import Location
from trainables.training.billing import Billing
from trainables.training.checkpoint import Checkpoints
from trainables.training.checkpoint_record import SupersededError
from trainables.training.config import TrialConfig
from trainables.training.energy import EnergyCounter
from trainables.training.evaluator import Evaluator
from trainables.training.meters import LoadMeter, LossMeter, OverheadMeter, StreamMeter
from trainables.training.micro_batch import largest_micro_batch
from trainables.training.state import Built, Floors, Measure, Report, Status, TrialState
from trainables.training.stepper import PreparedStep, Stepper
from trainables.training.world import World

Feed = Callable[..., Generator[Batch, None, None]]  # ``local_batches`` or ``ray_data_batches``


def make_learner(config: TrialConfig, stream: TokenStream) -> Learner:
    """The trial's model, newly drawn, under its objective. Raises InputError where they do not fit each other."""
    manifest, objective = stream.corpus.manifest, find_objective(config.objective).of(config.options)
    body = body_config(
        config.model, objective.task, vocabulary_size=manifest.vocabulary_size, sequence_length=manifest.sequence_length
    )
    separator = manifest.separator_token if config.document_attention else None
    has_prior = "embedding+unigram" in objective.scorers
    log_unigram_V = _log_unigram(stream, objective.task, body.vocab_size) if has_prior else None
    return Learner(body, objective, separator=separator, log_unigram_V=log_unigram_V)


def _log_unigram(stream: TokenStream, task: Task, size: int) -> torch.Tensor:
    """Log-probability of each token among the stream's targets, (V,); a pretrained model may have more of them."""
    never = stream.corpus.manifest.special_tokens if task == "masked" else ()  # they are never masked
    known_V = stream.log_unigram(never)
    more = size - len(known_V)
    return torch.from_numpy(np.pad(known_V, (0, more), constant_values=known_V.min()).astype(np.float32))


class Trial:
    """One trial on one worker: build, train, report. Without ``checkpoints`` it saves nothing; with them at rungs and
    evaluations, and besides ``checkpoint_seconds`` after the last time.

    Into the ``study_folder``, if it is named, the scores of the held-out text's items are written at the end.

    ``should_stop`` is asked between steps: True, to all workers, ends the run with a checkpoint, to be resumed. Raises
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
        study_folder: Location | None = None,
        checkpoint_seconds: float = math.inf,
    ) -> None:
        self.config, self.stream, self.checkpoints, self.feed = config, stream, checkpoints, feed
        self.world = world or World()
        self.should_stop = should_stop
        self.checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.monotonic()
        self.billing = Billing(config.budget, self.world, energy, usd_per_hour)
        self.meter, self.load = OverheadMeter(), LoadMeter()
        with self.meter.measure("startup"):
            self.stepper = self._make_stepper()
            if self.world.rank > 0:  # all workers began with the same weights; each drops out what it likes
                own_seed = np.random.default_rng([config.seed, self.world.rank]).integers(1 << 62)
                torch.manual_seed(int(own_seed))
            self.evaluator = Evaluator(config, stream, self.world, self.meter, study_folder, checkpoints)
            self.losses = LossMeter(self.world.device)
            self.trained_on = StreamMeter(len(stream.corpus.languages))
            self.learning_rate = 0.0
            self.next_sequence = 0
            self.messages: list[str] = []
            self.reported: list[Measure] = []  # of this and earlier attempts, in their order
            self.floors: Floors | None = None  # of the attempt that measured them
            self.finished = False
            self.start_step = 0
            self.model_digest: str | None = None  # of the last checkpoint that was waited for
            self._resume()

    def _make_stepper(self) -> Stepper:
        config = self.config
        torch.manual_seed(config.seed)
        learner = make_learner(config, self.stream)
        self.num_parameters = sum(parameter.numel() for parameter in learner.parameters())
        if config.model.pretrained is not None:
            load_pretrained(learner.body, learner.head, learner.config, config.model.pretrained)
        return Stepper(learner.to(self.world.device), self.stream, config.training, self.world)

    def _resume(self) -> None:
        if self.checkpoints is None:
            return
        saved, messages = self.checkpoints.load_newest(self._layout, self.world)
        self.messages += messages
        if saved is None:
            return
        state = saved.state
        self.stepper.load(saved.tensors)
        self.stepper.micro_batch_sequences = state.micro_batch_sequences
        self.billing.resume(state.spent, state.step_cost)
        # The workers' parts add up: one goes on from the sums, the others from nothing.
        self.losses.restore(state.loss_sum if self.world.rank == 0 else 0.0, state.loss_steps)
        if self.world.rank == 0:
            self.trained_on.restore(state.digest, state.seen)
        self.start_step, self.finished, self.model_digest = saved.step, saved.finished, saved.model_digest
        self.next_sequence, self.reported, self.floors = state.next_sequence, list(state.reports), state.floors

    def _layout(self, state: TrialState) -> dict[str, dict[str, torch.Tensor]]:
        """What is to be read of a checkpoint; the learner has a head or not as it had."""
        if self.stepper.restored and not state.restored:
            self.stepper = self._make_stepper()  # a newer checkpoint was damaged, this one is of before
        if state.restored and not self.stepper.restored:
            self.stepper.restore_head()
        return self.stepper.layout()

    def run(self, known_step: int = 0) -> Iterator[Report]:
        """Train from where the last checkpoint is to the end of the budget, yielding reports.

        A report at a rung or an evaluation comes with a checkpoint: a crash costs what came after it. The last
        report is ``completed``, ``interrupted`` (``should_stop`` said so; a checkpoint is saved) or ``diverged``.
        A resumed run first repeats the reports of before its checkpoint, and that which came with it, from
        ``known_step`` on, the step of the last that reached its reader: a run does not wait until its reports are read,
        so that a crash may have lost any of them, also if a checkpoint is newer. For a completed run that is all.
        """
        earlier = tuple(self.reported)
        for measure in earlier:
            completed = self.finished and measure is earlier[-1]
            if completed or measure.step >= known_step:
                yield Report("completed" if completed else "running", self._told(measure, completed=completed))
        if self.finished:
            return
        world = self.world
        share = max(1, self.config.training.batch_sequences // world.size)
        expected = self._expected_sequences()
        feed = self.feed(self.stream, self.next_sequence, share, world.rank, world.size, expected=expected)
        self.stepper.learner.train()
        try:
            yield from self._train(feed)
        finally:
            feed.close()
            if self.checkpoints is not None:
                self.checkpoints.close()

    def _train(self, feed: Iterator[Batch]) -> Iterator[Report]:
        config = self.config
        even = (i / config.reports for i in range(1, config.reports))
        points = sorted({*even, *config.rungs, *config.evaluations})
        reached = self.billing.progress_after_another
        while True:
            if self.should_stop():
                yield self._report("interrupted")
                return
            is_first = self.billing.spent.steps == self.start_step
            with self.meter.measure("startup" if is_first else "data_wait"):
                batch = next(feed)
            if is_first:
                self._start_up(batch)
            self._restore_head_if_due(batch)
            before = self.billing.progress
            # From here: corrupting and finding candidates are part of an objective.
            self.billing.start()
            step = self._affordable(batch)
            if step is not None:
                self._step(step)
            # A report comes with the last step before its point: what stops at a rung spends no more than that.
            beyond = max(reached, self.billing.progress_after_another)
            crossed, reached = [point for point in points if reached <= point < beyond], beyond
            self._branch(before)
            cut = step is None or len(step.batch.number_N) < len(batch.number_N)
            ended = cut or self.billing.progress >= 1.0
            if crossed or ended:
                report = self._report("completed" if ended else "running", crossed)
                yield report
                if report.status != "running":
                    return
            if self._checkpoint_is_due():
                self.billing.settle()
                self._save()

    def _expected_sequences(self) -> int | None:
        """Sequences the run will still ask for at most; None where the budget does not tell."""
        if self.billing.measured:
            return None
        unit, amount = self.config.budget.unit, self.config.budget.amount
        length = self.stream.corpus.manifest.sequence_length
        known: dict[str, float] = {"tokens": length, "steps": 1 / self.config.training.batch_sequences}
        least = known.get(unit) or self.stepper.learner.flops(1, length, 0, 0)
        return max(1, math.ceil(amount / least) - self.next_sequence)

    def _start_up(self, batch: Batch) -> None:
        stepper = self.stepper

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
        if self.config.training.compile:
            with self.meter.measure("compile"):
                message = stepper.compile(step)
            self.messages += [message] if message else []
        with self.meter.measure("startup"):
            stepper.rehearse(step)

    def _restore_head_if_due(self, batch: Batch) -> None:
        restoration = self.config.training.restoration
        if restoration is None or self.stepper.restored or self.billing.progress < 1.0 - restoration.share:
            return
        self.billing.settle()
        with self.meter.measure("startup"):
            self.stepper.restore_head()
            self.stepper.rehearse(self.stepper.prepare(batch, self.next_sequence))

    def _affordable(self, batch: Batch) -> PreparedStep | None:
        return self.billing.affordable(
            len(batch.number_N), lambda size: self.stepper.prepare(batch.rows(slice(size)), self.next_sequence)
        )

    def _step(self, step: PreparedStep) -> None:
        """One update, billed from where the billing was started."""
        middle = self.billing.progress_in(step)
        self.learning_rate = self.config.training.rate_at(middle, restored=self.stepper.restored)
        loss = self.stepper.step(step, self.learning_rate)
        self.billing.bill(step)
        self.losses.add(loss)
        self.next_sequence += len(step.batch.number_N) * self.world.size
        self.trained_on.add(step.batch)

    def _report(self, status: Status, crossed: Sequence[float] = ()) -> Report:
        self.billing.settle()
        loss = self.losses.mean(self.world)
        if loss is not None and not abs(loss) <= LARGEST:  # false of NaN too
            status, loss = "diverged", None
        if status != "interrupted":  # an interrupted run goes on with the losses so far
            self.losses.restore(0.0, 0)
        milestone = any(point in crossed for point in (*self.config.rungs, *self.config.evaluations))
        milestone = status == "completed" or (status == "running" and milestone)
        if status == "completed" and self.config.training.restoration is not None and not self.stepper.restored:
            self.messages.append("no head was restored: training.restoration.share was less than a step")
        taken = self.evaluator.take(self.stepper, final=status == "completed") if milestone else {}
        measure = self._measure(loss, crossed, taken)
        if status == "completed":
            course = self.evaluator.take(self.stepper, final=False) if self.config.evaluations else {}
            scores = {name: score for own in course.values() for name, score in own.scores.items()}
            measure = measure.model_copy(update={"items": self.evaluator.keep_items(taken), "course": scores})
        if status != "interrupted":
            self.reported.append(measure)
        if self.checkpoints is not None and (milestone or status == "interrupted"):
            # A trial that stops at a rung may be killed there, and is to go on from it.
            stops = status != "running" or any(point in crossed for point in self.config.rungs)
            self._save(finished=status == "completed", wait=stops)
        messages, self.messages = tuple(self.messages), []
        return Report(status, self._told(measure, completed=status == "completed"), messages)

    def _checkpoint_is_due(self) -> bool:
        """Whether the last checkpoint is too long ago: the same for all workers at the same step."""
        if self.checkpoints is None:
            return False
        due = time.monotonic() - self._saved_at >= self.checkpoint_seconds
        return self.world.any_asks(due, self.billing.spent.steps)

    def _save(self, *, finished: bool = False, wait: bool = False) -> None:
        """Begin to write a checkpoint, or ``wait`` until it is written. All workers must call it together."""
        assert self.checkpoints is not None
        with self.meter.measure("checkpoint"):
            tensors = self.stepper.tensors(finished=finished)
            self.checkpoints.save(self.billing.spent.steps, tensors, self._state(), self.world)
            if wait:
                self.model_digest = self.checkpoints.wait()
        self._saved_at = time.monotonic()

    def _measure(self, loss: float | None, crossed: Sequence[float], taken: Mapping[Scorer, Taken]) -> Measure:
        seen = self.trained_on.seen(self.world)
        scores = {scorer: found.scores for scorer, found in taken.items()}
        scorer = next(iter(scores), None)
        return Measure(
            step=self.billing.spent.steps,
            progress=self.billing.progress,
            spent=self.billing.spent.record(),
            overhead=dict(self.meter.seconds),
            other_cpus=self.load.cpus(),
            loss=loss,
            learning_rate=self.learning_rate,
            digest=self.trained_on.digest(self.world),
            mix=dict(zip(self.stream.corpus.languages, seen, strict=True)),
            rung=max((number for number, rung in enumerate(self.config.rungs) if rung in crossed), default=None),
            yardsticks=scores.pop(scorer) if scorer else {},
            scorer=scorer,
            other_scorers=scores,
        )

    def built(self) -> Built:
        """What it trains, and on what."""
        device = self.world.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return Built(parameters=self.num_parameters, device=name, precision=self.stepper.precision)

    def measure_floors(self) -> Floors | None:
        """What the yardsticks are before anything is learned; None where it was not asked for. Once training has begun:
        what an earlier attempt measured, whose word may have been lost. All workers must call it together."""
        if not self.config.floors:
            return None
        if self.start_step:
            return self.floors
        self.floors = self.evaluator.floors(self.stepper)
        return self.floors

    def _told(self, measure: Measure, *, completed: bool) -> Measure:
        """The measure with this attempt's overhead so far, as that is each attempt's own; and with the digest of the
        finished model, which the checkpoint itself cannot have among its reports."""
        digest = self.model_digest if completed else None
        return measure.model_copy(update={"overhead": dict(self.meter.seconds), "checkpoint": digest})

    def _branch(self, before: float) -> None:
        """Leave the state to the branches whose point was crossed; before the own checkpoint, as a crash may follow."""
        for branch in self.config.branches:
            if before < branch.progress <= self.billing.progress and self.checkpoints is not None:
                self.checkpoints.require_newest()
                self.billing.settle()
                with self.meter.measure("checkpoint"):
                    order = self.checkpoints.order.as_beginning()
                    beginning = Checkpoints(self.checkpoints.folder.parent / branch.trial, order)
                    tensors = self.stepper.tensors(finished=False)
                    own = {"loss_sum": 0.0, "loss_steps": 0, "reports": (), "floors": None}
                    state = self._state().model_copy(update=own)
                    with suppress(SupersededError):  # it has begun: this run goes through its point again
                        beginning.save(self.billing.spent.steps, tensors, state, self.world)
                        beginning.wait()
                    beginning.close()

    def _state(self) -> TrialState:
        """What the run goes on from beside its tensors. All workers must call it together."""
        loss_sum, loss_steps = self.losses.state(self.world)
        return TrialState(
            restored=self.stepper.restored,
            micro_batch_sequences=self.stepper.micro_batch_sequences,
            spent=replace(self.billing.spent),
            next_sequence=self.next_sequence,
            digest=self.trained_on.digest(self.world),
            seen=self.trained_on.seen(self.world),
            loss_sum=loss_sum,
            loss_steps=loss_steps,
            step_cost=self.billing.step_cost,
            reports=tuple(self.reported),
            floors=self.floors,
        )
