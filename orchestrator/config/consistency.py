"""What the parts of a study must have in common: each is valid by itself when this is asked."""

import math
from itertools import product

from orchestrator.config.arms import ArmSpec
from orchestrator.config.study import StudySpec
from search_spaces import Float, Integer
from trainables.errors import InputError, nearest
from trainables.evaluation import find_yardstick
from trainables.training.config import TrainingConfig

LARGEST_GRID = 100_000  # points
MOST_LOOKS = 200  # of adaptive stopping
LEAST_COOLDOWN_STEPS = 2  # of a branch


def require_consistent(spec: StudySpec) -> None:
    """Raises InputError, with the key and what to write instead, unless every arm and phase can be run."""
    for name, arm in spec.arms.items():
        _require_whole_shares(spec, name, arm)
        _require_fitting_stages(spec, name, arm)
        _require_own_tokenizer(spec, name, arm)
        _require_branches(spec, name, arm)
        _require_searchable(spec, name, arm)
    control = spec.confirm.control
    if control is not None and control not in spec.arms:
        remedy = nearest(control, spec.arms)
        raise InputError(f"confirm.control names no arm: '{control}'", where="confirm.control", remedy=remedy)
    _require_a_step(spec)
    _require_something_to_stop(spec)
    if spec.confirm_budget.unit != spec.budget.unit:
        raise InputError(
            f"confirm.budget is in {spec.confirm_budget.unit}, the study's budget in {spec.budget.unit}",
            where="confirm.budget",
            why="the search finds settings that are good for a budget of its unit",
            remedy=f"confirm: {{budget: {{{spec.budget.unit}: AMOUNT}}}}",
        )
    _require_prices(spec)
    _require_margin(spec)
    _require_measurable_text(spec)


def _require_whole_shares(spec: StudySpec, name: str, arm: ArmSpec) -> None:
    searched = arm.search_space.dimensions.get("batch_sequences")
    sizes = {spec.training_of(name).batch_sequences} if searched is None else set(searched.ends)
    if isinstance(searched, Integer) and spec.resources.workers > 1:
        sizes |= {searched.low + 1}
    for size, workers in product(sizes, spec.resources.possible_workers):
        if isinstance(size, int) and size % workers:
            inside = "space" if searched is not None else "training.batch_sequences"
            own = searched is not None or "batch_sequences" in arm.training
            raise InputError(
                f"a batch of {size} sequences cannot be shared out evenly among {workers} workers",
                where=f"arms.{name}.{inside}" if own else "training.batch_sequences",
                why="then an arm's result would depend on resources.workers",
                remedy=f"a multiple of {workers}, such as {-(-size // workers) * workers}",
            )


def _require_searchable(spec: StudySpec, name: str, arm: ArmSpec) -> None:
    """The arm's space is one that the algorithm can search."""
    algorithm, space, where = spec.search.algorithm, arm.search_space, f"arms.{name}.space"
    varied = [dimension for dimension in space.dimensions.values() if len(set(dimension.ends)) > 1]
    if algorithm == "cma_es" and not any(isinstance(d, Float | Integer) for d in varied):
        raise InputError(
            "cma_es has nothing to search",
            where=where,
            why="it knows numbers only, and the space has none that vary",
            remedy="--set search.algorithm=tpe",
        )
    if algorithm != "grid":
        return
    points = spec.search.grid_points
    size = math.prod(
        min(points, LARGEST_GRID) if isinstance(d, Float | Integer) else len(d.ends) for d in space.dimensions.values()
    )
    if size > LARGEST_GRID:
        raise InputError(
            f"the grid has more than {LARGEST_GRID:,} points",
            where=where,
            remedy="a smaller search.grid_points, or search.algorithm: qmc",
        )
    for configuration in space.first:
        if missing := sorted(space.dimensions.keys() - configuration.keys()):
            raise InputError(
                f"'first' leaves out {', '.join(missing)}",
                where=where,
                why="a grid has nothing to suggest for what is left out",
                remedy="name every setting of the space",
            )


def _require_own_tokenizer(spec: StudySpec, name: str, arm: ArmSpec) -> None:
    if (arm.model or spec.model).pretrained is not None and spec.tokenizer.train is not None:
        raise InputError(
            "a pretrained model needs the tokenizer it was trained with",
            where=f"arms.{name}.model.pretrained" if arm.model else "model.pretrained",
            why="a newly trained one gives its embeddings to other pieces of text",
            remedy="tokenizer: {pretrained: the same folder or name}",
        )


def _require_fitting_stages(spec: StudySpec, name: str, arm: ArmSpec) -> None:
    objective, training = arm.learned.of(arm.options), spec.training_of(name)
    own = f"arms.{name}.training" if arm.training else "training"
    if training.restoration is not None and not objective.restorable:
        raise InputError(
            f"the objective {objective.name} has a vocabulary head already",
            where=f"{own}.restoration",
            why="restoration gives a headless model a head",
            remedy="set it in the training of the headless arms alone",
        )
    if training.micro_batch_sequences == "auto" and not objective.gathered:
        raise InputError(
            "micro-batches that fit themselves to the memory would change the loss",
            where=f"{own}.micro_batch_sequences",
            why="with 'gathered: false' negatives come from the micro-batch",
            remedy="a number, or options: {gathered: true}",
        )


