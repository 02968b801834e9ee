"""What a study found, as tables."""

from collections.abc import Iterator, Sequence

from orchestrator import formatting
from orchestrator.analysis.comparison import (
    ArmSummary,
    Comparison,
    MetricRow,
    OverTasks,
    Pair,
    Row,
    Summary,
    TaskRow,
    VariesBy,
)
from orchestrator.analysis.wording import time_to_target_in_words
from orchestrator.ledger.history import History
from orchestrator.reporting.glances import FEW, is_few
from orchestrator.reporting.table import Row as Line
from orchestrator.reporting.table import Table
from trainables.config import Config

WORTH_MORE_TUNINGS = 0.1
"""Of a difference's variance: from this share on more fine-tunings of each model are worth their while."""


def arms_table(comparison: Comparison) -> Table:
    """What each arm was set to, how it did on the test split (mean ± standard deviation), what it spent."""
    arms = comparison.arms
    yardsticks = list(next(iter(arms.values())).yardsticks)
    rows = []
    for arm, summary in arms.items():
        confirm = summary.counts["confirm"]
        rows.append(
            [
                arm,
                formatting.settings(summary.configuration or {}, "\n"),
                f"{confirm.completed} of {confirm.planned}",
                *(_mean_and_deviation(summary.yardsticks[name]) for name in yardsticks),
                formatting.quantity(summary.spent_in_all(comparison.unit), comparison.unit),
            ]
        )
    return Table.of(["arm", "best\nconfiguration", "seeds", *yardsticks, "spent"], rows)


def _mean_and_deviation(summary: Summary) -> str:
    deviation = "" if summary.deviation is None else f" ± {summary.deviation:.3f}"
    return formatting.score(summary.mean) + deviation


def comparison_table(comparison: Comparison) -> Table:
    """One row per pair of arms, yardstick and share of the budget."""
    rows, few = [], False
    for pair in comparison.pairs:
        found: list[tuple[str, Row]] = list(pair.yardsticks.items())
        found += [(f"{row.yardstick}\nat {row.share:.0%} of the budget", row) for row in pair.branches]
        for title, row in found:
            rows.append(_comparison_row(pair, title, row))
            few |= is_few(row)
    notes = (FEW,) if few else ()
    return Table(("pair", "yardstick", "n", "difference", "p\n(adjusted)"), tuple(rows), notes=notes)


def _comparison_row(pair: Pair, title: str, row: Row) -> Line:
    exploratory = "exploratory" in (row.role, pair.standing)
    return Line(
        (
            f"{pair.a} –\n{pair.b}",
            f"{title}\n(exploratory)" if exploratory else title,
            str(row.n),
            formatting.difference(row.difference, row.interval, "\n"),
            formatting.p_value(row.p_adjusted),
        ),
        quiet=exploratory,
    )


class TaskPair(Config):
    """One task, as two arms do it."""

    a: str
    b: str
    row: TaskRow


def own_tasks_table(comparison: Comparison) -> Table:
    """A study's own tasks; without a row where it has none."""
    found = [TaskPair(a=pair.a, b=pair.b, row=row) for pair in comparison.pairs for row in pair.tasks]
    over = [f"{pair.a} – {pair.b}: {_over_tasks(own)}" for pair in comparison.pairs if (own := pair.over_tasks)]
    for pair in comparison.pairs:
        reached = pair.tasks_time_to_target.get(comparison.unit)
        if reached is not None and reached.ratio is not None:
            over.append(f"of what is right beyond chance {time_to_target_in_words(pair, reached, comparison.unit)}")
    return tasks_table(found, over)


def _over_tasks(found: OverTasks) -> str:
    """Of several tasks in one number each."""
    middle = ""
    if found.middle_a is not None and found.middle_b is not None:
        middle = (
            f"interquartile means beyond chance {formatting.difference(found.middle_a, found.middle_a_interval)} and "
            f"{formatting.difference(found.middle_b, found.middle_b_interval)}; "
        )
    return f"over {found.tasks} tasks {middle}a run of the first is better with probability {found.improvement:.2f}"


def tasks_table(found: Sequence[TaskPair], over: Sequence[str] = ()) -> Table:
    """Downstream tasks, a row for each and each pair of arms: what is right of their examples. Exploratory. Below it a
    line for each pair, ``over`` all tasks."""
    rows = []
    shows_bags = any(pair.row.bag_a is not None for pair in found)
    bag = ("embeddings\nalone",) if shows_bags else ()
    for pair in found:
        row = pair.row
        title = f"{row.task}, {row.tier}" + (f"\n{len(row.languages)} languages" if len(row.languages) > 1 else "")
        cells = (
            f"{pair.a} –\n{pair.b}",
            title if row.informative else f"{title}\n(uninformative)",
            f"{row.items:,}",
            formatting.score(row.chance),
            f"{formatting.score(row.mean_a)}\n{formatting.score(row.mean_b)}",
            *([_bags(row)] if shows_bags else []),
            formatting.difference(row.difference, row.interval, "\n"),
            formatting.p_value(row.p_adjusted) if row.informative else "–",
        )
        rows.append(Line(cells, quiet=True))
        if row.metric is not None:
            rows.append(_metric_row(pair, row.metric, shows_bags=shows_bags))
    notes = list(over)
    if any(pair.row.metric is not None for pair in found):
        notes.append("rows of a metric have it in place of what is right; their intervals are by the seeds alone")
    if not all(pair.row.informative for pair in found):
        has_controls = any(pair.row.untrained is not None for pair in found)
        bars = "chance, the untrained model and its embeddings alone" if has_controls else "chance"
        notes.append(f"uninformative: no arm is surely above {bars}")
    if shows_bags:
        notes.append("embeddings alone: a probe of the embedding's output, which has seen no other word")
    if edges := list(dict.fromkeys(edge for pair in found for edge in _edges(pair))):
        notes.append(f"the best learning rate of fine-tuning is the grid's first or last: {', '.join(edges)}")
    notes += [_varies_by(pair, pair.row.varies_by) for pair in found if pair.row.varies_by is not None]
    titles = ("pair", "task", "items", "chance", "right", *bag, "difference", "p\n(adjusted)")
    return Table(titles, tuple(rows), notes=tuple(notes))


