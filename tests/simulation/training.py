"""Trials that train nothing: the real loop, billing and checkpoints, over a model of one number and made-up text.

A step changes the number by what the step's sequences are, so a score tells which steps led to it: one that was lost,
or made twice, or on other sequences, is seen in all that follows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.simulation.world import World
from trainables.corpora.stream.token_stream import Batch
from trainables.evaluation import Score
from trainables.evaluation.passes import Taken
from trainables.storage import Location
from trainables.training import loop
from trainables.training.checkpoint import Checkpoints
from trainables.training.checkpoint_record import START_FILE, CheckpointRecord, StartRecord
from trainables.training.evaluator import Evaluator
from trainables.training.state import Environment

LENGTH = 32
STEP_SECONDS = 3.0
REPORTS = 4
ENVIRONMENT = Environment(versions={"python": "3"}, processor="made up", threads=1)


def chance_of(*names: object) -> float:
    """A number from 0 to 1 that is always the same."""
    digest = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


class Stream:
    """In the place of a token stream."""

    def __init__(self, corpus: object, seed: int, *_: object) -> None:
        self.seed = seed
        self.corpus = SimpleNamespace(
            languages=("en",), manifest=SimpleNamespace(sequence_length=LENGTH, vocabulary_size=100)
        )


def batches(stream: Stream, first: int, share: int, *_: object, expected: int | None = None) -> Iterator[Batch]:
    """In the place of ``ray_data_batches``."""
    while True:
        number_N = np.arange(first, first + share)
        token_NL = ((number_N[:, None] * 7 + stream.seed) % 251).astype(np.uint16)
        yield Batch(token_NL, np.zeros(share, dtype=np.int64), number_N)
        first += share


class Model:
    """In the place of a stepper: one number, which each step's sequences change."""

    precision = "float32"
    restored = False

    def __init__(self, config: Any, pace: float) -> None:
        self.config, self.pace = config, pace
        self.micro_batch_sequences = config.training.batch_sequences
        self.weight = torch.zeros(1, dtype=torch.float64)
        self.learner = SimpleNamespace(train=lambda: None, flops=lambda *_: 1, objective=SimpleNamespace(task="causal"))

    def prepare(self, batch: Batch, first: int) -> Any:
        tokens, kind = len(batch.number_N) * LENGTH, 900 if self.config.objective.startswith("headless") else 1000
        return _Step(batch, tokens, tokens * kind, tokens * kind)

    def rehearse(self, step: object) -> None: ...

    def step(self, step: Any, rate: float) -> torch.Tensor:
        world = World.present
        world.sleep(STEP_SECONDS * self.pace * world.chance.uniform(0.5, 1.5))
        here = chance_of(self.config.seed, int(step.batch.number_N.sum()))
        self.weight = 0.9 * self.weight + here
        number = int(step.batch.number_N[-1])
        return torch.tensor(math.nan if diverges(self.config, number) else 1.0 / (1.0 + number))

    def tensors(self, *, finished: bool) -> dict[str, dict[str, torch.Tensor]]:
        return {"model": {"weight": self.weight}} | ({} if finished else {"optimiser": {}})

    def layout(self) -> dict[str, dict[str, torch.Tensor]]:
        return self.tensors(finished=False)

    def load(self, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        self.weight = tensors["model"]["weight"]


class _Step(SimpleNamespace):
    def __init__(self, batch: Batch, tokens: int, flops: int, hardware_flops: int) -> None:
        super().__init__(batch=batch, parts=[], tokens=tokens, flops=flops, hardware_flops=hardware_flops)

    def cost(self, unit: str) -> float:
        return 1 if unit == "steps" else getattr(self, unit)


def diverges(config: Any, number: int) -> bool:
    """Whether a trial's loss is not finite from some sequence on. An arm's first trial never diverges: without any that
    completes a study has no answer."""
    first = config.trial.endswith("-000")
    return not first and number > 30 and chance_of("diverges", config.training.learning_rate, config.seed) < 0.15


class Trial(loop.Trial):
    """The real loop; what it trains and how it is scored is made up."""

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        self.pace = World.present.chance.uniform(0.7, 1.4)
        super().__init__(config.model_copy(update={"reports": REPORTS}), *arguments, **named)
        self.evaluator = MadeUp(self)

    def _make_stepper(self) -> Any:
        self.num_parameters = 1
        World.present.sleep(World.present.chance.uniform(0.5, 3.0))
        return Model(self.config, self.pace)


class MadeUp(Evaluator):
    """Scores of a trial's configuration, its number and its progress; items and floors as the real one keeps them."""

    def __init__(self, trial: Trial) -> None:
        vars(self).update(vars(trial.evaluator))
        self._trial = trial

    def take(self, stepper: Any, *, final: bool, others: bool = True) -> dict[Any, Taken]:
        config, weight = self._config, float(stepper.weight)
        with self._meter.measure("evaluation"):
            World.present.sleep(World.present.chance.uniform(0.2, 1.0))
        found = {}
        for name in config.yardsticks if final else config.yardsticks[:1]:
            level = chance_of(name, config.objective, config.training.learning_rate) * 0.3
            noise = chance_of(name, config.objective, config.seed, weight, final) * 0.02
            value = level + noise + 0.3 * self._trial.billing.progress + 0.01 * weight
            found[name] = Score(overall=value, languages={"en": value})
        return {"head": Taken(found, {})}


class WatchedCheckpoints(Checkpoints):
    """The real ones; what is read is held against what lay there when reading began."""

    def load_newest(self, *arguments: Any) -> Any:
        world = World.present
        self._there = self._claimed(world)
        orders = [claim.order for _, claim in sorted(self._there.items())]
        if orders != sorted(orders):
            world.crashes.append(f"{self.folder}: an attempt that was thought dead began after the next one")
        return super().load_newest(*arguments)

    def _claimed(self, world: World) -> dict[int, StartRecord]:
        """The trial's starts, by the store itself."""
        objects = world.store.objects
        folder = self.folder.path.partition("/")[2]
        return {
            int(path.split("/")[-2].removeprefix("start-")): StartRecord.model_validate_json(objects.data[path][0])
            for path in objects.below(folder)
            if path.endswith(f"/{START_FILE}")
        }

    def _read(self, record: CheckpointRecord, folder: Location, wanted: Any) -> Any:  # type: ignore[override]
        start, reader = int(folder.parent.name.removeprefix("start-")), max(self._there, default=0)
        while reader > start:  # what the newest start went on from, and that one, ...
            claim = self._there[reader]
            if record.step > claim.step or start > claim.start:
                World.present.crashes.append(f"{folder} was read, though start {reader} went on from before it")
            reader = claim.start
        return Checkpoints._read(record, folder, wanted)


@contextmanager
def asking(stop: str, _: object) -> Iterator[Any]:
    """In the place of what asks Ray whether to stop."""
    world = World.present
    machine = world.current.process.machine
    yield lambda: stop in world.stops or machine in world.leaving


def machine_leaves() -> bool:
    return World.present.current.process.machine in World.present.leaving
