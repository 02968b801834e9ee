"""The largest micro-batch that fits in memory. The batch stays as it is: it is only made in more or fewer parts."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trainables.errors import InputError
from trainables.training.world import World

SHARE_OF_FREE_MEMORY = 0.8
"""Of a CPU's free memory that a micro-batch may take. There the system ends a process that takes too much."""


def largest_micro_batch(rehearse: Callable[[int], None], most: int, world: World, reserve_bytes: int = 0) -> int:
    """Sequences of the largest micro-batch that fits on every worker: ``most``, or half of it, or a quarter ...

    On CUDA it is tried; on a CPU it is computed from what a pass of one sequence stores, as memory overdrawn there
    ends the process. All workers must call it together. ``reserve_bytes`` are what the optimiser will still take.
    Raises InputError where not even one sequence fits.
    """
    rows, stored = most, 0
    if world.device.type == "cpu":
        stored = _stored_bytes(lambda: rehearse(1))
    while world.largest(float(not _fits(rehearse, rows, stored, reserve_bytes, world.device))):
        if rows == 1:
            raise InputError(
                "not even one sequence fits in memory",
                where="training.micro_batch_sequences",
                why="a forward and a backward pass of one sequence need more than is free",
                remedy="a smaller model or corpora.sequence_length, or training.activation_checkpointing: true",
            )
        rows = -(-rows // 2)
    return rows


def _fits(rehearse: Callable[[int], None], rows: int, stored: int, reserve_bytes: int, device: torch.device) -> bool:
    if device.type == "cpu":
        return rows * stored + reserve_bytes <= SHARE_OF_FREE_MEMORY * free_bytes()
    fits = True
    try:
        reserve = torch.empty(reserve_bytes, dtype=torch.uint8, device=device)
        rehearse(rows)
        del reserve
    except torch.OutOfMemoryError:
        fits = False
    # Here, as the exception held the tensors that did fit.
    torch.cuda.empty_cache()
    return fits


def _stored_bytes(rehearse: Callable[[], None]) -> int:
    """Bytes that the forward passes keep for the backward passes, and as much again for their gradients."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not tensor.is_leaf:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        rehearse()
    return 2 * sum(seen.values())


def free_bytes() -> int:
    """Memory that this process may still take: the machine's, or its control group's where that has less."""
    free = torch.iinfo(torch.int64).max
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip().isdigit():
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free