def _require_branches(spec: StudySpec, name: str, arm: ArmSpec) -> None:
    """A branch begins where the learning rate is at its peak, whatever the search finds."""
    if not spec.confirm.anytime:
        return
    training, own = spec.training_of(name), f"arms.{name}.training" if arm.training else "training"
    searched = sorted({"schedule", "warmup", "cooldown"} & arm.search_space.dimensions.keys())
    if searched:
        raise InputError(
            f"the search of the arm {name} varies {' and '.join(searched)}",
            where=f"arms.{name}.space",
            why="confirm.anytime needs one schedule for all runs",
            remedy="leave it out of the space, or leave out confirm.anytime",
        )
    if training.schedule != "wsd":
        raise InputError(
            f"the schedule '{training.schedule}' is that of one budget alone",
            where=f"{own}.schedule",
            why="confirm.anytime compares at shares of a run, and only wsd is the same up to there",
            remedy=f"--set {own}.schedule=wsd, or leave out confirm.anytime",
        )
    first = spec.confirm.anytime[0] * (1.0 - training.cooldown)
    if training.warmup >= first:
        raise InputError(
            f"at {spec.confirm.anytime[0]:g} of the budget the warm-up is not over",
            where="confirm.anytime",
            why=f"its branch begins at {first:g} of the budget, the warm-up lasts to {training.warmup:g}",
            remedy=f"a larger share, or --set training.warmup={first / 2:g}",
        )
    _require_cooldown_steps(spec, training)


def _require_cooldown_steps(spec: StudySpec, training: TrainingConfig) -> None:
    """A branch of less than a few steps would be judged as if it had cooled down."""
    amount = spec.confirm_budget.amount
    per_step = {"steps": 1.0, "tokens": training.batch_sequences * spec.corpora.sequence_length}
    if spec.confirm_budget.unit in per_step:
        steps = spec.confirm.anytime[0] * training.cooldown * amount / per_step[spec.confirm_budget.unit]
        if steps < LEAST_COOLDOWN_STEPS:
            raise InputError(
                f"a cooldown of {steps:.2g} steps at {spec.confirm.anytime[0]:g} of the budget is none",
                where="confirm.anytime",
                why=f"it takes {LEAST_COOLDOWN_STEPS} steps at least, and many more to tell anything",
                remedy="a larger share, a longer training.cooldown, or a larger budget",
            )


def _require_a_step(spec: StudySpec) -> None:
    for budget, key in ((spec.budget, "budget"), (spec.confirm_budget, "confirm.budget")):
        unit, amount = budget.unit, budget.amount
        least = {"tokens": spec.corpora.sequence_length * spec.resources.workers, "steps": 1}.get(unit, 0)
        if amount < least:
            raise InputError(
                f"a budget of {amount:g} {unit} buys no training step",
                where=f"{key}.{unit}",
                why="the smallest step is one sequence of corpora.sequence_length tokens a worker",
                remedy=f"at least {least}, and many times that to learn anything",
            )


def _require_something_to_stop(spec: StudySpec) -> None:
    stopping = spec.confirm.stopping
    if stopping is None:
        return
    if stopping.minimum >= spec.confirm.seeds:
        raise InputError(
            f"there is nothing to stop: the first look is after {stopping.minimum} seeds of {spec.confirm.seeds}",
            where="confirm.stopping.minimum",
            remedy=f"--set confirm.seeds={2 * stopping.minimum}, the most there may be",
        )
    if spec.confirm.seeds > MOST_LOOKS:
        raise InputError(
            f"adaptive stopping takes at most {MOST_LOOKS} seeds",
            where="confirm.seeds",
            why="the level of every look is found by simulation",
            remedy=f"--set confirm.seeds={MOST_LOOKS}, or leave out confirm.stopping",
        )
    if spec.confirm.top > 1:
        raise InputError(
            "adaptive stopping looks at one configuration of each arm",
            where="confirm.top",
            why=f"with {spec.confirm.top} the best is picked with all seeds in view, and looks would count more",
            remedy="--set confirm.top=1, or leave out confirm.stopping",
        )


def _require_prices(spec: StudySpec) -> None:
    for key, unit in spec.units_in_use.items():
        if unit == "usd" and not spec.resources.prices.known:
            raise InputError(
                f"a {key} in usd needs prices",
                where=f"{key}.usd",
                why="what a device costs is not known otherwise",
                remedy="resources: {prices: {gpu_hour: 2.5, cpu_hour: 0.04}}, or those that apply",
            )


def _require_margin(spec: StudySpec) -> None:
    primary, margin = find_yardstick(spec.yardsticks.primary), spec.confirm.margin
    if margin is not None and margin >= 1 and primary.higher_is_better:
        raise InputError(
            f"a margin of {margin:g} makes all arms equivalent",
            where="confirm.margin",
            why=f"{primary.name} is a share, between 0 and 1",
            remedy=f"a share too, as {margin / 100:g} for {margin:g} points of a hundred; or leave it out",
        )


def _require_measurable_text(spec: StudySpec) -> None:
    """The text has what every yardstick needs."""
    try:
        for name in spec.yardsticks.names:
            find_yardstick(name).require(spec.corpora)
    except InputError:
        from trainables.corpora.reading.portions import expand  # pyarrow: only what cannot run needs it

        for number, source in enumerate(spec.corpora.sources):
            if source.files is not None:  # where there are none, that is the first mistake
                expand(source, f"corpora.sources[{number}]")
        raise
