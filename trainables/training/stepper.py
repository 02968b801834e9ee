"""One training step: from a worker's sequences to updated weights. When to step, at what rate, is the loop's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.corpora.stream.token_stream import Batch, TokenStream
from trainables.models.body import layers_of
from trainables.models.flops import recomputed_flops
from trainables.objectives.learner import Learner, Table
from trainables.training import parallel
from trainables.training.batch import BatchMaker, Part
from trainables.training.checkpoint_tensors import module_tensors
from trainables.training.config import TrainingConfig, Unit
from trainables.training.optimiser import Optimiser, WeightAverage
from trainables.training.world import World


class PreparedStep(NamedTuple):
    """A step that can be made."""

    batch: Batch  # this worker's sequences
    parts: list[Part]  # its micro-batches, in memory of the host
    num_targets: int  # targets of the step, over all workers
    flops: int  # FLOPs of the model in the step, over all workers
    hardware_flops: int  # with those that are computed again
    tokens: int  # input tokens of the step, over all workers

    def cost(self, unit: Unit) -> float:
        """What the step takes of a unit that is known before it is made."""
        amount: float = 1 if unit == "steps" else getattr(self, unit)
        return amount


class Stepper:
    """A learner, on its device, with all that updates it."""

    def __init__(self, learner: Learner, stream: TokenStream, training: TrainingConfig, world: World) -> None:
        self.learner, self.stream, self.training, self.world = learner, stream, training, world
        self.micro_batch_sequences = training.micro_batch_sequences
        self.restored = False  # whether a head was made of the embedding
        self._assemble()

    def _assemble(self) -> None:
        training, learner = self.training, self.learner
        for parameter in learner.parameters():
            parameter.requires_grad_(True)
        tables, num_rows = learner.tables, len(learner.embedding_VD)
        # A restored head is the table itself, and scores all of it.
        updates_rows = (tables or not self.restored) and training.updates_rows(
            only_looked_up="embedding" in tables, num_rows=num_rows
        )
        self.tables: Mapping[Table, Tensor] = tables if updates_rows else {}
        for table_VD in self.tables.values():
            table_VD.requires_grad_(False)  # the rows that a step touches get the gradient instead
        if training.activation_checkpointing:
            learner.config.use_cache = False  # nothing is cached while training; transformers warns otherwise
            learner.body.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        self.model = parallel.wrap(learner, self.world, training.parallel)
        self.optimiser = Optimiser(learner, training, {str(name): table for name, table in self.tables.items()})
        self.average = WeightAverage(learner, training.ema_decay) if training.ema_decay else None
        self.batches = BatchMaker(learner, self.stream, training.mask_rate, self.world)

    def restore_head(self) -> None:
        """Go on as the vanilla objective (see :meth:`Learner.restore_head`), with a new optimiser."""
        self.settle()
        if self.average is not None:
            self.learner.load_state_dict(self.average.model.state_dict())
        self.learner.restore_head()
        self.restored = True
        self._assemble()

    def prepare(self, batch: Batch, first: int) -> PreparedStep:
        """Corrupt, find candidates, count FLOPs, from a place in the stream on. All workers must call it together."""
        num_sequences, length = batch.token_NL.shape
        rows = self.micro_batch_sequences or num_sequences
        assert isinstance(rows, int), "'auto' was resolved"
        parts = self.batches.prepare(batch, first, -(-num_sequences // rows))
        flops = sum(
            self.learner.flops(len(part.corrupted.input_NL), length, part.num_targets, part.num_candidates)
            for part in parts
        )
        num_targets = sum(part.num_targets for part in parts) * self.world.size
        flops, again = self.world.sum_integers(flops), 0
        if self.training.activation_checkpointing:
            again = recomputed_flops(self.learner.config, num_sequences * self.world.size, length, num_targets)
        tokens = num_sequences * length * self.world.size
        return PreparedStep(batch, parts, num_targets, flops, flops + again, tokens)

    @property
    def precision(self) -> Literal["float32", "bfloat16"]:
        """Of matrix products under autocast."""
        wanted = self.training.precision
        if wanted == "auto":
            return "bfloat16" if self.world.device.type == "cuda" else "float32"
        return wanted

    def gradients(self, step: PreparedStep, *, synchronise: bool = True) -> tuple[Tensor, list[Tensor]]:
        """This worker's part of the step's mean loss, and the touched rows of tables, with their gradients."""
        row_R = self.batches.rows(step.parts, self.tables)
        rows = {name: self.optimiser.rows[name].fetch(self.batches.to_device(r)) for name, r in row_R.items()}
        total = torch.zeros((), device=self.world.device)
        bfloat16 = self.precision == "bfloat16"
        for number, part in enumerate(step.parts):
            last = number == len(step.parts) - 1
            micro_batch = self.batches.send(part, row_R, rows)
            with parallel.accumulating(self.model, more=not (last and synchronise)):
                with torch.autocast(self.world.device.type, torch.bfloat16, enabled=bfloat16):
                    loss = self.model(micro_batch) / step.num_targets
                # Gradients are averaged over the workers; the loss is a sum over them.
                (loss * self.world.size).backward()
            total += loss.detach()
        if synchronise and self.world.size > 1:
            for leaf in rows.values():
                assert leaf.grad is not None, "every worker has inputs and candidates"
                dist.all_reduce(leaf.grad)
                leaf.grad /= self.world.size
        return total, list(rows.values())

    def step(self, step: PreparedStep, rate: float) -> Tensor:
        """One update; nothing in it waits for the device. Returns this worker's part of the step's mean loss."""
        loss, rows = self.gradients(step)
        parallel.clip_gradients([*self.model.parameters(), *rows], self.training.clip_norm)
        self.optimiser.set_rate(rate)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.learner.objective.after_step(self.learner)
        if self.average is not None:
            self.average.update(self.learner)
        return loss

    def rehearse(self, step: PreparedStep) -> None:
        """A step without an update, so that first-use costs count as start-up and not as training."""
        cuda = self.world.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.world.device] if cuda else []):
            # Sharded gradients that are kept back would survive zero_grad.
            self.gradients(step, synchronise=parallel.is_sharded_model(self.model))
        self.optimiser.zero_grad()
        if cuda:
            torch.cuda.synchronize()

    def settle(self) -> None:
        """Bring tables that are updated by rows up to date, for evaluation and export."""
        for rows in self.optimiser.rows.values():
            rows.settle()

    @contextmanager
    def evaluated(self) -> Iterator[Learner]:
        """The learner that yardsticks are taken of, with whole weights: the average where there is one."""
        self.settle()
        if self.average is not None:
            yield self.average.model
            return
        with parallel.gathered(self.learner):
            yield self.learner

    def tensors(self, *, finished: bool) -> dict[str, dict[str, Tensor]]:
        """All weights and state, by group; of a finished run the weights to be used, the average where there is one."""
        if finished:
            self.settle()
            return {"model": module_tensors(self.learner if self.average is None else self.average.model)}
        groups = {"model": module_tensors(self.learner), "optimiser": self.optimiser.tensors()}
        if self.average is not None:
            groups["average"] = self.average.tensors()
        return groups

    def layout(self) -> dict[str, dict[str, Tensor]]:
        """Names, shapes and sharding that :meth:`load` wants; of the optimiser's only what is sharded."""
        groups = self.tensors(finished=False)
        groups["optimiser"] = {
            f"{part}.{index}.{name}": parameter
            for part, optimiser in self.optimiser.parts.items()
            for index, parameter in enumerate(p for group in optimiser.param_groups for p in group["params"])
            for name in ("exp_avg", "exp_avg_sq", "momentum_buffer")
            if parallel.is_sharded(parameter)
        }
        return groups

    def load(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Go on from :meth:`tensors`; of a finished run there are but the weights."""
        self.learner.load_state_dict(groups["model"], strict=False)  # tied weights are there once
        if "optimiser" in groups:
            self.optimiser.load_tensors(groups["optimiser"])
        if self.average is not None:
            self.average.load_tensors(groups.get("average", {**groups["model"], "steps": torch.tensor(0)}))

    def compile(self, step: PreparedStep) -> str:
        """Compile the body's layers, which are alike, in place, by rehearsing a step; where that fails, say why."""
        from torch._dynamo.exc import TorchDynamoException

        layers = list(layers_of(self.learner.body))
        for layer in layers:
            layer.compile()
        try:
            self.rehearse(step)
        except (TorchDynamoException, NotImplementedError) as error:
            for layer in layers:
                layer._compiled_call_impl = None
            reason = str(error).strip().splitlines()[0]
            return f"the model is not compiled, and trains without: {type(error).__name__}: {reason}"
        return ""
