"""Checkpoints: safetensors and JSON, no pickles. A checkpoint is there whole or not at all.

The training step waits for a copy to host memory only; a thread writes it. Sharded tensors (FSDP) are written by the
workers that hold them, and read again by any number of workers, each only the files that its rows lie in.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from trainables.errors import InputError
from trainables.storage import Location
from trainables.training.parallel import row_range, shard_of
from trainables.training.world import World

KEPT = 2
"""Checkpoints kept of a trial: the newest and, should that be damaged, the one before."""

Tensors = Mapping[str, Tensor]

_POLL_SECONDS = 0.2
_OTHERS_SECONDS = 600.0
"""How long the first worker's writer waits for the others' files."""


class Saved(NamedTuple):
    """A checkpoint that was read."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    """By group and name: on the CPU and whole, or sharded as the tensor of that name that was given."""


class Checkpoints:
    """The checkpoints of one trial: ``step-00000123/`` with a safetensors file a group of tensors and ``state.json``.

    A group is one file, ``model.safetensors``; if it is sharded, one a worker, ``model-00001-of-00002.safetensors``.
    ``state.json`` is written last: where it is, the checkpoint is whole. It names the files with their checksums.

    Args:
        folder: the trial's.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._closing = threading.Event()

    def steps(self) -> list[int]:
        """Steps at which whole checkpoints lie, ascending."""
        return [step for step in self._begun() if (self._at(step) / "state.json").exists()]

    def _begun(self) -> list[int]:
        return [int(name[5:]) for name in self.folder.names() if name.startswith("step-")]

    def _at(self, step: int) -> Location:
        return self.folder / f"step-{step:08d}"

    # --- writing --------------------------------------------------------------------------------------------------

    def save(
        self, step: int, groups: Mapping[str, Tensors], state: Mapping[str, Any], world: World | None = None
    ) -> None:
        """Copy a checkpoint to host memory and begin to write it; all workers call it at the same step.

        What the loop reports meanwhile may be rolled back: after a crash the trial goes on from the newest whole
        checkpoint, and repeats what the ledger then drops. A run's last report waits (:meth:`wait`).

        Args:
            step: optimiser steps made.
            groups: ``model``, and what else the run goes on from, such as ``optimiser``; without the latter the run
                is finished.
            state: JSON values, whatever else the run goes on from; the same on all workers.
            world: this worker among those that train together.

        Raises:
            FullDiskError: there was no space for the checkpoint before; those before it are whole.
            OSError: it could not be written for another reason.
            TimeoutError: nor could another worker's part of it.
        """
        world = world or World()
        self.wait()
        # A worker's files of an earlier attempt at the same step must not count as this one's.
        number = world.sum_integers(secrets.randbits(62) if world.rank == 0 else 0)
        parts = {group: _Part.copy(tensors, world) for group, tensors in groups.items()}
        if world.device.type == "cuda":
            torch.cuda.current_stream(world.device).synchronize()
        record = {"step": step, "finished": "optimiser" not in groups, **copy.deepcopy(dict(state))}
        random = _random_state(world.device)
        self._writing = self._pool.submit(self._write, number, parts, record, random, world)

    def wait(self) -> None:
        """Until this worker's part of the last checkpoint is written; the first worker's: until all of it is.

        Raises:
            FullDiskError: there is no space for it; the checkpoints before are whole.
            OSError: it could not be written for another reason.
            TimeoutError: another worker's part did not come.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """End the writer, whatever comes of it: what it can finish without other workers it finishes."""
        self._closing.set()
        if self._writing is not None:
            wait_for([self._writing])
        self._pool.shutdown()

    def _write(
        self,
        number: int,
        parts: dict[str, _Part],
        record: dict[str, Any],
        random: dict[str, str],
        world: World,
    ) -> None:
        folder = self._at(record["step"])
        files = {}
        for group, part in parts.items():
            if part.tensors:
                share = f"-{world.rank + 1:05d}-of-{world.size:05d}" if part.sharded else ""
                data = safetensors.torch.save(part.tensors)
                (folder / f"{group}{share}.safetensors").write_bytes(data)
                files[f"{group}{share}.safetensors"] = {
                    "group": group,
                    "checksum": _checksum(data),
                    "shards": part.sharded,
                    "whole": len(part.tensors) > len(part.sharded),
                }
        mine = {"save": number, "files": files, "random": random}
        if world.rank > 0:
            (folder / f"worker-{world.rank}.json").write_json(mine)
            return
        others = [folder / f"worker-{rank}.json" for rank in range(1, world.size)]
        workers = [mine, *(self._await(other, number) for other in others)]
        record["files"] = {name: file for worker in workers for name, file in worker["files"].items()}
        record["random"] = [worker["random"] for worker in workers]
        (folder / "state.json").write_json(record)
        for other in others:
            other.delete()
        older = [step for step in self.steps() if step < record["step"]]
        for step in set(self._begun()) - set(older[len(older) - KEPT + 1 :]):
            if step < record["step"]:
                self._at(step).delete()

    def _await(self, file: Location, number: int) -> dict[str, Any]:
        """Another worker's record of this checkpoint. Files, not a collective: a thread must not disturb training's."""
        deadline = time.monotonic() + _OTHERS_SECONDS
        while True:
            if file.exists():
                record: dict[str, Any] = file.read_json()
                if record["save"] == number:
                    return record
            if time.monotonic() > deadline or self._closing.is_set():
                raise TimeoutError(f"the checkpoint is not whole: {file} was not written")
            self._closing.wait(_POLL_SECONDS)

    # --- reading --------------------------------------------------------------------------------------------------

    def load_newest(
        self, wanted: Callable[[dict[str, Any]], Mapping[str, Tensors]], world: World | None = None
    ) -> tuple[Saved | None, list[str]]:
        """Read the newest checkpoint that is undamaged, and restore the random state; all workers call it.

        It may have been written by any number of workers, sharded or not. A damaged checkpoint is passed over for the
        one before, and removed.

        Args:
            wanted: from the checkpoint's state to the groups of tensors it is for. What is read must have their names
                and shapes, and is sharded as they are. Of the ``optimiser`` they may be some of the tensors; the
                others are read whole. A group that a finished run did not save is left out.
            world: this worker among those that train together.

        Returns:
            What was read, None where there is no checkpoint; and what a person should know of it.

        Raises:
            InputError: it does not fit the tensors, or all are damaged.
        """
        world = world or World()
        damaged: dict[int, str] = {}
        for step in self._agreed_steps(world):
            try:
                found, problem = self._read(step, wanted), ""
            except _DamagedError as error:
                found, problem = None, str(error)
            anywhere = world.largest(float(bool(problem))) > 0
            if found is None or anywhere:
                damaged[step] = problem or "another worker cannot read its part"
                continue
            if world.rank == 0:
                for bad in damaged:
                    self._at(bad).delete()
            _restore_random_state(found.state.pop("random"), world)
            return found, [
                f"the checkpoint of step {bad} was damaged and is removed ({why}); going on from step {step}"
                for bad, why in damaged.items()
            ]
        if damaged:
            raise _damaged(self._at(max(damaged)), f"{damaged[max(damaged)]}; there is no undamaged one before")
        return None, []

    def read_model(self, step: int) -> dict[str, Tensor]:
        """The model's tensors, whole and on the CPU.

        Raises:
            InputError: the checkpoint is damaged.
        """
        try:
            return self._read(step, lambda state: {"model": {}}).tensors["model"]
        except _DamagedError as error:
            raise _damaged(self._at(step), str(error)) from error

    def _agreed_steps(self, world: World) -> list[int]:
        """The steps that the first worker sees, newest first: the others may not see all of them yet."""
        steps = self.steps()[::-1] if world.rank == 0 else []
        count = world.sum_integers(len(steps))
        return [world.sum_integers(steps[i] if world.rank == 0 else 0) for i in range(count)]

    def _read(self, step: int, wanted: Callable[[dict[str, Any]], Mapping[str, Tensors]]) -> Saved:
        folder = self._at(step)
        try:
            state: dict[str, Any] = (folder / "state.json").read_json()
        except FileNotFoundError as error:
            raise _DamagedError("state.json is missing") from error
        except ValueError as error:  # no JSON, or no UTF-8
            raise _DamagedError("state.json is cut short or overwritten") from error
        if "files" not in state:
            raise _unfitting(folder, "version", "state.json names no files")
        files = state.pop("files")
        tensors = {}
        for group, layout in wanted(state).items():
            own = {name: file for name, file in files.items() if file["group"] == group}
            if own:
                tensors[group] = _GroupReader(folder, group, own, layout).read()
            elif state["finished"]:
                continue
            elif layout:
                raise _unfitting(folder, "configuration", f"it has no {group}")
            else:  # an optimiser that has made no step
                tensors[group] = {}
        return Saved(step, state, tensors)


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, tied ones under their first name only: safetensors refuses shared memory."""
    names = {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_buffers()}
    return {name: tensor for name, tensor in module.state_dict().items() if name in names}


