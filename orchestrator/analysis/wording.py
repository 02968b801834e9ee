"""A comparison in words, by rules: docs/statistics.md."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from pydantic import JsonValue

from orchestrator import formatting
from orchestrator.analysis.boundaries import AT_BOUNDARY, boundaries_in_words
from orchestrator.analysis.comparison import ArmSummary, Comparison, FloorName, Pair, Row
from orchestrator.analysis.statistics.rule import FEWEST
from orchestrator.analysis.statistics.time_to_target import TimeToTarget
from trainables.training.config import Unit

CLOCKED: tuple[Unit, ...] = ("device_seconds", "wall_seconds", "usd")
"""Units in which a slow clock is less training."""

FEW_UNITS = 40
"""Of text: with fewer the skew of their differences shows in error rates (docs/statistics.md)."""

SAME_RUN = 0.98  # of what a run spends: less is a difference worth a word


def verdict_in_words(comparison: Comparison) -> str:
    """A paragraph a pair: who is ahead, on what, at which budget, how much, how sure; then what is not compared."""
    paragraphs = [_pair_in_words(comparison, pair) for pair in comparison.pairs]
    if comparison.leaves_pairs_out:
        paragraphs.append(
            f"Each is compared with {comparison.control} alone, as the study says: other pairs are left out."
        )
    if comparison.not_compared:
        tasks: dict[str, list[str]] = defaultdict(list)
        for arm, summary in comparison.arms.items():
            tasks[summary.task].append(arm)
        groups = " and ".join(f"{', '.join(arms)} ({task})" for task, arms in tasks.items())
        paragraphs.append(f"Arms of different tasks are not compared with each other: {groups}.")
    for arm, summary in comparison.arms.items():
        if summary.confirmed > 1:
            paragraphs.append(
                f"Exploratory: {arm} is the best of its {summary.confirmed} confirmed configurations, chosen by "
                "the values that are compared here, so p and interval flatter it."
            )
    if comparison.extensions:
        changes = (
            f"{key} from {_extended(key, before)} to {_extended(key, after)}"
            for extension in comparison.extensions
            for key, (before, after) in extension.items()
        )
        paragraphs.append(
            f"Exploratory: the study was extended after it had an answer ({'; '.join(changes)}), so the error rates "
            "of its protocol do not hold."
        )
    return "\n\n".join(paragraphs) or "There is nothing to compare."


def what_would_settle(pair: Pair, row: Row) -> str:
    """What an undecided pair with this primary row needs: ``about 5 more seeds would settle it, or 3 times the held-out
    text``. Of fewer than two seeds there is no spread, and only what the test needs is known."""
    seeds = None if pair.more_seeds is None else formatting.plural(pair.more_seeds, "more seed")
    text = None if pair.more_text is None else f"{pair.more_text:.2g} times the held-out text"
    if row.n < 2 and pair.more_seeds is not None:
        return f"at least {formatting.plural(pair.more_seeds, 'more complete pair')} before any arm can win"
    if seeds is None and text is None:
        if row.text_error is not None:
            return "at the observed spread neither more seeds alone nor more held-out text alone would settle it"
        return "at the observed spread no practical number of seeds would settle it"
    needed = f"about {seeds} would settle it, or {text}" if seeds and text else f"about {seeds or text} would settle it"
    return needed + (f" ({limit})" if (limit := _limit(row)) else "")


def _limit(row: Row) -> str:
    """Which of the two sources of chance is the larger, where both are known."""
    if row.seed_error is None or row.text_error is None:
        return ""
    which = "seeds" if row.seed_error >= row.text_error else "held-out text"
    errors = f"{row.seed_error:.2g} by seeds, {row.text_error:.2g} by text"
    return f"the {which} limit{'' if which == 'seeds' else 's'} it: standard errors {errors}"


def _extended(key: str, value: JsonValue) -> str:
    """What an extension changed, before or after: of a budget or cap the one amount that is set."""
    if isinstance(value, dict):
        settings = {name: setting for name, setting in value.items() if setting is not None}
        units = settings.keys() & formatting.UNIT_TITLES.keys()
        return ", ".join(_extended(unit, settings[unit]) for unit in units) or formatting.settings(settings)
    unit = key.rpartition(".")[2]
    if unit in formatting.UNIT_TITLES and isinstance(value, int | float):
        return formatting.quantity(value, unit)
    return formatting.setting(value)


def _pair_in_words(comparison: Comparison, pair: Pair) -> str:
    a, b, row = pair.a, pair.b, pair.yardsticks[comparison.primary]
    means, difference = (row.mean_a, row.mean_b), "difference"
    if pair.verdict == b:  # the winner is told first; the difference has one sign in all tables and words
        a, b, means, difference = b, a, (row.mean_b, row.mean_a), f"{a} – {b}"
    amount = formatting.quantity(comparison.amount, comparison.unit)
    device = " of device time" if comparison.unit == "device_seconds" else ""
    lower = " (lower is better)" if row.lower_is_better else ""
    where = f"on {comparison.primary}{lower} at {amount}{device} a trial"
    boundaries = boundaries_in_words(comparison, pair) if pair.withheld == "boundary" else ""
    opening = {
        "equivalent": f"{a} and {b} are equivalent {where}, within ±{pair.margin or 0.0:.2g}",
        "undecided": f"{a} against {b} {where} is undecided{f': {AT_BOUNDARY}' if boundaries else ''}",
    }.get(pair.verdict, f"{a} is ahead of {b} {where}")
    values = f"{' against '.join(map(formatting.score, means))}, {difference}"
    evidence = _evidence_in_words(opening, values, row, len(comparison.pairs), _broken(pair, row.n))
    confounds = ", ".join(_confounds(comparison.arms[a], comparison.arms[b], clocks=pair.steady))
    between = f"Between them differ too: {confounds} ({a} against {b})." if confounds else ""
    floors = _floors_in_words(comparison, pair) if row.n else ()
    robust = _robust_in_words(pair, row)
    withheld = _withheld_in_words(pair)
    beyond = _beyond_in_words(comparison, pair, row)
    clocks = "" if pair.steady else _clocks_in_words(comparison.unit)
    said = [evidence, *floors, withheld, boundaries, *_caveats(pair, row), beyond, robust, between, clocks]
    return " ".join(filter(None, said))


def _clocks_in_words(unit: Unit) -> str:
    """Of clocks that tell nothing, in a study with its budget in this unit."""
    budget = "the budget, which is made of it, is more training for one run than for another"
    therefore = budget if unit in CLOCKED else "nothing is compared by it"
    differs = "Device time of the same work differs by more than 10% between runs of one arm"
    return f"{differs}, so {therefore}: resources.exclusive runs one trial at a time."


def _confounds(a: ArmSummary, b: ArmSummary, *, clocks: bool) -> Iterable[str]:
    """What else differs between two arms than what they were compared for, each with both values; device time only
    where ``clocks`` tell something."""
    for said, values in (
        ("parameters", [{f"{built.parameters:,}" for built in arm.built} for arm in (a, b)]),
        ("devices", [{built.device for built in arm.built} for arm in (a, b)]),
        ("precision", [{built.precision for built in arm.built} for arm in (a, b)]),
    ):
        if all(values) and values[0] != values[1]:
            yield f"{said} {' and '.join(sorted(values[0]))} against {' and '.join(sorted(values[1]))}"
    for unit, one in a.a_run.items():
        other = b.a_run.get(unit, one)
        if min(one, other) < SAME_RUN * max(one, other) and (clocks or unit != "device_seconds"):
            of_device = "of device time " if unit == "device_seconds" else ""
            yield f"{formatting.quantity(one, unit)} {of_device}a run against {formatting.quantity(other, unit)}"


_FLOORS: dict[FloorName, str] = {
    "chance": "chance comes to",
    "untrained": "a model comes to before training",
    "unigram": "counting single tokens comes to",
    "bigram": "counting pairs of neighbours comes to",
}


def _floors_in_words(comparison: Comparison, pair: Pair) -> Iterable[str]:
    """What neither arm is surely above, of this the most that says something."""
    arms = {name: comparison.arms[name] for name in (pair.a, pair.b)}
    if not any(arm.floors for arm in arms.values()):
        yield "No floors were measured: whether either has learned anything is not known."
    for floor, value in list(pair.below.items())[:1]:
        therefore = "neither has learned much at this budget" if floor == "bigram" else "neither can be named"
        yield f"Neither is surely above what {_FLOORS[floor]} ({formatting.score(value)}), so {therefore}."
        known = [(arm.floors[floor], name) for name, arm in arms.items() if floor in arm.floors]
        lower = pair.yardsticks[comparison.primary].lower_is_better
        if there := [name for of, name in known if of.difference and (of.difference < 0) == lower]:
            verb = "is" if len(there) == 1 else "are"
            yield f"{' and '.join(there)} {verb} above it in the mean alone: more seeds or a larger budget would tell."
            return
        times = sorted((of.times_budget, name, of.trend) for of, name in known if of.times_budget is not None)
        for number, name, trend in times[:1]:
            if trend == "branches":
                yield f"By the trend of its branches {name} would be at {_times(number)} the budget."
            else:
                yield f"By the course of its runs {name} would be at no less than {_times(number)} the budget."


def _times(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.15g} times"


def barred_by(pair: Pair) -> str:
    """In a few words, why no verdict can be had of a pair where it stands."""
    floors = [name for name in pair.below if name != "bigram"]
    if floors:
        return f"neither is surely above what {_FLOORS[floors[0]]}"
    if pair.withheld == "boundary":
        return AT_BOUNDARY
    if pair.withheld == "floor":
        return "not both are surely above what comes of nothing learned"
    return "for runs that broke" if pair.withheld == "broken" else "the yardstick does not tell half the budget"


def _beyond_in_words(comparison: Comparison, pair: Pair, row: Row) -> str:
    """How many seeds ran beyond the look that settled it, as they had begun or were another pair's."""
    if pair.stopping is None or pair.verdict == "undecided":
        return ""
    gone = {arm: {gap.seed for gap in pair.missing if gap.arm == arm} for arm in (pair.a, pair.b)}
    beyond = min(
        comparison.arms[arm].counts["confirm"].completed
        - (row.n - sum(gap.arm == arm for gap in pair.broken))  # of its pairs those that completed
        - len(gone[other] - gone[arm])
        for arm, other in ((pair.a, pair.b), (pair.b, pair.a))
    )
    if beyond <= 0:
        return ""
    more = formatting.plural(beyond, "more seed")
    return f"{more} ran beside it: the arms' own means count them, this comparison does not."


