"""What a study's design can answer, said before anything is spent."""

from collections.abc import Iterator
from dataclasses import replace

from orchestrator import formatting
from orchestrator.analysis.compare import rule_of
from orchestrator.analysis.statistics.planning import POWER, minimum_detectable_effect, power
from orchestrator.analysis.statistics.rule import FEWEST, FEWEST_EQUIVALENT
from orchestrator.config.confirmation import ConfirmSpec, StoppingSpec
from orchestrator.config.study import StudySpec
from orchestrator.ledger.protocol import design_of
from trainables.errors import InputError


def require_answerable(spec: StudySpec) -> None:
    """Raises InputError where no verdict can come of a study that compares."""
    seeds = spec.confirm.seeds
    if spec.num_compared_pairs and seeds < FEWEST and not spec.confirm.describe_only:
        raise InputError(
            f"{formatting.plural(seeds, 'seed')} can answer nothing",
            where="confirm.seeds",
            why=f"with fewer than {FEWEST} pairs of runs no arm can be named, with fewer than {FEWEST_EQUIVALENT} none "
            "called equivalent",
            remedy="leave out confirm.seeds, for 6 to 14; or --set confirm.describe_only=true, for curves without a "
            "verdict",
        )


def warnings_of(spec: StudySpec) -> list[str]:
    """A sentence on each thing that the study cannot do."""
    num_pairs = spec.num_compared_pairs
    warnings = []
    if len(spec.arms) < 2:
        warnings.append("There is one arm, and nothing to compare it with.")
    elif not num_pairs:
        warnings.append("No two arms have the same task, masked or causal: they cannot be compared.")
    elif len({arm.learned.task for arm in spec.arms.values()}) > 1:
        warnings.append("Arms of different tasks, masked and causal, are not compared with each other.")
    if num_pairs and spec.confirm.seeds < FEWEST:
        warnings.append(
            f"No arm can win with {formatting.plural(spec.confirm.seeds, 'seed')}: "
            f"it takes {FEWEST}: --set confirm.seeds={FEWEST}"
        )
    if num_pairs and spec.confirm.top > 1:
        warnings.append(
            f"The verdict will be exploratory: of confirm.top={spec.confirm.top} configurations of an arm the best is "
            "chosen by the values that are compared."
        )
    return warnings


def notes(spec: StudySpec) -> Iterator[str]:
    """What the seeds of a study that compares can find, a sentence each."""
    rule, confirm = rule_of(design_of(spec), spec.num_compared_pairs), spec.confirm
    effect = minimum_detectable_effect(rule) if spec.num_compared_pairs else None
    if effect is None:
        return
    seeds = formatting.plural(confirm.seeds, "seed")
    yield (
        f"{'Up to ' if confirm.stopping else ''}{seeds} of each arm find a difference of {effect:.2g} standard "
        "deviations of the paired differences four times in five."
    )
    if (chance := power(rule, 1.0, 1.0)) < POWER:
        usual = power(replace(rule, minimum=StoppingSpec().minimum, maximum=ConfirmSpec().seeds), 1.0, 1.0)
        more = f", 6 to 14 seeds (leave out confirm.seeds) in {usual:.0%}" if usual > chance else ""
        yield f"One deviation they find in {chance:.0%} of studies{more}."
    if confirm.seeds < FEWEST_EQUIVALENT:
        yield f"With fewer than {FEWEST_EQUIVALENT} seeds no two arms can be called equivalent."