class _DamagedError(Exception):
    """A checkpoint's files are not as they were written."""


class _Part(NamedTuple):
    """What this worker writes of a group."""

    tensors: dict[str, Tensor]
    sharded: dict[str, dict[str, Any]]
    """Of each sharded tensor the whole shape, the first row here, and the row after the last."""

    @classmethod
    def copy(cls, tensors: Tensors, world: World) -> _Part:
        """Copies on the host; on CUDA they are under way."""
        part = cls({}, {})
        for name, tensor in tensors.items():
            if isinstance(tensor, DTensor):
                start, stop = _rows(tensor)
                if start < stop:
                    part.tensors[name] = _to_host(tensor.to_local())
                    part.sharded[name] = {
                        "shape": list(tensor.shape),
                        "first_row": start,
                        "end_row": stop,
                    }
            elif world.rank == 0:
                part.tensors[name] = _to_host(tensor)
        return part


def _rows(tensor: DTensor) -> tuple[int, int]:
    assert tensor.placements == (Shard(0),), "FSDP shards by rows over one dimension of workers"
    return row_range(len(tensor), tensor.device_mesh.get_local_rank(), tensor.device_mesh.size())


def _to_host(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().contiguous()
    if tensor.is_cuda:
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
    return tensor.clone()


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class _GroupReader:
    """Puts a group's tensors together from the files that hold the wanted rows of them."""

    def __init__(self, folder: Location, group: str, files: dict[str, dict[str, Any]], layout: Tensors) -> None:
        self.folder, self.group, self.files, self.layout = folder, group, files, layout
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.rows: dict[str, list[tuple[int, Tensor]]] = {}

    def read(self) -> dict[str, Tensor]:
        """The tensors, sharded as the layout's."""
        for file, entry in self.files.items():
            shards = entry["shards"]
            self.shapes |= {name: tuple(shard["shape"]) for name, shard in shards.items()}
            if shards and not entry["whole"] and not any(map(self._overlaps, shards, shards.values())):
                continue
            for name, tensor in _read_file(self.folder / file, entry["checksum"]).items():
                self.shapes.setdefault(name, tuple(tensor.shape))
                first = shards[name]["first_row"] if name in shards else 0
                self._keep(name, first, tensor)
        self._require_fit()
        # Sorted: a file's order differs between the workers, and theirs must agree wherever they gather tensors.
        return {name: self._join(name) for name in sorted(self.shapes)}

    def _wanted_rows(self, name: str) -> tuple[int, int]:
        layout = self.layout.get(name)
        return _rows(layout) if isinstance(layout, DTensor) else (0, self.shapes[name][0])

    def _overlaps(self, name: str, shard: dict[str, Any]) -> bool:
        start, stop = self._wanted_rows(name)
        return bool(start < shard["end_row"] and shard["first_row"] < stop)

    def _keep(self, name: str, first: int, tensor: Tensor) -> None:
        if tensor.ndim:
            start, stop = self._wanted_rows(name)
            cut = tensor[max(0, start - first) : max(0, stop - first)]
            # A part is copied, so that the rest of its file does not stay in memory.
            tensor = cut if len(cut) == len(tensor) else cut.clone()
        self.rows.setdefault(name, []).append((first, tensor))

    def _require_fit(self) -> None:
        given = {name: tuple(tensor.shape) for name, tensor in self.layout.items()}
        found = self.shapes
        if self.group == "optimiser":
            found = {name: shape for name, shape in found.items() if name in given}
        if given and given != found:
            different = sorted({name for name, _ in given.items() ^ found.items()})
            what = "parameters" if self.group == "model" else "tensors"
            raise _unfitting(self.folder, self.group, f"{what} differ: {', '.join(different[:4])}")

    def _join(self, name: str) -> Tensor:
        shape, layout = self.shapes[name], self.layout.get(name)
        parts = [tensor for _, tensor in sorted(self.rows.get(name, []), key=lambda part: part[0])]
        if not shape:
            return parts[0]
        start, stop = self._wanted_rows(name)
        if sum(map(len, parts)) != stop - start:
            raise _DamagedError(f"rows of {name} are missing")
        if isinstance(layout, DTensor):
            return shard_of(torch.cat([torch.empty(0, *shape[1:], dtype=layout.dtype), *parts]), layout)
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _read_file(file: Location, checksum: str) -> dict[str, Tensor]:
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise _DamagedError(f"{file.name} is missing") from error
    if _checksum(data) != checksum:
        raise _DamagedError(f"{file.name} is not as it was written (its checksum differs)")
    tensors: dict[str, Tensor] = safetensors.torch.load(data)
    return tensors


def _damaged(folder: Location, why: str) -> InputError:
    return InputError(
        "the checkpoint cannot be loaded",
        where=str(folder),
        why=why,
        remedy="remove that folder: the trial goes on from the checkpoint before, or from its start",
    )


def _unfitting(folder: Location, what: str, why: str) -> InputError:
    return InputError(
        f"the checkpoint is of another {what}",
        where=str(folder),
        why=why,
        remedy="resume the study with the code and configuration that made it",
    )


def _random_state(device: torch.device) -> dict[str, str]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def _restore_random_state(workers: list[dict[str, str]], world: World) -> None:
    """Each worker's own; a worker that was not there when it was saved keeps what it was seeded with."""
    if world.rank >= len(workers):
        return
    for name, text in workers[world.rank].items():
        state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        if name == "cpu":
            torch.set_rng_state(state)
        elif world.device.type == "cuda":
            torch.cuda.set_rng_state(state, world.device)