def _metric_row(pair: TaskPair, metric: MetricRow, *, shows_bags: bool) -> Line:
    cells = (
        f"{pair.a} –\n{pair.b}",
        f"{pair.row.task}, {pair.row.tier}:\n{metric.name}",
        f"{pair.row.items:,}",
        formatting.score(metric.chance),
        f"{formatting.score(metric.mean_a)}\n{formatting.score(metric.mean_b)}",
        *(["–"] if shows_bags else []),
        formatting.difference(metric.difference, metric.interval, "\n"),
        "–",
    )
    return Line(cells, quiet=True)


def _varies_by(pair: TaskPair, found: VariesBy) -> str:
    whole = f"{pair.row.task}, {pair.row.tier}, {pair.a} – {pair.b}: the difference's variance is of"
    parts = (
        f"pretraining seeds to {found.pretraining:.0%}, of examples to {found.items:.0%} and of fine-tuning seeds to "
        f"{found.fine_tuning:.0%}"
    )
    helps = "would help" if found.fine_tuning >= WORTH_MORE_TUNINGS else "would hardly help"
    return f"{whole} {parts}: more fine-tunings of each model {helps}"


def _edges(pair: TaskPair) -> Iterator[str]:
    row = pair.row
    for arm, rate, at_edge in ((pair.a, row.rate_a, row.rate_a_at_edge), (pair.b, row.rate_b, row.rate_b_at_edge)):
        if at_edge and rate is not None:
            yield f"{row.task} by {arm} ({rate:g})"


def _bags(row: TaskRow) -> str:
    return "–" if row.bag_a is None else f"{formatting.score(row.bag_a)}\n{formatting.score(row.bag_b)}"


def search_table(comparison: Comparison) -> Table:
    """How the arms' searches went, and what failed. Exploratory."""
    rows = []
    for arm, summary in comparison.arms.items():
        phases = summary.failures.values()
        counts = [sum(getattr(phase, kind) for phase in phases) for kind in ("diverged", "failed", "lost", "retried")]
        cells = (arm, _best_of_search(summary), *_searched(summary), ", ".join(map(str, counts)))
        rows.append(Line(cells, quiet=True))
    titles = ("median best\nby trial\nbudgets", "trials to\nthe end", "gain by\ntuning", "twice the\nsearch\nis better")
    return Table(("arm", *titles, "diverged,\nfailed,\nlost,\nretried"), tuple(rows))


def _searched(summary: ArmSummary) -> tuple[str, str, str]:
    """Trials that came to the end; the gain over the first configuration; the chance of a better one."""
    search = summary.search
    if search is None:
        return "–", "–", "–"
    part = f"\nat {search.gain_at:.0%}" if search.gain_at is not None and search.gain_at < 1 else ""
    better = "–" if search.better_if_doubled is None else f"{search.better_if_doubled:.0%}"
    by_hand = f"\n{search.by_hand} by hand" if search.by_hand else ""
    return f"{search.completed} of {search.begun}{by_hand}", formatting.difference(search.gain, None) + part, better


def _best_of_search(summary: ArmSummary) -> str:
    curve = summary.tuning
    if curve is None or not curve.spent:
        return "–"
    total = curve.n[-1]
    wanted = sorted({max(1, total // 4), max(1, total // 2), total})
    places = [max(i for i, n in enumerate(curve.n) if n <= most) for most in wanted]
    return ",\n".join(f"{curve.spent[i]:.2g}: {formatting.score(curve.median[i])}" for i in places)


def spending_table(history: History) -> Table:
    """Device time of each arm, search and confirmation: in steps that count, beside them, and lost to failures."""
    assert history.study is not None
    priced, measured = history.study.usd_per_hour is not None, "joules" in history.spending().useful
    titles = ["device time", "useful", "overhead", "lost", "unreported"]
    titles += ["energy"] * measured + ["price"] * priced
    rows = []
    for arm in history.design.arms:
        spending = history.spending(arm=arm)
        parts = [
            spending.useful.get("device_seconds", 0.0),
            spending.overhead_device_seconds,
            spending.lost.get("device_seconds", 0.0),
            spending.unreported_device_seconds,
        ]
        cells = [f"{formatting.duration(part)} {part / (sum(parts) or 1.0):.0%}" for part in parts]
        if measured:
            cells.append(formatting.quantity(spending.useful.get("joules", 0.0), "joules"))
        if priced:
            cells.append(formatting.quantity(spending.total("usd"), "usd"))
        rows.append([arm, *cells])
    return Table.of(titles, rows, numbers=True)


def detectable_in_words(comparison: Comparison) -> str:
    """The smallest differences that the planned seeds would have found, a line a pair; empty before they are known."""
    lines = (
        f"{pair.a} – {pair.b}: the planned seeds would find a difference of {pair.detectable:.2g} on "
        f"{comparison.primary} four times in five, at the deviation observed"
        for pair in comparison.pairs
        if pair.detectable is not None
    )
    return "\n".join(lines)
