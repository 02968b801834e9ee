"""A checkpoint's tensors, each written by the workers that hold it, and read by those that want its rows."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from trainables.errors import printable
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.checkpoint_record import DamagedError, FileRecord, ShardRecord, unfitting
from trainables.training.parallel import is_sharded, rows_of, shard_of
from trainables.training.world import World

Tensors = Mapping[str, Tensor]


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, tied ones under their first name only: safetensors refuses shared memory."""
    names = {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_buffers()}
    return {name: tensor for name, tensor in module.state_dict().items() if name in names}


class Part(NamedTuple):
    """What this worker writes of a group."""

    tensors: dict[str, Tensor]
    shards: dict[str, ShardRecord]

    @classmethod
    def copy(cls, tensors: Tensors, world: World) -> Self:
        """Copies on the host; on CUDA they are under way."""
        part = cls({}, {})
        for name, tensor in tensors.items():
            if is_sharded(tensor):
                first, end = rows_of(tensor)
                if first < end:
                    part.tensors[name] = _to_host(tensor.to_local())
                    shape = tuple(tensor.shape)
                    part.shards[name] = ShardRecord(shape=shape, first_row=first, end_row=end)
            elif world.rank == 0:
                part.tensors[name] = _to_host(tensor)
        return part

    def write(self, folder: Location, group: str, world: World) -> dict[str, FileRecord]:
        """Write a file; none where this worker has nothing of the group."""
        if not self.tensors:
            return {}
        share = f"-{world.rank + 1:05d}-of-{world.size:05d}" if self.shards else ""
        name, data = f"{group}{share}.safetensors", safetensors.torch.save(self.tensors)
        (folder / name).write_bytes(data)
        whole = len(self.tensors) > len(self.shards)
        return {name: FileRecord(group=group, checksum=checksum(data), shards=self.shards, whole=whole)}


def _to_host(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().contiguous()
    if tensor.is_cuda:
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
    return tensor.clone()


class GroupReader:
    """Puts a group's tensors together from the files that hold the wanted rows of them.

    The layout has the wanted names, shapes and sharding; of the ``optimiser`` not of all; empty: whatever there is.
    """

    def __init__(self, folder: Location, group: str, files: Mapping[str, FileRecord], layout: Tensors) -> None:
        self.folder, self.group, self.files, self.layout = folder, group, files, layout
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.rows: dict[str, list[tuple[int, Tensor]]] = {}

    def read(self) -> dict[str, Tensor]:
        """The tensors, sharded as the layout's. Raises DamagedError, or InputError where they are not the layout's."""
        for name, file in self.files.items():
            self.shapes |= {tensor: shard.shape for tensor, shard in file.shards.items()}
            wanted = ((shard, *self._wanted_rows(tensor)) for tensor, shard in file.shards.items())
            overlaps = any(start < shard.end_row and shard.first_row < stop for shard, start, stop in wanted)
            if not file.shards or file.whole or overlaps:
                self._read(name, file)
        self._require_fit()
        # Sorted: a file's order differs between the workers, and theirs must agree wherever they gather tensors.
        return {name: self._join(name) for name in sorted(self.shapes)}

    def _wanted_rows(self, name: str) -> tuple[int, int]:
        layout = self.layout.get(name)
        return rows_of(layout) if layout is not None and is_sharded(layout) else (0, self.shapes[name][0])

    def _read(self, name: str, file: FileRecord) -> None:
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError as error:
            raise DamagedError(f"{name} is missing") from error
        if checksum(data) != file.checksum:
            raise DamagedError(f"{name} is not as it was written (its checksum differs)")
        try:
            tensors = safetensors.torch.load(data)
        except SafetensorError as error:
            raise DamagedError(f"{name} is no file of tensors: {printable(str(error))[:200]}") from error
        for tensor_name, tensor in tensors.items():
            self.shapes.setdefault(tensor_name, tuple(tensor.shape))
            first = file.shards[tensor_name].first_row if tensor_name in file.shards else 0
            kept = tensor
            if tensor.ndim:
                start, stop = self._wanted_rows(tensor_name)
                cut = tensor[max(0, start - first) : max(0, stop - first)]
                # A part is copied, so that the rest of its file does not stay in memory.
                kept = cut if len(cut) == len(tensor) else cut.clone()
            self.rows.setdefault(tensor_name, []).append((first, kept))

    def _require_fit(self) -> None:
        given = {name: tuple(tensor.shape) for name, tensor in self.layout.items()}
        found = self.shapes
        if self.group == "optimiser":
            found = {name: shape for name, shape in found.items() if name in given}
        if given and given != found:
            different = sorted({name for name, _ in given.items() ^ found.items()})
            what = "parameters" if self.group == "model" else "tensors"
            raise unfitting(self.folder, self.group, f"{what} differ: {', '.join(different[:4])}")

    def _join(self, name: str) -> Tensor:
        shape, layout = self.shapes[name], self.layout.get(name)
        parts = [tensor for _, tensor in sorted(self.rows.get(name, []), key=lambda part: part[0])]
        if not shape:
            return parts[0]
        start, stop = self._wanted_rows(name)
        if sum(map(len, parts)) != stop - start:
            raise DamagedError(f"rows of {name} are missing")
        if layout is not None and is_sharded(layout):
            return shard_of(torch.cat([torch.empty(0, *shape[1:], dtype=layout.dtype), *parts]), layout)
        return parts[0] if len(parts) == 1 else torch.cat(parts)
