"""Units of the budget: what binds, what is measured, and what is refused where the machine does not tell."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.files import load_study
from orchestrator.planning.preflight import require_measurable
from tests.helpers.corpus import write_corpus
from tests.helpers.trials import comparable, make_config, make_trial, run, stop_after
from trainables import trial as trial_module
from trainables.errors import InputError
from trainables.training import energy, meters
from trainables.training.config import UNITS
from trainables.training.energy import energy_counter, rapl_counter
from trainables.training.stepper import Stepper
from trainables.training.world import World

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60, "sw": 20})


@pytest.fixture
def ticking(monkeypatch):
    """A clock that ticks when it is read: a step takes one tick."""
    ticks = itertools.count()
    monkeypatch.setattr(meters.time, "perf_counter", lambda: float(next(ticks)))


# --- energy -------------------------------------------------------------------------------------------------


def make_zone(root, zone, name, microjoules, largest=1000):
    folder = root / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{largest}\n")
    return folder / "energy_uj"


def test_packages_and_memory_are_counted_once_and_shared(tmp_path):
    one = make_zone(tmp_path, "intel-rapl:0", "package-0", 100)
    core = make_zone(tmp_path, "intel-rapl:0:0", "core", 50)
    memory = make_zone(tmp_path, "intel-rapl:0:1", "dram", 10)
    other = make_zone(tmp_path, "intel-rapl:1", "package-1", 0)
    everything = make_zone(tmp_path, "intel-rapl:2", "psys", 0)
    (tmp_path / "intel-rapl-mmio:0").mkdir()
    counter = rapl_counter(0.25, tmp_path)
    assert counter() == 0
    for file, value in ((one, 400), (core, 300), (memory, 20), (other, 7), (everything, 900)):
        file.write_text(str(value))
    assert counter() == pytest.approx(0.25 * (300 + 10 + 7) * 1e-6)
    assert counter() == pytest.approx(0.25 * 317e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 1000))
def test_a_counter_that_wraps_around_loses_nothing(tmp_path_factory, steps, first):
    folder = tmp_path_factory.mktemp("powercap")
    file = make_zone(folder, "intel-rapl:0", "package-0", first, largest=1000)
    counter, true = rapl_counter(1.0, folder), first
    for step in steps:  # the kernel's counter has the values 0 to 1000
        true += step
        file.write_text(str(true % 1001))
        assert counter() == pytest.approx((true - first) * 1e-6)


def test_a_machine_that_does_not_tell(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="joules cannot be kept") as error:
        rapl_counter(1.0, tmp_path)
    assert "no energy counters" in error.value.why
    make_zone(tmp_path, "intel-rapl:0", "package-0", 1)

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(energy.Path, "read_text", refuse)
    with pytest.raises(InputError) as error:
        rapl_counter(1.0, tmp_path)
    assert "Permission denied" in error.value.why
    assert "chmod" in error.value.remedy
    with pytest.raises(InputError, match="joules"):
        energy_counter(torch.device("meta"), 1)


class FakeNvml:
    class NVMLError(Exception):
        pass

    def __init__(self, problem=""):
        self.problem, self.millijoules = problem, 5000

    def nvmlInit(self):
        if self.problem == "library":
            raise self.NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-1234-ab"
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        assert handle == "handle"
        if self.problem == "counter":
            raise self.NVMLError("Not Supported")
        return self.millijoules


def test_the_gpu_that_a_worker_trains_on(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234-ab"))
    nvml, device = FakeNvml(), torch.device("cuda", 0)
    counter = energy_counter(device, 8, nvml=nvml)
    before = counter()
    nvml.millijoules += 2500
    assert counter() - before == pytest.approx(2.5)
    for problem, why in (("library", "Shared Library"), ("counter", "Not Supported")):
        with pytest.raises(InputError) as error:
            energy_counter(device, 8, nvml=FakeNvml(problem))
        assert why in error.value.why
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(InputError) as error:
        energy_counter(device, 8)
    assert "pip install nvidia-ml-py" in error.value.remedy


# --- trials -------------------------------------------------------------------------------------------------


def joule_counter(per_reading=3.0):
    readings = itertools.count()
    return lambda: per_reading * next(readings)


def test_what_is_not_told_is_absent(corpus):
    config = make_config(evaluations=[], rungs=[])
    spent = run(corpus, config)[-1].measure.spent
    assert set(spent) == {*UNITS} - {"joules", "usd"}
    spent = run(corpus, config, energy=joule_counter(), usd_per_hour=7.2)[-1].measure.spent
    assert set(spent) == {*UNITS}
    assert spent["joules"] == 3.0 * 24  # two readings a step, one apart
    assert spent["usd"] == pytest.approx(spent["device_seconds"] * 7.2 / 3600)
    assert spent["wall_seconds"] == spent["device_seconds"] > 0
    assert spent["hardware_flops"] == spent["flops"] > 0


@pytest.mark.parametrize(
    ("budget", "steps"),
    [({"wall_seconds": 12}, 12), ({"usd": 0.0241}, 12), ({"joules": 36}, 12), ({"joules": 37.5}, 12)],
)
def test_units_that_are_measured_bind(corpus, ticking, budget, steps):
    training = {"schedule": "linear", "warmup": 0.0}
    config = make_config(budget=budget, training=training)
    (unit, amount), *_ = budget.items()
    last = run(corpus, config, energy=joule_counter(), usd_per_hour=7.2)[-1]
    assert last.status == "completed"
    assert last.measure.spent["steps"] == steps
    assert last.measure.spent[unit] <= amount * (1 + 1e-9)
    assert last.measure.progress == pytest.approx(last.measure.spent[unit] / amount)
    each = last.measure.spent[unit] / steps
    assert last.measure.learning_rate == pytest.approx(3e-3 * (1 - (steps - 0.5) * each / amount))


def test_a_counter_that_leaps_is_not_overdrawn_by_more_than_a_leap(corpus):
    """An energy counter that moves on every seventh reading: most steps seem to cost nothing."""
    readings = itertools.count()
    config = make_config(budget={"joules": 200}, rungs=[], evaluations=[], yardsticks=[])
    last = run(corpus, config, energy=lambda: 14.0 * (next(readings) // 7))[-1]
    spent = last.measure.spent
    assert 200 - 2 * 14 <= spent["joules"] <= 200 + 14


def test_hardware_flops_bind_and_are_not_overshot(corpus):
    training = {"activation_checkpointing": True}
    plain = run(corpus, make_config(budget={"steps": 5}, training=training))[-1].measure.spent
    assert plain["hardware_flops"] > plain["flops"]
    amount = plain["hardware_flops"] * 2.1
    last = run(corpus, make_config(budget={"hardware_flops": amount}, training=training))[-1]
    each = plain["hardware_flops"] / plain["tokens"] * 16
    assert amount - each < last.measure.spent["hardware_flops"] <= amount


@pytest.mark.parametrize("unit", ["joules", "usd"])
def test_a_unit_that_is_not_measured_cannot_bind(corpus, tmp_path, unit):
    with pytest.raises(InputError, match=unit) as error:
        make_trial(corpus, make_config(budget={unit: 5}))
    assert error.value.where == f"budget.{unit}"
    assert error.value.why
    assert error.value.remedy


def test_energy_of_a_trial_that_moved_to_a_machine_that_does_not_tell_is_unknown(corpus, tmp_path):
    config = make_config()
    run(corpus, config, tmp_path, should_stop=stop_after(5), energy=joule_counter())
    last = run(corpus, config, tmp_path, should_stop=stop_after(5))[-1]
    assert "joules" not in last.measure.spent
    last = run(corpus, config, tmp_path, energy=joule_counter())[-1]  # part of it was never measured
    assert "joules" not in last.measure.spent


def test_a_trial_in_joules_goes_on_where_it_was(corpus, tmp_path):
    config = make_config(budget={"joules": 72})
    undisturbed = run(corpus, config, energy=joule_counter())
    run(corpus, config, tmp_path, should_stop=stop_after(9), energy=joule_counter())
    assert comparable(run(corpus, config, tmp_path, energy=joule_counter())) == comparable(undisturbed)


def test_overhead_is_each_attempts_own(corpus, tmp_path, ticking):
    config = make_config()
    first = run(corpus, config, tmp_path, should_stop=stop_after(9))
    again = [report for report in run(corpus, config, tmp_path) if report.measure.step > 9]
    assert first[-1].measure.overhead["evaluation"] > 0
    assert again[0].measure.overhead["data_wait"] == 12 - 9 - 1
    assert again[-1].measure.overhead["data_wait"] == 24 - 9 - 1


def test_a_rungs_report_that_comes_again_has_the_new_attempt_s_overhead(corpus, tmp_path, ticking):
    generator = make_trial(corpus, make_config(), tmp_path).run()
    report = next(r for r in generator if r.measure.rung == 1)
    generator.close()
    repeated = next(r for r in run(corpus, make_config(), tmp_path) if r.measure.rung == 1)
    assert comparable([repeated]) == comparable([report])
    assert report.measure.overhead["evaluation"] > 0 == repeated.measure.overhead["evaluation"]


def test_compiling_is_not_start_up(corpus, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(meters.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(Stepper, "compile", lambda self, step: [next(ticks) for _ in range(100)] and "")
    overhead = run(corpus, make_config(training={"compile": True}))[-1].measure.overhead
    assert overhead["compile"] == 101
    assert overhead["startup"] == 4


# --- refused before anything starts -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["budget", "cap"])
def test_joules_are_refused_before_anything_starts(monkeypatch, tmp_path, key):
    def untold(device, cpus):
        return rapl_counter(1.0, tmp_path)

    monkeypatch.setattr("trainables.training.energy.energy_counter", untold)
    spec = load_study("demo", ["budget={joules: 100}"] if key == "budget" else ["cap={joules: 100}"])
    with pytest.raises(InputError, match="joules") as error:
        require_measurable(spec, 0)
    assert error.value.where == f"{key}.joules"
    make_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    require_measurable(spec, 0)


def test_the_price_must_be_of_what_trials_run_on():
    spec = load_study("demo", ["cap={usd: 9}", "resources.prices.gpu_hour=2", "resources.cpus_per_worker=4"])
    require_measurable(spec, 1)
    with pytest.raises(InputError) as error:
        require_measurable(spec, 0)
    assert error.value.where == "resources.prices.cpu_hour"
    both = load_study("demo", ["resources.prices={gpu_hour: 2, cpu_hour: 0.5}", "resources.cpus_per_worker=4"])
    assert both.resources.usd_per_hour(0) == 2.0
    assert both.resources.usd_per_hour(3) == 6.0


def test_a_worker_without_a_counter_trains_unless_joules_bind(monkeypatch):
    def untold(device, cpus):
        raise InputError("untold")

    monkeypatch.setattr("trainables.training.energy.energy_counter", untold)
    workers = trial_module.WorkerConfig(launcher="direct", workers=1, cpus_per_worker=1, gpus_per_worker=0)
    assert trial_module._energy(make_config(), workers, World()) is None
    with pytest.raises(InputError, match="untold"):
        trial_module._energy(make_config(budget={"joules": 4}), workers, World())
