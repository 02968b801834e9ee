"""The shipped recipes against the figures of arXiv 2309.08351, and that they plan without a network."""

from __future__ import annotations

import socket
from io import StringIO
from typing import NamedTuple

import pytest
from rich.console import Console

from orchestrator.cli import main
from orchestrator.config.files import load_study, study_names
from orchestrator.planning.arm_plan import arm_plans
from orchestrator.reporting.plan_table import show_plan
from trainables.models.flops import feed_forward_size
from trainables.objectives import find_objective


class Run(NamedTuple):
    """What the paper trains in one run."""

    steps: int
    batch: int
    length: int
    micro_batch: int | None
    learning_rate: float
    schedule: str
    warmup_steps: int
    weight_decay: float
    size: tuple[int, int, int, int]
    """Layers, hidden size, heads, feed-forward size."""
    vocabulary: int


BERT = (12, 768, 12, 3072)
SMALL = (4, 512, 8, 2048)
GPT2 = (3, 192, 3, 768)
PAPER = {
    "paper-bert-base": {
        "vanilla": Run(1_000_000, 256, 128, 32, 1e-4, "linear", 10_000, 0.01, BERT, 50_304),
        "headless": Run(500_000, 512, 128, 64, 1e-4, "linear", 10_000, 0.01, BERT, 50_304),
    },
    "paper-pythia-70m": dict.fromkeys(
        ("headless", "vanilla"), Run(143_000, 1024, 2048, 8, 1e-3, "cosine", 1430, 0.1, (6, 512, 8, 2048), 50_304)
    ),
    "paper-pythia-160m": dict.fromkeys(
        ("headless", "vanilla"), Run(143_000, 1024, 2048, 8, 6e-4, "cosine", 1430, 0.1, (12, 768, 12, 3072), 50_304)
    ),
    "paper-distil-mbert": dict.fromkeys(
        ("headless", "vanilla"), Run(400_000, 64, 128, 64, 2e-4, "linear", 10_000, 0.01, (6, 768, 12, 3072), 119_547)
    ),
    "paper-vocabulary-sweep": dict.fromkeys(
        ("headless", "vanilla"), Run(400_000, 64, 128, 64, 2e-4, "linear", 10_000, 0.01, SMALL, 20_000)
    ),
    "paper-batch-sweep": {
        "headless-32": Run(1_000_000, 32, 128, None, 2.5e-4, "cosine", 2000, 0.01, GPT2, 50_257),
        "headless-64": Run(1_000_000, 64, 128, None, 2.5e-4, "cosine", 2000, 0.01, GPT2, 50_257),
        "headless-128": Run(1_000_000, 128, 128, None, 2.5e-4, "cosine", 2000, 0.01, GPT2, 50_257),
        "vanilla-64": Run(1_000_000, 64, 128, None, 2.5e-4, "cosine", 2000, 0.01, GPT2, 50_257),
    },
}

ANNEALED = ("paper-bert-base", "paper-distil-mbert")
"""Recipes that ask what a part of the budget brings: on the way the paper's schedule has no model that has annealed."""


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a plan needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_every_recipe_is_in_the_table():
    assert {name for name in study_names() if name.startswith("paper-")} == set(PAPER)


@pytest.mark.parametrize("name", study_names())
def test_every_shipped_study_plans_in_80_columns(name):
    file = StringIO()
    Console(width=80, file=file, color_system=None, _environ={}).print(show_plan(load_study(name)))
    lines = file.getvalue().splitlines()
    assert lines[0] == name
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", sorted(PAPER))
def test_a_recipe_is_the_papers(name):
    spec = load_study(name)
    assert spec.search.budget_per_arm == 0
    plans = {plan.name: plan for plan in arm_plans(spec)}
    assert set(plans) == set(PAPER[name])
    for arm, run in PAPER[name].items():
        plan = plans[arm]
        training, units, config = plan.training, plan.trial_in_units(), plan.learner.config
        assert units["tokens"] == run.steps * run.batch * run.length
        assert units["steps"] == run.steps
        assert training.warmup * units["steps"] == pytest.approx(run.warmup_steps)
        assert training.micro_batch_sequences == run.micro_batch
        assert training.schedule == ("wsd" if name in ANNEALED else run.schedule)
        assert training.learning_rate_floor == 0
        assert bool(spec.confirm.anytime) == (name in ANNEALED)
        assert (training.learning_rate, training.weight_decay) == (run.learning_rate, run.weight_decay)
        assert training.clip_norm == 1
        assert (training.beta1, training.beta2) == (0.9, 0.999 if plan.objective.task == "masked" else 0.95)
        assert plan.vocabulary_size == run.vocabulary
        assert run.size == (
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            feed_forward_size(config),
        )


@pytest.mark.parametrize("name", sorted(PAPER))
def test_headless_arms_have_the_papers_loss(name):
    """Temperature 1 and all targets of the device's own micro-batch."""
    spec = load_study(name)
    for arm, plan in zip(spec.arms.values(), arm_plans(spec), strict=True):
        objective = find_objective(arm.objective)
        if objective.headless:
            options = objective.Options.model_validate(arm.options)
            assert (options.temperature, options.negatives) == (1, None)
            if plan.training.micro_batch_sequences is not None:
                assert not options.gathered
                num_targets = plan.training.micro_batch_sequences * plan.targets_per_sequence
                assert plan.candidates(plan.training.batch_sequences) == num_targets


def test_restoration_is_the_papers_share():
    """10k steps x 256 sequences, of 143k x 1024; less than 2%, as the paper says."""
    share = 10_000 * 256 / (143_000 * 1024)
    assert share < 0.02
    for name in ("paper-pythia-70m", "paper-pythia-160m"):
        spec = load_study(name)
        restoration = spec.training_of("headless").restoration
        assert restoration.model_dump() == {"share": round(share, 4), "learning_rate": 1e-4, "warmup": 0.2}
        assert spec.training_of("vanilla").restoration is None


def test_each_control_differs_from_its_arm_in_what_it_controls():
    """A tied head leaves vanilla the parameters of headless; all bodies are alike."""
    plans = {plan.name: plan for plan in arm_plans(load_study("confounds"))}
    headless, vanilla = plans["headless"], plans["vanilla"]
    assert len({plan.body_parameters for plan in plans.values()}) == 1
    assert (headless.head_parameters, plans["vanilla-tied"].head_parameters) == (0, 0)
    assert vanilla.head_parameters == vanilla.vocabulary_size * vanilla.learner.config.hidden_size
    assert plans["vanilla-tied"].objective.name == vanilla.objective.name
    assert set(plans["headless-untuned"].searched) == {"learning_rate"} < set(headless.searched)
    assert plans["headless-log-q"].objective.scorers[0] == "embedding"
    assert headless.objective.scorers[0] == "embedding+unigram"
    assert plans["headless-restored"].training.restoration.share == 0.1


def test_the_sweep_is_one_override_away():
    spec = load_study("paper-vocabulary-sweep", ["tokenizer.train.vocabulary_size=200000"])
    small = arm_plans(load_study("paper-vocabulary-sweep"))
    for plan, other in zip(arm_plans(spec), small, strict=True):
        assert plan.vocabulary_size == 200_000
        grown = plan.body_parameters - other.body_parameters
        assert grown == 180_000 * 512


def test_the_command_line_plans_a_recipe(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "paper-pythia-70m", "--set", "confirm.seeds=6"]) == 0
    out = capsys.readouterr().out
    assert "300B tokens" in out
    assert "143k steps" in out
    assert "No arm can win" not in out
    assert list(tmp_path.iterdir()) == []
