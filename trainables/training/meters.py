"""What a run keeps count of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import torch

from trainables.training.energy import EnergyCounter
from trainables.training.world import World

CAUSES = ("startup", "compile", "data_wait", "evaluation", "checkpoint")


@dataclass
class Spending:
    """What training steps have spent. Evaluation, start-up, checkpoints and waiting are not in it."""

    tokens: int = 0
    steps: int = 0
    flops: int = 0
    hardware_flops: int = 0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    joules: float | None = None
    """None where the machine does not tell, or some machine that the trial was on did not."""
    usd: float | None = None
    """None without a price."""

    def record(self) -> dict[str, float]:
        """By unit, those that are known."""
        return {unit: amount for unit, amount in asdict(self).items() if amount is not None}


@dataclass
class OverheadMeter:
    """Seconds of this attempt that are not training, by cause."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))

    @contextmanager
    def measure(self, cause: str) -> Iterator[None]:
        """Count the time inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[cause] += time.perf_counter() - start


class StepMeter:
    """Wall time and energy of training steps, until they are billed.

    Args:
        energy: of this worker's device; None where the machine does not tell.
    """

    def __init__(self, energy: EnergyCounter | None) -> None:
        self._energy = energy
        self._wall_seconds = self._joules = 0.0
        self.start()

    def start(self) -> None:
        """Training steps begin."""
        self._joules_before = self._energy() if self._energy is not None else 0.0
        self._time_before = time.perf_counter()

    def stop(self) -> None:
        """They end. What was started and not stopped counts nowhere."""
        self._wall_seconds += time.perf_counter() - self._time_before
        if self._energy is not None:
            self._joules += self._energy() - self._joules_before

    def take(self, world: World) -> tuple[float, float]:
        """Wall seconds and joules since the last call: the slowest worker's, and those of all; the same for all."""
        seconds, (joules,) = world.largest(self._wall_seconds), world.sum_floats([self._joules])
        self._wall_seconds = self._joules = 0.0
        return seconds, joules


class LossMeter:
    """The mean loss since the last report, kept on the device so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._total = torch.zeros((), device=device)
        self._count = 0

    def add(self, loss: torch.Tensor) -> None:
        """Take in a step's loss: this worker's part of the mean over the step's targets."""
        self._total += loss
        self._count += 1

    def mean(self, world: World) -> float | None:
        """The mean over all workers; None where there was no step."""
        if not self._count:
            return None
        return world.sum_floats([float(self._total) / self._count])[0]

    def state(self, world: World) -> tuple[float, int]:
        """Sum over all workers, and number of steps."""
        return world.sum_floats([float(self._total)])[0], self._count

    def restore(self, total: float, count: int) -> None:
        """Go on from a sum and a number of steps."""
        self._total.fill_(total)
        self._count = count
