"""The plan against what is built and counted elsewhere."""

import json
from io import StringIO

import numpy as np
import pytest
import torch
from rich.console import Console

from orchestrator.config.files import load_study, study_names
from orchestrator.planning.arm_plan import ArmPlan, arm_plans, require_a_step
from orchestrator.planning.design import warnings_of
from orchestrator.reporting.catalogue import catalogue, show_catalogue
from orchestrator.reporting.plan_table import show_plan
from trainables.errors import InputError
from trainables.models.body_config import body_config
from trainables.objectives import find_objective
from trainables.objectives.learner import Learner


def rendered(renderable, width):
    file = StringIO()
    Console(width=width, file=file, color_system=None, _environ={}).print(renderable, highlight=False)
    return file.getvalue()


def masked(*overrides):
    return load_study("laptop", overrides)


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("width", [60, 80, 160])
def test_every_shipped_study_has_a_plan_that_fits(name, width):
    spec = load_study(name)
    text = rendered(show_plan(spec), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(word in text for word in ("headless", "vanilla", "learning_rate", "confirm"))
    assert ("searched" in text) == ("search " in text) == (spec.search.budget_per_arm > 0)


@pytest.mark.parametrize("width", [60, 160])
def test_the_catalogue_fits(width):
    assert max(map(len, rendered(show_catalogue(catalogue()), width).splitlines())) <= width


@pytest.mark.parametrize("name", [name for name in study_names() if name not in ("demo", "confounds")])
def test_judging_takes_little_of_a_shipped_study(name):
    for plan in arm_plans(load_study(name)):
        assert 0 < plan.evaluation_share < 0.03
        assert "of its FLOPs" in rendered(show_plan(plan.spec), 160)


def test_judging_that_takes_more_than_training_is_told_as_times() -> None:
    spec = load_study("laptop", ["budget.tokens=5e4"])
    share, _ = [plan.evaluation_share for plan in arm_plans(spec)]
    assert share > 1
    assert f"at most {share:.1f} times its FLOPs" in rendered(show_plan(spec), 160)


def test_what_judging_takes():
    spec = load_study("laptop", ["yardsticks.evaluation={sequences_per_language: 100, sequences_on_the_way: 10}"])
    plan = arm_plans(spec)[1]
    assert plan.evaluation_flops(final=True) == 10 * plan.evaluation_flops(final=False)
    share = (100 + 4 * 10) / 10 * plan.evaluation_flops(final=False) / plan.trial_in_units()["flops"]
    assert plan.evaluation_share == pytest.approx(share)
    half = load_study("laptop", ["confirm.budget.tokens=1.5e6", "yardsticks.evaluation.sequences_per_language=1024"])
    whole = load_study("laptop")
    assert arm_plans(half)[1].evaluation_share == pytest.approx(2 * arm_plans(whole)[1].evaluation_share)
    timed = load_study("laptop", ["budget={device_seconds: 60}"])
    assert arm_plans(timed)[0].evaluation_share is None


@pytest.mark.parametrize("study", ["demo", "laptop"])
def test_parameters_are_those_of_the_model(study):
    for plan in arm_plans(load_study(study)):
        objective = find_objective(plan.arm.objective)
        config = body_config(
            plan.spec.model,
            objective.task,
            vocabulary_size=plan.vocabulary_size,
            sequence_length=plan.spec.corpora.sequence_length,
        )
        learner = Learner(config, objective.of({}))
        assert plan.body_parameters == sum(p.numel() for p in learner.body.parameters())
        assert plan.body_parameters + plan.head_parameters == sum(p.numel() for p in learner.parameters())
        assert (plan.head_parameters == 0) == objective.headless
        assert {p.device for p in plan.learner.parameters()} == {torch.device("meta")}


def test_a_trial_in_all_units():
    headless, vanilla = arm_plans(masked("budget={tokens: 100000}"))
    assert vanilla.vocabulary_size == 4000
    units = vanilla.trial_in_units()
    assert units["tokens"] == 100000 // 128 * 128
    assert units["steps"] == int(np.ceil(100000 // 128 / 32))
    # By hand: 781 sequences of 128 tokens through 4 layers of 256 (1024), 19 targets each against 4000 candidates.
    # In the last layer keys and values are of all tokens, all else of the targets.
    layer = 2 * 128 * (4 * 256**2 + 2 * 256 * 1024) + 4 * 128**2 * 256
    last = 2 * 128 * 2 * 256**2 + 2 * 19 * (2 * 256**2 + 2 * 256 * 1024) + 4 * 19 * 128 * 256
    body = 3 * (3 * layer + last)
    assert units["flops"] == 781 * (body + 6 * 19 * 256 * (4000 + 256))
    # 24 steps of 32 sequences, and one of 13: as many candidates at most as there are targets.
    loss = 6 * 256 * (24 * (32 * 19) ** 2 + (13 * 19) ** 2)
    assert headless.trial_in_units()["flops"] == 781 * body + loss


def test_units_agree_with_each_other():
    flops = arm_plans(masked("budget={steps: 50}"))[1].trial_in_units()["flops"]
    units = arm_plans(masked(f"budget={{flops: {flops}}}"))[1].trial_in_units()
    assert (units["steps"], units["tokens"]) == (50, pytest.approx(50 * 32 * 128))
    assert arm_plans(masked("budget={device_seconds: 9}"))[0].trial_in_units() == {"device_seconds": 9}


def test_micro_batches_and_workers_bound_the_candidates():
    whole = arm_plans(masked())[0].step_flops(32)
    local = "arms.headless.options={gathered: false}"
    halves = arm_plans(masked("training.micro_batch_sequences=16", local))[0].step_flops(32)
    workers = arm_plans(masked("resources.workers=2", local))[0].step_flops(32)
    gathered = arm_plans(masked("training.micro_batch_sequences=16", "resources.workers=2"))[0].step_flops(32)
    assert gathered == whole > halves == workers
    fixed = arm_plans(masked("arms.headless={objective: headless_mlm, space: mlm, options: {negatives: 9}}"))[0]
    assert fixed.candidates(32) == 10


def test_a_restored_head_is_paid_for():
    vanilla = masked().arms["vanilla"].objective
    assert vanilla == "mlm"
    restored = "arms.headless.training={restoration: {share: 0.25}}"
    for budget in ("budget={steps: 100}", "budget={flops: 1e12}"):
        plain, with_head = (arm_plans(masked(budget, *extra))[0] for extra in ((), (restored,)))
        pure = arm_plans(masked(budget))[1]
        kind = "flops" if "steps" in budget else "tokens"
        expected = 0.75 * plain.trial_in_units()[kind] + 0.25 * pure.trial_in_units()[kind]
        assert with_head.trial_in_units()[kind] == pytest.approx(expected)
    with pytest.raises(InputError, match="no step left to restore"):
        require_a_step(arm_plans(masked("budget={steps: 3}", restored))[0])
    with pytest.raises(InputError, match="updated by rows"):
        arm_plans(masked("training.embedding_update=rows"))[1].learner  # noqa: B018
    with pytest.raises(InputError, match="has a vocabulary head already"):
        masked("training={restoration: {}}")


def test_totals():
    text = rendered(
        show_plan(masked("budget={tokens: 1e6}", "confirm.top=2", "confirm.seeds=6", "search.budget_per_arm=3.5")), 100
    )
    rows = {
        line.split()[0]: line.split()[-2:]
        for line in text.splitlines()
        if line.strip().startswith(("search ", "confirm ", "all "))
    }
    assert rows == {"search": ["7", "7.0M"], "confirm": ["24", "24.0M"], "all": ["31", "31.0M"]}


def test_warnings():
    assert not warnings_of(masked())
    assert "confirm.seeds=4" in warnings_of(masked("confirm.seeds=3"))[0]
    assert "one arm" in warnings_of(masked("arms={a: {objective: mlm}}"))[0]
    assert "cannot be compared" in warnings_of(masked("arms={a: {objective: mlm}, b: {objective: clm}}"))[0]
    assert "exploratory" in warnings_of(masked("confirm.top=2"))[0]
    assert "! No arm can win" in rendered(show_plan(masked("confirm.seeds=3")), 60)


@pytest.mark.parametrize(
    ("size", "why"),
    [
        ({"hidden_size": -64}, "negative dimension"),
        ({"num_hidden_layers": 0}, "1 to 500 layers: num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**9}, "1 to 500 layers: num_hidden_layers is 1000000000"),
        ({"num_attention_heads": 0}, ""),
        ({"intermediate_size": -1}, "negative dimension"),
    ],
)
def test_sizes_that_no_model_has(size, why):
    """Whatever torch or transformers say, and before it takes an hour to say it."""
    config = {"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2} | size
    spec = load_study("demo", [f"model={json.dumps({'config': config})}"])
    with pytest.raises(InputError, match="there is no such model") as caught:
        _ = ArmPlan(spec, "vanilla", 300).learner
    assert caught.value.where == "model.config"
    assert why in caught.value.why
