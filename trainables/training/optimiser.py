"""The optimiser and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from trainables.config import Config
from trainables.errors import InputError
from trainables.training.row_adamw import RowAdamW, can_defer
from trainables.training.schedule import Schedule, learning_rate_share

ROWS_PAY_FROM = 1 << 14
"""Rows of a table from which on updating the touched ones alone is faster: on a CPU dense took 4.4 ms and rows 4.4 ms
with 8,000 rows, 27 ms and 4.9 ms with 33,000 (2,000 of them touched, hidden size 256)."""


class RestorationConfig(Config):
    """Head restoration (arXiv 2309.08351, section 4.3): at the end of a trial the model gets a vocabulary head, made of
    its embedding, and goes on as the vanilla objective. It is part of the trial's budget."""

    share: float = Field(0.02, gt=0, lt=1)
    """Of the budget."""
    learning_rate: float = Field(1e-4, gt=0)
    """Constant after the warm-up."""
    warmup: float = Field(0.2, ge=0, lt=1)
    """Share of the stage over which the learning rate rises."""


class TrainingConfig(Config):
    """How a model is trained; an arm may override any of it, and a search space may vary it."""

    optimiser: Literal["adamw", "muon"] = "adamw"
    """muon: the body's matrices by Muon, scaled to AdamW's learning rate; embeddings, head, norms, biases by AdamW."""
    embedding_update: Literal["auto", "dense", "rows"] = "auto"
    """Of an embedding table that is only looked up: rows costs the touched rows alone; auto: if that is faster."""
    learning_rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    schedule: Schedule = "linear"
    """How the learning rate falls after the warm-up: a function of budget progress."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the budget over which the learning rate rises."""
    cooldown: float = Field(0.2, gt=0, lt=1)
    """Share of the budget, its last, over which the schedule `wsd` (warm-up, stable, decay) falls."""
    learning_rate_floor: float = Field(0.0, ge=0, le=1)
    """Share of the peak learning rate at the end."""
    batch_sequences: int = Field(64, ge=1)
    """Sequences an optimiser step, over all workers."""
    micro_batch_sequences: int | Literal["auto"] | None = None
    """Sequences a forward pass of one worker, at least 1; auto: the most that fit in memory; null: its whole share.
    Only with `gathered: false` do an objective's negatives depend on it."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's and Muon's; matrices only, not biases and norms."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment decay."""
    beta2: float = Field(0.98, ge=0, lt=1)
    """AdamW's second moment decay."""
    epsilon: float = Field(1e-8, gt=0)
    """AdamW's."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of the tokens that a masked objective recovers; every sequence has the same number."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products under autocast; auto: bfloat16 on CUDA, float32 on a CPU."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Weights are also averaged, with this decay a step; yardsticks and export use the average."""
    activation_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of storing it: less memory, about a third more time."""
    compile: bool = False
    """Compile the model with `torch.compile`: slower to start, faster steps on a GPU."""
    restoration: RestorationConfig | None = None
    """Give a headless model a vocabulary head in the last part of its budget; null: its embedding scores tokens."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How workers share a model: each has a whole copy (ddp) or a part of its weights and optimiser state (fsdp)."""

    @field_validator("micro_batch_sequences")
    @classmethod
    def _some_sequences(cls, sequences: int | str | None) -> int | str | None:
        if isinstance(sequences, int) and sequences < 1:
            raise ValueError("must be at least 1, auto or null")
        return sequences

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        obstacle = self._obstacle_to_rows()
        if self.embedding_update == "rows" and obstacle:
            raise _no_rows(obstacle)
        if self.schedule == "wsd" and self.warmup + self.cooldown > 1:
            raise ValueError(
                "'warmup' and 'cooldown' are longer than the budget: their sum must be at most 1"
            )
        if self.parallel == "fsdp" and self.micro_batch_sequences == "auto":
            raise ValueError(
                "'micro_batch_sequences: auto' is tried out on whole weights: give fsdp a number"
            )
        for setting, without in (("restoration", None), ("ema_decay", None), ("optimiser", "adamw")):
            if self.parallel == "fsdp" and getattr(self, setting) != without:
                raise ValueError(f"'{setting}' needs whole weights: set parallel to ddp, or leave it out")
        return self

    def _obstacle_to_rows(self) -> str:
        if self.parallel == "fsdp":
            return "with parallel: fsdp every worker has a part of the table"
        if self.ema_decay is not None:
            return "with ema_decay every row of the average moves at every step"
        if not can_defer(self.beta1, self.beta2):
            return "with a beta1 not below sqrt(beta2) the rows that a step leaves out never come to rest"
        return ""

    def rate_at(self, progress: float, *, restored: bool) -> float:
        """The learning rate.

        Args:
            progress: share of the budget that is spent, 0 to 1. The schedule ends where restoration begins.
            restored: whether the restoration has begun.
        """
        restoration = self.restoration
        begin = 1.0 - restoration.share if restoration is not None else 1.0
        if restored:
            assert restoration is not None
            into = (progress - begin) / restoration.share
            return restoration.learning_rate * learning_rate_share(into, restoration.warmup, "constant", 0.0)
        share = learning_rate_share(
            progress / begin, self.warmup, self.schedule, self.learning_rate_floor, self.cooldown
        )
        return self.learning_rate * share

    @property
    def stable_share(self) -> float:
        """Share of a budget after which its end decides the learning rate: up to there ``wsd`` is the same for any."""
        before_restoration = 1.0 if self.restoration is None else 1.0 - self.restoration.share
        return before_restoration * (1.0 - self.cooldown)

    def updates_rows(self, *, only_looked_up: bool, num_rows: int) -> bool:
        """Whether the embedding table is updated by the touched rows alone.

        Args:
            only_looked_up: the table is no head too; a head's gradient has every row.
            num_rows: of the table.

        Raises:
            InputError: ``embedding_update`` demands it and it cannot be.
        """
        obstacle = self._obstacle_to_rows()
        if not only_looked_up:
            obstacle = "the table is the vocabulary head too, whose gradient has every row"
        if self.embedding_update == "rows" and obstacle:
            raise _no_rows(obstacle)
        if self.embedding_update == "auto":
            return not obstacle and num_rows >= ROWS_PAY_FROM
        return self.embedding_update == "rows"


