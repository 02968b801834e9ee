"""What a study would take, from steps measured here: sums that are done again by hand."""

from __future__ import annotations

import itertools
import math
from io import StringIO

import pytest
import torch
from rich.console import Console

from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.planning import forecast as module
from orchestrator.planning.arm_plan import arm_plans
from orchestrator.planning.forecast import forecast, require_feasible
from orchestrator.reporting.plan_table import show_forecast
from orchestrator.scheduling.trials import Planner
from tests.helpers.commands import run_command
from trainables.errors import InputError
from trainables.training.calibration import LEAST_STEPS, Calibration, calibrate


def text_of(renderable, width):
    file = StringIO()
    Console(width=width, file=file, color_system=None, _environ={}).print(renderable, highlight=False)
    return file.getvalue()


@pytest.fixture
def measured(monkeypatch):
    """A step of headless takes 2 s, of vanilla 3 s."""

    def fake(config, vocabulary_size, sequence_length, seconds, device):
        return Calibration(2.0 if "headless" in config.objective else 3.0, 5, 10**9, "cpu")

    monkeypatch.setattr(module, "calibrate", fake)


def test_the_sums(measured):
    spec = load_study(
        "demo",
        [
            "budget={steps: 100}",
            "search.budget_per_arm=4",
            "confirm={seeds: 3, top: 2, budget: {steps: 200}, anytime: [0.25, 0.5]}",
            "training={schedule: wsd, cooldown: 0.2, warmup: 0.02, batch_sequences: 16}",
            "resources={prices: {cpu_hour: 0.5}, cpus_per_worker: 2, gpus_per_worker: 0}",
        ],
    )
    found = forecast(spec)
    seconds = {"headless": 2.0, "vanilla": 3.0}
    assert {arm.plan.name: arm.trial_seconds for arm in found.arms} == {
        name: 100 * step for name, step in seconds.items()
    }
    # Search; six runs of 200 steps; of each the cooldowns of its branches: a fifth of 50 and of 100 steps.
    steps = 4 * 100 + 6 * (200 + 10 + 20)
    assert found.device_seconds == pytest.approx(steps * sum(seconds.values()))
    assert found.usd == pytest.approx(found.device_seconds / 3600 * 0.5 * 2)
    assert all(arm.memory_bytes == 10**9 for arm in found.arms)
    text = text_of(show_forecast(found), 80)
    assert "1.0 GB" in text
    assert "4 to 36 trials" in text


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        ("{device_seconds: 90}", 90),
        ("{wall_seconds: 90}", 90),
        ("{usd: 0.01}", 72),
        ("{joules: 900}", None),
        ("{tokens: 10240}", 20),
        ("{flops: 1e12}", 0),
        ("{hardware_flops: 1e12}", 0),
    ],
)
def test_seconds_in_every_unit(measured, budget, seconds):
    """A step is 16 x 64 tokens and takes 2 s; an hour of a worker costs half a dollar."""
    prices = "resources={prices: {cpu_hour: 0.5}, gpus_per_worker: 0}"
    found = forecast(load_study("demo", [f"budget={budget}", prices]))
    headless = found.arms[0].trial_seconds
    assert headless == (pytest.approx(seconds) if seconds else headless)
    assert (headless is None) == (seconds is None)
    assert found.arms[0].plan.name in text_of(show_forecast(found), 80)


def test_a_step_that_would_take_too_long_is_not_tried(measured):
    found = forecast(load_study("paper-bert-base", ["corpora.sources=[{language: x, grammar: veldan}]"]))
    assert all(arm.calibration is None for arm in found.arms)
    assert found.device_seconds is None
    assert "Not tried here" in text_of(show_forecast(found), 100)


def test_what_this_machine_cannot_run_is_refused(monkeypatch):
    require_feasible(load_study("demo"))
    with pytest.raises(InputError, match="a trial needs 1600 CPUs"):
        require_feasible(load_study("demo", ["resources={workers: 16, cpus_per_worker: 100}"]))
    largest = max(plan.body_parameters + plan.head_parameters for plan in arm_plans(load_study("demo")))
    monkeypatch.setattr(module, "_memory", lambda gpus: 12 * largest - 1)
    with pytest.raises(InputError, match=r"of the arm vanilla needs at least .* of memory"):
        require_feasible(load_study("demo"))


@pytest.mark.parametrize(("parallel", "bytes_each"), [("ddp", 12), ("fsdp", 6)])
def test_two_gpus_have_half_of_the_weights_each_where_they_are_shared_out(monkeypatch, parallel, bytes_each):
    spec = load_study("demo", ["resources={workers: 2, gpus_per_worker: 1}", f"training.parallel={parallel}"])
    largest = max(plan.body_parameters + plan.head_parameters for plan in arm_plans(spec))
    monkeypatch.setattr(module.Machine, "here", classmethod(lambda cls: cls(2, 2)))
    monkeypatch.setattr(module, "_memory", lambda gpus: bytes_each * largest)
    require_feasible(spec)
    monkeypatch.setattr(module, "_memory", lambda gpus: bytes_each * largest - 1)
    with pytest.raises(InputError, match="of memory"):
        require_feasible(spec)


def test_a_step_that_does_not_fit_the_gpu_is_refused_unless_it_may_be_cut(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module, "calibrate", full)
    with pytest.raises(InputError, match="does not fit the GPU's memory"):
        forecast(load_study("demo"))
    cut = forecast(load_study("demo", ["training.micro_batch_sequences=auto"]))
    assert all(arm.calibration is None for arm in cut.arms)


def test_a_step_is_really_made():
    spec = load_study("demo", ["training.batch_sequences=4"])
    config = Planner(spec, History(), "").plan("search", "vanilla", 0, 0, {}).config
    found = calibrate(config, 2000, 64, 0.0, torch.device("cpu"))
    assert found.steps >= LEAST_STEPS
    assert 0 < found.step_seconds < math.inf
    assert found.device == "cpu"


@pytest.mark.parametrize(("share", "told"), [(0.06, True), (0.98, False), (1.9, False)])
def test_a_machine_that_does_other_work_meanwhile_is_told(monkeypatch, share, told):
    """Else a plan of hours reads as one of days."""
    monkeypatch.setattr(module, "calibrate", lambda *_: Calibration(2.0, 5, None, "cpu", share))
    text = " ".join(text_of(show_forecast(forecast(load_study("demo"))), 80).split())
    assert ("the steps had 6% of a core" in text) is told
    assert ("Other work on this machine" in text) is told


def test_the_processor_time_of_a_step_is_measured(monkeypatch):
    spec = load_study("demo", ["training.batch_sequences=4"])
    config = Planner(spec, History(), "").plan("search", "vanilla", 0, 0, {}).config
    worked = itertools.count()
    monkeypatch.setattr("trainables.training.calibration.time.process_time", lambda: 1e-9 * next(worked))
    assert calibrate(config, 2000, 64, 0.0, torch.device("cpu")).cpu_share < 1e-3


def test_that_steps_are_measured_is_told_where_nobody_sees_a_spinner(measured, tmp_path):
    """It takes minutes of large models, and of any on a busy machine."""
    code, said = run_command("plan", "demo", "--set", f"storage={tmp_path}")
    assert code == 0
    assert "h2h: measuring a step of each arm ..." in said
