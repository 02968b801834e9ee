"""Checkpoints: safetensors and JSON, no pickles. A checkpoint is there whole or not at all."""

from __future__ import annotations

from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from trainables.errors import InputError
from trainables.storage import Location

KEPT = 2
"""Checkpoints kept of a trial: the newest and, should a crash cut into its making, the one before."""


class Checkpoints:
    """The checkpoints of one trial, ``step-00000123/{model,optimiser}.safetensors`` and ``state.json``.

    ``state.json`` is written last: where it is, the checkpoint is whole.

    Args:
        folder: the trial's.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Steps at which whole checkpoints lie, ascending."""
        names = [name for name in self.folder.names() if name.startswith("step-")]
        return [int(name[5:]) for name in names if (self.folder / name / "state.json").exists()]

    def save(
        self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer | None, state: dict[str, Any]
    ) -> None:
        """Write a checkpoint and remove those that are no longer needed.

        Args:
            step: optimiser steps made.
            model: its parameters and buffers are written.
            optimiser: its state is written; None: the run is done and needs it no more.
            state: JSON values, whatever else the run goes on from.
        """
        folder = self.folder / f"step-{step:08d}"
        (folder / "model.safetensors").write_bytes(safetensors.torch.save(_unique(model.state_dict())))
        if optimiser is not None:
            tensors = {
                f"{index}.{name}": value.contiguous()
                for index, values in optimiser.state_dict()["state"].items()
                for name, value in values.items()
            }
            tensors["random_state"] = torch.get_rng_state()
            (folder / "optimiser.safetensors").write_bytes(safetensors.torch.save(tensors))
        (folder / "state.json").write_json({"step": step, "finished": optimiser is None, **state})
        for old in [s for s in self.steps() if s < step][: 1 - KEPT or None]:
            (self.folder / f"step-{old:08d}").delete()

    def load(self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
        """Load a checkpoint into the model and (unless it is a finished run's) the optimiser; returns its state.

        Raises:
            InputError: it does not fit the model, or its files are damaged.
        """
        folder = self.folder / f"step-{step:08d}"
        state: dict[str, Any] = (folder / "state.json").read_json()
        try:
            weights = safetensors.torch.load((folder / "model.safetensors").read_bytes())
            tensors = {}
            if not state["finished"]:
                tensors = safetensors.torch.load((folder / "optimiser.safetensors").read_bytes())
        except (safetensors.SafetensorError, FileNotFoundError) as error:
            raise InputError(
                "the checkpoint cannot be loaded",
                where=str(folder),
                why=str(error).splitlines()[0],
                remedy="remove that folder: the trial goes on from the checkpoint before, or from its start",
            ) from error
        given = {name: tensor.shape for name, tensor in weights.items()}
        wanted = {name: tensor.shape for name, tensor in _unique(model.state_dict()).items()}
        if given != wanted:
            different = {name for name, _ in given.items() ^ wanted.items()}
            raise InputError(
                "the checkpoint is of another model",
                where=str(folder),
                why=f"parameters differ: {', '.join(sorted(different)[:4])}",
                remedy="resume the study with the code and configuration that made it",
            )
        model.load_state_dict(weights, strict=False)  # second names of tied weights are not in the file
        if not state["finished"]:
            torch.set_rng_state(tensors.pop("random_state"))
            states: dict[int, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                index, name = key.split(".", 1)
                states.setdefault(int(index), {})[name] = value
            optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
        return state


def _unique(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without second names of the same memory (tied weights), which safetensors refuses."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in tensors.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            unique[name] = tensor.contiguous()
    return unique
