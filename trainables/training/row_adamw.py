r"""AdamW for an embedding table of which a step touches few rows: the cost of a step does not grow with the table.

Dense AdamW moves every row at every step: where the gradient is zero the moments decay, their update goes on, and the
weight decays. Of a row that was touched at step s with moments m, v and then missed, these moves are known beforehand
but for the learning rate, so they are made at once when the row is next needed. With P_t the product of
(1 - rate * weight decay) over the steps to t, n = j - s and c_j = sqrt(1 - beta2^j) / (1 - beta1^j), missed step j adds

    -rate_j c_j beta1^n m / (beta2^(n/2) sqrt(v) + epsilon sqrt(1 - beta2^j))  =  -w_j m / (sqrt(v) + epsilon e_j)

with w_j = rate_j c_j (beta1 / sqrt(beta2))^n and e_j = sqrt(1 - beta2^j) / beta2^(n/2), which later steps then decay:

    x_t = P_t / P_s * (x_s - sum_j (P_s / P_j) w_j m / (sqrt(v) + epsilon e_j)).

The sum depends on the row only through s when the e_j are replaced by their harmonic mean under the weights
(P_s / P_j) w_j. That is exact for epsilon far below sqrt(v) and far above it; between, with a beta2 of 0.98 or more, it
is off by less than 1% of the missed moves (in the first steps, where the e_j differ more, 6%). Its two sums are kept
for every s; as w_j falls geometrically, a step changes only those of the last few hundred s.

Letters: V vocabulary, D hidden size, R touched rows, T steps so far, W window.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from trainables.errors import InputError
from trainables.training.config import can_defer

NEGLIGIBLE = 1e-12  # a missed step's part is left out once it is below this share of the first missed step's
SETTLED_AT_ONCE = 16384  # rows: bounds the memory of :meth:`RowAdamW.settle`


class RowAdamW:
    """AdamW on some rows a step, with the trajectory of :class:`torch.optim.AdamW` on the whole table, (V, D).

    A step is ``fetch``, the backward passes, ``step``. The table needs no gradient, is updated in place, and is up to
    date after ``settle`` alone. Nothing waits for the device. The betas must satisfy :func:`can_defer`.
    """

    def __init__(self, table_VD: Tensor, *, betas: tuple[float, float], epsilon: float, weight_decay: float) -> None:
        beta1, beta2 = betas
        assert can_defer(beta1, beta2), "a missed row's moves must die out: the configuration saw to it"
        self.table_VD = table_VD.detach()
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay
        self.steps = 0
        self._log_decay = 0.0
        # Zeros that were never written to take no memory on a CPU.
        self._exp_avg_VD = torch.zeros_like(self.table_VD, memory_format=torch.contiguous_format)
        self._exp_avg_sq_VD = torch.zeros_like(self._exp_avg_VD)
        device = table_VD.device
        self._last_step_V = torch.zeros(len(table_VD), dtype=torch.int64, device=device)
        # For every step s: log P_s, sum_j (P_s / P_j) w_j, and sum_j (P_s / P_j) w_j / e_j.
        self._history_3T = torch.zeros(3, 1024, dtype=torch.float64, device=device)
        ratio = beta1 / math.sqrt(beta2)
        window = math.ceil(math.log(NEGLIGIBLE) / math.log(ratio)) if ratio else 0
        gap_W = torch.arange(window, 0, -1, dtype=torch.float64)
        self._ratio_power_W = (ratio**gap_W).to(device)
        self._beta1_power_W = (beta1**gap_W).to(device)
        self._fetched: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def fetch(self, row_R: Tensor) -> Tensor:
        """The rows, each named once, as dense AdamW would have them now, (R, D): a leaf that gathers their gradient."""
        leaf_RD, exp_avg_RD, exp_avg_sq_RD = self._catch_up(row_R)
        self._fetched = row_R, leaf_RD.requires_grad_(), exp_avg_RD, exp_avg_sq_RD
        return leaf_RD

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Updates the rows last fetched; all others have missed it. InputError: its weight decay is 100% or more."""
        self._advance(rate)
        if self._fetched is None:
            return
        row_R, leaf_RD, exp_avg_RD, exp_avg_sq_RD = self._fetched
        self._fetched = None
        if leaf_RD.grad is None:
            return
        adamw(
            [leaf_RD],
            [leaf_RD.grad.contiguous()],
            [exp_avg_RD],
            [exp_avg_sq_RD],
            [],
            [torch.full((), self.steps - 1, dtype=torch.float32, device=row_R.device)],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )
        self._write(row_R, leaf_RD, exp_avg_RD, exp_avg_sq_RD)

    @torch.no_grad()
    def settle(self) -> None:
        """Bring all rows up to date, for evaluation and export. Costs as much as a dense update."""
        every_V = torch.arange(len(self.table_VD), device=self.table_VD.device)
        for row_R in torch.split(every_V, SETTLED_AT_ONCE):
            self._write(row_R, *self._catch_up(row_R))

    def state(self) -> dict[str, Tensor]:
        """All there is to go on from, next to the table: (V, D), (V, D), (V,), (3, T + 1)."""
        return {
            "exp_avg": self._exp_avg_VD,
            "exp_avg_sq": self._exp_avg_sq_VD,
            "last_step": self._last_step_V,
            "history": self._history_3T[:, : self.steps + 1].contiguous(),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a ``state``, bit for bit as if never left, with the table as it was then."""
        self._exp_avg_VD.copy_(state["exp_avg"])
        self._exp_avg_sq_VD.copy_(state["exp_avg_sq"])
        self._last_step_V.copy_(state["last_step"])
        self._history_3T = state["history"].to(self._history_3T.device, copy=True)
        self.steps = self._history_3T.shape[1] - 1
        self._log_decay = float(self._history_3T[0, -1])
        self._fetched = None

    def _advance(self, rate: float) -> None:
        """Count a step, as one that was missed, into the sums of the steps before it."""
        if rate * self.weight_decay >= 1:
            raise InputError(
                f"a learning rate of {rate:g} with a weight decay of {self.weight_decay:g} leaves nothing",
                where="training.weight_decay",
                why="a step shrinks the weights by the product of the two",
                remedy="lower one of them",
            )
        self.steps += 1
        step = self.steps
        if step == self._history_3T.shape[1]:
            self._history_3T = torch.cat((self._history_3T, torch.zeros_like(self._history_3T)), dim=1)
        self._log_decay += math.log1p(-rate * self.weight_decay)
        self._history_3T[0, step].fill_(self._log_decay)
        beta1, beta2 = self.betas
        size = min(step, len(self._ratio_power_W))
        log_decay_W, sum_W, damped_W = self._history_3T[:, step - size : step]
        growth_W = (log_decay_W - self._log_decay).exp_()
        scale = rate / (1 - beta1**step)
        window = slice(len(self._ratio_power_W) - size, None)
        sum_W.addcmul_(growth_W, self._ratio_power_W[window], value=scale * math.sqrt(1 - beta2**step))
        damped_W.addcmul_(growth_W, self._beta1_power_W[window], value=scale)

    @torch.no_grad()
    def _catch_up(self, row_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of the rows and their moments, with the missed steps made."""
        dtype = self.table_VD.dtype
        step_R = self._last_step_V.index_select(0, row_R)
        log_decay_R, sum_R, damped_R = self._history_3T.index_select(1, step_R)
        decay_R = (self._log_decay - log_decay_R).exp_()
        # Where no step was missed both sums are zero. A row that was never touched divides zero by epsilon.
        mean_R = torch.where(damped_R > 0, sum_R / damped_R, 1.0)
        epsilon_R = (self.epsilon * mean_R).to(dtype).clamp_min_(torch.finfo(dtype).tiny)
        gap_R = (self.steps - step_R).double()

        row_RD = self.table_VD.index_select(0, row_R)
        exp_avg_RD = self._exp_avg_VD.index_select(0, row_R)
        exp_avg_sq_RD = self._exp_avg_sq_VD.index_select(0, row_R)
        move_RD = exp_avg_sq_RD.sqrt().add_(epsilon_R[:, None])
        torch.div(exp_avg_RD, move_RD, out=move_RD)
        row_RD.mul_(decay_R.to(dtype)[:, None])
        row_RD.addcmul_(move_RD, (-decay_R * sum_R).to(dtype)[:, None])
        exp_avg_RD.mul_((self.betas[0] ** gap_R).to(dtype)[:, None])
        exp_avg_sq_RD.mul_((self.betas[1] ** gap_R).to(dtype)[:, None])
        return row_RD, exp_avg_RD, exp_avg_sq_RD

    def _write(self, row_R: Tensor, row_RD: Tensor, exp_avg_RD: Tensor, exp_avg_sq_RD: Tensor) -> None:
        self.table_VD.index_copy_(0, row_R, row_RD)
        self._exp_avg_VD.index_copy_(0, row_R, exp_avg_RD)
        self._exp_avg_sq_VD.index_copy_(0, row_R, exp_avg_sq_RD)
        self._last_step_V.index_fill_(0, row_R, self.steps)