def _withheld_in_words(pair: Pair) -> str:
    if pair.withheld == "broken":
        return (
            "An arm that diverges or fails at more than half of its seeds is not named, and arms that do at different "
            "numbers of seeds are not equivalent."
        )
    if pair.withheld == "floor" and not pair.below:
        return "Not both are surely above what comes of nothing learned, so they are not called equivalent."
    if pair.withheld == "sensitivity":
        return (
            f"Their difference is surely within ±{pair.margin:.2g}, but the yardstick does not surely tell each from "
            "itself half way through the budget by more than that: it would call too much equivalent."
        )
    return ""


def _robust_in_words(pair: Pair, row: Row) -> str:
    """In how many variants of the analysis the verdict is the same, with the exceptions."""
    others = [variant for variant in pair.variants if variant.verdict != pair.verdict]
    if not pair.variants or row.n < FEWEST:  # of fewer pairs no variant could say anything else
        return ""
    said = f"The same in {len(pair.variants) - len(others)} of {len(pair.variants)} variants of the analysis"
    exceptions = "; ".join(f"{variant.name}: {variant.verdict}" for variant in others)
    return f"{said}{f' ({exceptions})' if exceptions else ''}."


def _broken(pair: Pair, seeds: int) -> str:
    """At how many seeds each arm's run diverged or failed, where one did."""
    counts = Counter((gap.arm, gap.outcome) for gap in pair.broken)
    said = " and ".join(f"{arm} {outcome} at {count}" for (arm, outcome), count in sorted(counts.items()))
    return f" ({said} of {seeds}, which counts as the worst model known)" if said else ""


