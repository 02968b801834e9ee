"""The workers that train one model together."""

from dataclasses import dataclass, field
from functools import cache

import torch
import torch.distributed as dist

AGREEMENT_TURNS = 10


@dataclass(frozen=True)
class World:
    """This worker's place among the workers. One worker needs no process group."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def sum_integers(self, value: int) -> int:
        """Sum over the workers, modulo 2^64 (as int64 wraps around)."""
        if self.size == 1:
            return value
        # In two halves: sums of 32-bit numbers stay exact in int64.
        halves = torch.tensor([value & 0xFFFFFFFF, value >> 32], dtype=torch.int64)
        dist.all_reduce(halves, group=host_group())
        low, high = halves.tolist()
        return int(low + (high << 32)) % (1 << 64)

    def sum_float(self, value: float) -> float:
        """Sum over the workers."""
        return self._reduce(value, dist.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """Maximum over the workers."""
        return self._reduce(value, dist.ReduceOp.MAX)

    def any_asks(self, asked: bool, turn: int) -> bool:
        """Whether any worker asks, the same answer for all; several are asked every so many turns alone, as that is a
        collective operation."""
        if self.size == 1:
            return asked
        return turn % AGREEMENT_TURNS == 0 and self.largest(float(asked)) > 0

    def _reduce(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, op=operation, group=host_group())
        return float(tensor)


@cache
def host_group() -> dist.ProcessGroup | None:
    """A group whose collectives run on the host: counting and gathering ids waits for no GPU."""
    return None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
