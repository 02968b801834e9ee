"""What a study will train, spend and take, as it is shown before anything runs."""

import math

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.planning.arm_plan import ArmPlan, checked_plans
from orchestrator.planning.design import warnings_of
from orchestrator.planning.forecast import ArmForecast, Forecast
from orchestrator.planning.tasks import TasksPlan
from orchestrator.reporting.layout import SideBySide, labelled, panel
from orchestrator.reporting.table import Table, on_terminal
from search_spaces import Categorical, Dimension, Float, Integer

ARM_WIDTH = 58  # columns an arm's panel needs
MOST_LANGUAGES = 8  # languages shown by name

_ALGORITHMS = {
    "tpe": "TPE",
    "gp": "Gaussian process",
    "cma_es": "CMA-ES",
    "random": "random search",
    "qmc": "Sobol' sequence",
    "grid": "grid",
}


def show_plan(spec: StudySpec) -> RenderableType:
    """What the study will train and spend. Raises InputError as :func:`checked_plans` does."""
    plans = checked_plans(spec)
    lines = [Text(f"! {warning}", style="yellow") for warning in warnings_of(spec)]
    if any(plan.objective.candidates_vary for plan in plans):
        lines.append(Text("* At most: how many candidates a position has depends on the text.", style="dim"))
    return Group(
        _headline(spec, plans[0].vocabulary_size),
        SideBySide([panel(_arm(plan), Text(plan.name)) for plan in plans], ARM_WIDTH),
        on_terminal(phases_table(spec)),
        *lines,
    )


def _headline(spec: StudySpec, vocabulary_size: int) -> RenderableType:
    languages = sorted({source.language for source in spec.corpora.sources})
    shown = ", ".join(languages[:MOST_LANGUAGES]) + (", ..." if len(languages) > MOST_LANGUAGES else "")
    train = spec.tokenizer.train
    kind = f"{train.type}, trained on the text" if train else spec.tokenizer.pretrained
    rows = labelled()
    rows.add_row("text", f"{formatting.plural(len(languages), 'language')}: {shown}")
    rows.add_row("tokenizer", Text(f"{vocabulary_size:,} pieces ({kind})"))
    rows.add_row("trial", formatting.quantity(spec.budget.amount, spec.budget.unit))
    if spec.cap is not None:
        rows.add_row("cap", f"{formatting.quantity(spec.cap.amount, spec.cap.unit)} for the whole study")
    question = [Text(spec.question)] if spec.question else []
    return Group(Text(spec.name, style="bold"), *question, Text(), rows)


BUSY = 0.7
"""Of a core: with less of it, measured steps say little of what they take on an idle machine."""


def _arm(plan: ArmPlan) -> Grid:
    training, learner = plan.training, plan.learner
    star = "*" if plan.objective.candidates_vary else ""
    kind = f"{plan.objective.task}, {'headless' if plan.objective.headless else 'vocabulary head'}"
    embeddings = formatting.quantity(learner.embedding_VD.numel(), "").strip()
    flops = formatting.quantity(plan.step_flops(training.batch_sequences), "flops")
    layers = formatting.plural(learner.config.num_hidden_layers, "layer")
    rows = labelled()
    rows.add_row("objective", f"{plan.objective.name} ({kind})")
    if plan.arm.options:
        rows.add_row("", formatting.settings(plan.arm.options, separator=", "))
    rows.add_row("model", f"{learner.config.model_type}, {layers} of {learner.config.hidden_size}")
    rows.add_row("body", f"{plan.body_parameters:,} parameters, {embeddings} of them the embedding table")
    rows.add_row("head", f"{plan.head_parameters:,} parameters" if learner.head is not None else "none")
    if training.restoration is not None:
        rows.add_row("", f"restored over the last {training.restoration.share:.3g} of a trial")
    sequences = formatting.plural(training.batch_sequences, "sequence")
    targets = training.batch_sequences * plan.targets_per_sequence
    length, candidates = plan.spec.corpora.sequence_length, plan.candidates(training.batch_sequences)
    rows.add_row("step", f"{sequences} of {length} tokens, {targets:,} targets")
    rows.add_row("", f"{candidates:,}{star} candidates each, {flops}{star}")
    rows.add_row("trial", _trial_in_words(plan))
    if (share := plan.evaluation_share) is not None:
        times = formatting.plural(plan.spec.confirm.evaluations, "time")
        rows.add_row("judged", f"{times} a run, for at most {_part(share)} its FLOPs")
    for number, (name, dimension) in enumerate(plan.searched.items()):
        rows.add_row("searched" if number == 0 else "", f"{name}: {dimension_in_words(dimension)}")
    if not plan.searched:
        rows.add_row("fixed", formatting.settings({"learning_rate": training.learning_rate}, separator=", "))
    return rows


def _part(share: float) -> str:
    return f"{share:.2%} of" if share < 0.01 else f"{share:.0%} of" if share < 1 else f"{share:.1f} times"


def _trial_in_words(plan: ArmPlan) -> str:
    units = plan.trial_in_units()
    binding = plan.spec.budget.unit
    others = []
    for unit, amount in units.items():
        if unit != binding:
            bound = plan.objective.candidates_vary and "flops" in (unit, binding)
            prefix = ("at least " if binding == "flops" else "at most ") if bound else ""
            others.append(prefix + formatting.quantity(amount, unit))
    if not others:
        others = ["tokens and FLOPs depend on the machine"]
    return f"{formatting.quantity(units[binding], binding)}: {', '.join(others)}"


