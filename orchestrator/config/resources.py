"""On what a trial runs, and what that costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainables.config import Config, Several


class PricesSpec(Config):
    """What devices cost. A worker with GPUs costs its GPUs, one without its CPU cores."""

    gpu_hour: float | None = Field(None, gt=0, le=10**9)
    """US dollars for an hour of one GPU, with its part of the machine around it."""
    cpu_hour: float | None = Field(None, gt=0, le=10**9)
    """US dollars for an hour of one CPU core."""

    @property
    def known(self) -> bool:
        """Whether there is any."""
        return self != PricesSpec()


class ResourcesSpec(Config):
    """On what a trial runs."""

    workers: Several = 1
    """Workers that train one model together (data-parallel)."""
    minimum_workers: Several | None = None
    """A trial may also start on fewer workers, down to so many, where there is no room for all; null: it waits."""
    cpus_per_worker: Several = 1
    """CPU cores of a worker."""
    gpus_per_worker: int | None = Field(None, ge=0, le=100_000)
    """GPUs of a worker; null: 1 where there are GPUs, else 0. A cluster that grows must be told."""
    concurrent_trials: int | None = Field(None, ge=1)
    """Trials at a time; null: as many as fit on the machine, or on the cluster once it has grown."""
    exclusive: bool = False
    """One trial at a time, the arms in turn, so that none slows another: for what is compared by device time."""
    launcher: Literal["auto", "direct", "ray_train"] = "auto"
    """`ray_train`: every trial is a Ray Train run. `direct`: in the Tune process, one worker only. auto: `direct` for
    one CPU worker, else `ray_train`."""
    attempts: int = Field(3, ge=1)
    """Failed starts in a row without a newer checkpoint, until a trial counts as failed; each goes on from the last."""
    checkpoint_minutes: float = Field(5.0, gt=0, le=10**6)
    """A running trial is saved at least so often: a process or machine that is lost costs no more."""
    prices: PricesSpec = PricesSpec()
    """With them, what is spent is also told in dollars."""

    def usd_per_hour(self, gpus_per_worker: int) -> float | None:
        """Price of a worker with so many GPUs; None where the study has none."""
        gpus, cores = (gpus_per_worker, self.prices.gpu_hour), (self.cpus_per_worker, self.prices.cpu_hour)
        devices, price = gpus if gpus_per_worker else cores
        return None if price is None else devices * price

    @property
    def possible_workers(self) -> range:
        """Numbers of workers that a trial may run on."""
        return range(self.minimum_workers or self.workers, self.workers + 1)

    @model_validator(mode="after")
    def _fewer_than_all(self) -> ResourcesSpec:
        if self.minimum_workers is not None and self.minimum_workers > self.workers:
            raise ValueError(f"minimum_workers is above workers, which is {self.workers}")
        if self.launcher == "direct" and self.workers > 1:
            raise ValueError("the direct launcher has one worker: set workers to 1 or launcher to ray_train")
        return self
