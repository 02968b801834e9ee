"""The optimiser: AdamW, Muon for matrices, and rows of tables; and the average of the weights over the steps."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.objectives.learner import Learner
from trainables.training.checkpoint_tensors import module_tensors
from trainables.training.config import TrainingConfig
from trainables.training.row_adamw import RowAdamW


class Optimiser:
    """All that updates a model's weights: AdamW, with Muon for the body's matrices if so set, or rows of a table.

    Weight decay is for matrices only, embeddings and head included. Muon's learning rate is scaled to the size of
    AdamW's updates (arXiv 2502.16982, section 2.2), so that one learning rate serves both. Parameters that need no
    gradient are left out; the ``tables`` among them are updated by rows, by ``rows[name]``.
    """

    def __init__(self, model: nn.Module, training: TrainingConfig, tables: Mapping[str, Tensor] | None = None) -> None:
        matrices: list[nn.Parameter] = []
        if training.optimiser == "muon":  # it is made for matrices but for embeddings (its own documentation says so)
            body = model.get_submodule("body")
            tied = {id(m.weight) for m in body.modules() if isinstance(m, nn.Embedding)}
            matrices = [p for p in body.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in tied]
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
        groups = [
            {"params": [p for p in others if p.ndim >= 2], "weight_decay": training.weight_decay},
            {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0},
        ]
        betas = (training.beta1, training.beta2)
        # Fused also on a CPU: 6 times faster there than foreach or the plain loop.
        self.parts: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(groups, lr=training.learning_rate, betas=betas, eps=training.epsilon, fused=True)
        }
        if matrices:
            self.parts["muon"] = torch.optim.Muon(
                matrices, lr=training.learning_rate, weight_decay=training.weight_decay, adjust_lr_fn="match_rms_adamw"
            )
        self.rows = {
            name: RowAdamW(table_VD, betas=betas, epsilon=training.epsilon, weight_decay=training.weight_decay)
            for name, table_VD in (tables or {}).items()
        }
        self.rate = training.learning_rate

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps to come."""
        self.rate = rate
        for part in self.parts.values():
            for group in part.param_groups:
                group["lr"] = rate

    def step(self) -> None:
        """Update the weights by their gradients."""
        for part in self.parts.values():
            part.step()
        for rows in self.rows.values():
            rows.step(self.rate)

    def zero_grad(self) -> None:
        """Drop the gradients. Those of fetched rows go with the rows."""
        for part in self.parts.values():
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """All state but the learning rate: ``adamw.PARAMETER.NAME``, ``muon.PARAMETER.NAME``, ``rows.TABLE.NAME``."""
        tensors = {
            f"{part}.{index}.{name}": value.contiguous()
            for part, optimiser in self.parts.items()
            for index, values in optimiser.state_dict()["state"].items()
            for name, value in values.items()
        }
        for table, rows in self.rows.items():
            tensors |= {f"rows.{table}.{name}": value for name, value in rows.state().items()}
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from ``tensors()``, bit for bit as if never left."""
        states: dict[tuple[str, str], dict[str, Tensor]] = {}
        for key, value in tensors.items():
            part, owner, name = key.split(".")
            states.setdefault((part, owner), {})[name] = value
        for part, optimiser in self.parts.items():
            state = {int(owner): values for (of, owner), values in states.items() if of == part}
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        for table, rows in self.rows.items():
            rows.load_state(states["rows", table])


class WeightAverage:
    """An exponential moving average of a model's parameters.

    It starts as the plain mean of the steps so far, and forgets once that is longer than the decay's memory of
    1 / (1 - decay) steps; so the initial weights are never in it, however short the run. ``AveragedModel`` of torch
    starts from the first step's weights at full decay, and on CUDA waits for the device at every update.
    """

    def __init__(self, model: Learner, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.model = copy.deepcopy(model).eval().requires_grad_(False)  # with the averaged weights

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step of its optimiser."""
        self.steps += 1
        average = get_ema_multi_avg_fn(min(self.decay, 1 - 1 / self.steps))  # type: ignore[no-untyped-call]
        average(list(self.model.parameters()), [p.detach() for p in model.parameters()], None)

    def tensors(self) -> dict[str, Tensor]:
        """The averaged weights and the number of steps they are of."""
        return {**module_tensors(self.model), "steps": torch.tensor(self.steps)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from :meth:`tensors`."""
        self.steps = int(tensors["steps"])
        self.model.load_state_dict(tensors, strict=False)  # tied weights are there once