def _evidence_in_words(opening: str, values: str, row: Row, num_pairs: int, broken: str) -> str:
    if row.n == 0:
        return f"{opening}: no pair of runs is complete yet."
    family = f" (adjusted for {num_pairs} pairs of arms)" if num_pairs > 1 else ""
    p = f", p {formatting.p_value(row.p_adjusted, '= ')}{family}" if row.p is not None else ""
    interval = None if row.p is None else row.interval  # of the seeds so far it is no part of the answer
    return (
        f"{opening}: {values} {formatting.difference(row.difference, interval)}, "
        f"n = {formatting.plural(row.n, 'seed')}{broken}{p}."
    )


def _caveats(pair: Pair, row: Row) -> Iterable[str]:
    for gap in pair.missing:
        reason = f" ({gap.reason})" if gap.reason else ""
        yield f"Seed {gap.seed} is missing: {gap.arm} {'was ' * (gap.outcome == 'lost')}{gap.outcome}{reason}."
    if row.fixed_text:
        names, their = " and ".join(row.fixed_text), "its" if len(row.fixed_text) == 1 else "their"
        yield f"The chance of {names} text is not in p and interval: {their} units are too few to show it."
    of_text, by_seeds = row.text_error or 0.0, row.seed_error or 0.0
    if pair.verdict != "undecided" and row.text_degrees and row.text_degrees < FEW_UNITS and of_text > by_seeds:
        yield (
            f"Chance is mostly the held-out text's, of about {row.text_degrees + 1:.0f} units: where they differ by "
            "skewed amounts, an arm is named in up to 11% of studies without a difference."
        )
    stopping = pair.stopping
    if stopping and pair.pending:
        yield f"Seeds are added until it is settled, {stopping.maximum} at the most."
    elif pair.pending:
        yield f"{formatting.plural(pair.pending, 'planned seed')} yet to end."
    elif stopping and stopping.ended_early and row.n:
        yield (
            f"Seeds ended before it was settled, short of the {stopping.maximum} that the rule allowed: it was judged "
            "by those there are."
        )
    elif stopping and pair.verdict != "undecided":
        yield f"Seeds were added until it was settled; the rule allowed {stopping.maximum}."
    if pair.verdict == "undecided" and not pair.pending and not pair.barred:
        needed = what_would_settle(pair, row)
        yield f"{needed[0].upper()}{needed[1:]}."


def time_to_target_in_words(pair: Pair, reached: TimeToTarget, unit: Unit) -> str:
    """``headless reaches 0.412 with 0.62 times vanilla's tokens [0.55, 0.71]``; an end that is open is a dash."""
    bound = {"=": "", "<=": "at most ", ">=": "at least "}[reached.relation or "="]
    ends = ["–" if end is None else f"{end:.2f}" for end in reached.interval or ()]
    interval = f" [{', '.join(ends)}]" if ends else ""
    target, title = formatting.score(reached.target), formatting.UNIT_TITLES[unit]
    return f"{pair.a} reaches {target} with {bound}{reached.ratio:.2f} times {pair.b}'s {title}{interval}"