def _no_rows(why: str) -> InputError:
    return InputError(
        "the embedding table cannot be updated by rows",
        where="training.embedding_update",
        why=why,
        remedy="embedding_update: auto",
    )


def hidden_matrices(body: nn.Module) -> list[nn.Parameter]:
    """The body's matrices but for its embeddings: what Muon is made for (its own documentation says so)."""
    tables = {id(m.weight) for m in body.modules() if isinstance(m, nn.Embedding)}
    return [p for p in body.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in tables]


class Optimiser:
    """All that updates a model's weights: AdamW, with Muon for the body's matrices if so set, or rows of a table.

    Weight decay is for matrices only, embeddings and head included. Muon's learning rate is scaled to the size of
    AdamW's updates (arXiv 2502.16982, section 2.2), so that one learning rate serves both.

    Args:
        model: its submodule ``body`` is Muon's. Parameters that need no gradient are left out.
        training: the settings.
        tables: by name, embedding tables that need no gradient and are updated by rows: ``rows[name]`` does it.
    """

    def __init__(
        self, model: nn.Module, training: TrainingConfig, tables: Mapping[str, Tensor] | None = None
    ) -> None:
        matrices = hidden_matrices(model.get_submodule("body")) if training.optimiser == "muon" else []
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
        groups = [
            {"params": [p for p in others if p.ndim >= 2], "weight_decay": training.weight_decay},
            {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0},
        ]
        betas = (training.beta1, training.beta2)
        # Fused also on a CPU: 6 times faster there than foreach or the plain loop.
        self.parts: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(
                groups, lr=training.learning_rate, betas=betas, eps=training.epsilon, fused=True
            )
        }
        if matrices:
            self.parts["muon"] = torch.optim.Muon(
                matrices,
                lr=training.learning_rate,
                weight_decay=training.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        self.rows = {
            name: RowAdamW(
                table_VD, betas=betas, epsilon=training.epsilon, weight_decay=training.weight_decay
            )
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
