"""What a run keeps count of."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from trainables.corpora.stream.token_stream import Batch, sequence_digest
from trainables.training.world import World

_STAT = Path("/proc/stat")

CAUSES = ("startup", "compile", "data_wait", "evaluation", "checkpoint")


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


class LoadMeter:
    """How busy the machine is beside this process."""

    def __init__(self) -> None:
        self._before = self._now()

    def cpus(self) -> float | None:
        """Cores that others kept busy since this was asked last, in the mean; None where the system does not tell."""
        (wall, busy, own), (wall_now, busy_now, own_now) = self._before, self._now()
        self._before = wall_now, busy_now, own_now
        if busy is None or busy_now is None or wall_now <= wall:
            return None
        return max(0.0, (busy_now - busy - (own_now - own)) / (wall_now - wall))

    @staticmethod
    def _now() -> tuple[float, float | None, float]:
        """Seconds: of the wall, of all cores' work (``/proc/stat``, see proc(5)), of this process and its children."""
        own = sum(os.times()[:4])
        try:
            user, nice, system, _, _, irq, softirq, steal = map(int, _STAT.read_text().split()[1:9])
        except (OSError, ValueError):
            return time.monotonic(), None, own
        return time.monotonic(), (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own


class LossMeter:
    """The mean loss since the last report, kept on the device so that no step waits for it.

    Steps' losses are float32. Their sum in float64 is exact, as long as they are of similar size: so it does not depend
    on which worker has which part, and a run that goes on with all of it on one worker reports the same.
    """

    def __init__(self, device: torch.device) -> None:
        self._total = torch.zeros((), device=device, dtype=torch.float64)
        self._count = 0

    def add(self, loss: torch.Tensor) -> None:
        """Take in a step's loss: this worker's part of the mean over the step's targets."""
        self._total += loss
        self._count += 1

    def mean(self, world: World) -> float | None:
        """The mean over all workers; None where there was no step."""
        if not self._count:
            return None
        return world.sum_float(float(self._total)) / self._count

    def state(self, world: World) -> tuple[float, int]:
        """Sum over all workers, and number of steps."""
        return world.sum_float(float(self._total)), self._count

    def restore(self, total: float, count: int) -> None:
        """Go on from a sum and a number of steps."""
        self._total.fill_(total)
        self._count = count


class StreamMeter:
    """What this worker has trained on."""

    def __init__(self, num_languages: int) -> None:
        self._digest = 0
        self._seen_l = np.zeros(num_languages, dtype=np.int64)

    def add(self, batch: Batch) -> None:
        """Take in a step's sequences."""
        self._digest = (self._digest + sequence_digest(batch)) % (1 << 64)
        self._seen_l += np.bincount(batch.language_N, minlength=len(self._seen_l))

    def digest(self, world: World) -> str:
        """Of all workers' sequences."""
        return f"{world.sum_integers(self._digest):016x}"

    def seen(self, world: World) -> tuple[int, ...]:
        """Sequences of each language, of all workers."""
        return tuple(world.sum_integers(int(count)) for count in self._seen_l)

    def restore(self, digest: str, seen: tuple[int, ...]) -> None:
        """Go on from what all workers have trained on; one of them does, the others go on from nothing."""
        self._digest, self._seen_l[:] = int(digest, 16), seen