def dimension_in_words(dimension: Dimension) -> str:
    """``0.0001 to 0.01, logarithmic, at the widest 1e-05 to 0.1``, or the choices."""
    if isinstance(dimension, Categorical):
        return " | ".join(map(formatting.setting, dimension.choices))
    scale = ", logarithmic" if dimension.log else ""
    is_fixed = dimension.ends == (dimension.low, dimension.high)
    widest = "" if is_fixed else f", at the widest {_range(dimension.widest)}"
    return f"{_range(dimension)}{scale}{widest}"


def _range(dimension: Float | Integer) -> str:
    return f"{formatting.setting(dimension.low)} to {formatting.setting(dimension.high)}"


def phases_table(spec: StudySpec) -> Table:
    """What each phase does, and what it spends at most."""
    unit, amount, arms = spec.budget.unit, spec.budget.amount, len(spec.arms)
    search, confirm = spec.search, spec.confirm
    rungs = ", ".join(f"{fraction:.0%}" for fraction in search.halving.fractions)
    among = f"stops at {rungs} unless among the best 1/{search.halving.reduction}"
    runs = arms * confirm.seeds * confirm.top * spec.confirm_budget.amount / amount
    cooldowns = runs / arms * math.fsum(map(spec.cooldown_share, spec.arms))
    seeds, top = formatting.plural(confirm.seeds, "seed"), formatting.plural(confirm.top, "configuration")
    if confirm.stopping is not None:
        seeds = f"{confirm.stopping.minimum} to {seeds}, until it is answered,"
    stops = among if rungs else "no early stops"
    searched = f"each arm {search.budget_per_arm:g}; {_ALGORITHMS[search.algorithm]}; {stops}"
    branched = " and ".join(f"{share:.0%}" for share in confirm.anytime)
    phases = [
        ("search", searched, arms * search.budget_per_arm),
        ("confirm", f"{formatting.plural(arms, 'arm')} x {seeds} x {top}", runs),
        ("anytime", f"branches that cool down at {branched} of the budget", cooldowns),
        ("all", "at most", arms * search.budget_per_arm + runs + cooldowns),
    ]
    rows = [
        (
            phase,
            what,
            f"{budgets:,.2f}".rstrip("0").rstrip("."),
            formatting.quantity(budgets * amount, unit).removesuffix(f" {unit}"),
        )
        for phase, what, budgets in phases
        if budgets
    ]
    titles = ("phase", "what", "trial\nbudgets", formatting.UNIT_TITLES[unit])
    return Table.of(titles, rows, align=("left", "left", "right", "right"))


def tasks_in_words(found: TasksPlan) -> str:
    """How much is asked of downstream tasks at a run's end, what that takes, and how much chance it leaves."""
    number, languages = len(found.record.tasks), {name for task in found.record.tasks.values() for name in task.items}
    asked = f"Tasks: {number} in {formatting.plural(len(languages), 'language')}; at a run's end"
    asked += f" up to {found.record.items} examples of each zero-shot task and language"
    cost = "" if found.share is None else f", at most {_part(found.share)} its FLOPs"
    return f"{asked}{cost}. The choice of examples leaves their mean uncertain by {found.error:.2g} (standard error)."


def show_forecast(found: Forecast) -> RenderableType:
    """Seconds, memory and disk, by arm and in all."""
    table = Table.of(
        ("arm", "a step", "tokens\na second", "memory", "a trial"), map(_forecast_row, found.arms), numbers=True
    )
    return Group(on_terminal(table), *(Text(line, style="dim") for line in _forecast_lines(found)))


def _forecast_row(arm: ArmForecast) -> tuple[str, ...]:
    seconds, measured = arm.trial_seconds, arm.calibration
    step, speed, bound = "–", "–", "at least "
    if measured is not None:
        step = formatting.duration(measured.step_seconds)
        speed = formatting.quantity(arm.plan.tokens_per_step / measured.step_seconds, "").strip()
        bound = "" if measured.memory_bytes and not arm.sharded else bound
    trial = formatting.duration(seconds) if seconds is not None else "–"
    return arm.plan.name, step, speed, bound + formatting.size(arm.memory_bytes), trial


def _forecast_lines(found: Forecast) -> list[str]:
    spec, lines = found.spec, []
    unmeasured = [arm.plan.name for arm in found.arms if arm.calibration is None]
    if unmeasured:
        lines.append(f"Not tried here, as a step is too large: {', '.join(unmeasured)}.")
    if found.device_seconds is not None:
        hours = formatting.duration(found.device_seconds)
        lines.append(f"The study: at most {hours} of one device in training steps, by the steps measured here.")
    share = min((arm.calibration.cpu_share for arm in found.arms if arm.calibration is not None), default=1.0)
    if share < BUSY:
        lines.append(
            f"Other work on this machine took its time meanwhile: the steps had {share:.0%} of a core. On an idle "
            "machine they are so much faster."
        )
    if found.usd is not None:
        lines.append(f"They cost {formatting.quantity(found.usd, 'usd')} at the study's prices.")
    if spec.search.budget_per_arm:
        whole, most = int(spec.search.budget_per_arm), found.most_search_trials
        trials = formatting.plural(whole, "trial") if most == whole else f"{whole} to {most} trials"
        lines.append(f"The search of an arm has {trials}: the sooner they are stopped, the more.")
    lines.append(f"Disk: up to {formatting.size(found.disk_bytes)} for checkpoints, beside the prepared text.")
    return lines
