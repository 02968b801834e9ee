"""What the devices have taken from the wall socket, where the machine tells.

A GPU trial's energy is that of its GPUs, whole boards: NVML's counter of millijoules since the driver was loaded
(Volta and newer; a MIG slice has none). A CPU trial's is its share of the machine's processor packages and their
memory: RAPL's counters of microjoules under ``/sys/class/powercap``, times the worker's CPU cores over those of the
machine, so that the shares of trials side by side never add up to more than the packages took. Fans, disks and power
supplies are in neither.

Sources: NVML API reference, nvmlDeviceGetTotalEnergyConsumption; Linux, Documentation/power/powercap/powercap.rst.
Since CVE-2020-8694 only root may read RAPL on most systems.
"""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainables.errors import InputError

EnergyCounter = Callable[[], float]  # joules since a moment that it does not tell; never less than before

POWERCAP = Path("/sys/class/powercap")
MICROJOULES, MILLIJOULES = 1e-6, 1e-3


def energy_counter(device: torch.device, cpus: float, nvml: Any = None, powercap: Path = POWERCAP) -> EnergyCounter:
    """The counter of the energy that a worker takes on its device, of which it may use so many CPU cores.

    ``nvml`` stands for the module ``pynvml``. Raises InputError where the machine does not tell.
    """
    if device.type == "cuda":
        return _nvml_counter(f"GPU-{torch.cuda.get_device_properties(device).uuid}", nvml)
    if device.type == "cpu":
        return rapl_counter(cpus / (os.cpu_count() or 1), powercap)
    raise _untold(f"there is no energy counter for a device of type {device.type}")


def _nvml_counter(uuid: str, nvml: Any) -> EnergyCounter:
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise _untold("NVML's Python bindings are not installed", "pip install nvidia-ml-py, or ") from error
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError as error:
        raise _untold(f"NVML has no energy counter of the GPU {uuid}: {error}") from error
    return lambda: float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * MILLIJOULES


def rapl_counter(share: float, powercap: Path = POWERCAP) -> EnergyCounter:
    """A share of what processor packages and their memory take. Read it more often than its zones wrap around."""
    try:
        # psys has the packages in it, core and uncore are in a package; memory (dram) is beside it.
        zones = [
            zone
            for zone in sorted(powercap.glob("intel-rapl:*"))
            if (zone / "name").read_text().strip().startswith(("package", "dram"))
        ]
        ranges = {zone / "energy_uj": int((zone / "max_energy_range_uj").read_text()) for zone in zones}
        last = {file: int(file.read_text()) for file in ranges}
    except OSError as error:
        raise _untold(
            f"the processor's energy counters (RAPL) cannot be read: {error}",
            f"as root: chmod a+r {powercap}/intel-rapl*/energy_uj, or ",
        ) from error
    if not zones:
        raise _untold(f"this machine has no energy counters of its processor (RAPL) under {powercap}")
    microjoules = 0

    def joules() -> float:
        nonlocal microjoules
        for file, largest in ranges.items():
            now = int(file.read_text())
            # The kernel's counter goes from its largest value back to 0.
            microjoules += (now - last[file]) % (largest + 1)
            last[file] = now
        return microjoules * MICROJOULES * share

    return joules


def _untold(why: str, remedy: str = "") -> InputError:
    return InputError(
        "a budget in joules cannot be kept here",
        where="budget.joules",
        why=why,
        remedy=f"{remedy}another unit, such as --set budget='{{device_seconds: 600}}'",
    )
