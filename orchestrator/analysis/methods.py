"""The paragraph for a paper: what was done, and what the answer speaks of. Every run that failed is in it."""

from collections.abc import Iterator

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.selection import chosen_runs, current_runs
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN, Design, TrainingPhase

RULE = (
    "Differences were taken seed by seed and tested by Student's t over {chance}; equivalence by two one-sided tests "
    "(Schuirmann 1987). Runs that diverged or failed count as the worst model known (Lachin 1999)."
)
BOTH = (
    "two sources of chance, seeds and units of held-out text, with Satterthwaite's degrees of freedom (quasi-F, Clark "
    "1973)"
)


def estimand(design: Design, comparison: Comparison) -> str:
    """What the difference is of, in a sentence."""
    amount = formatting.quantity(design.confirm_amount, design.unit)
    tuned = "as they were set"
    if design.search_budget:
        of = "such budgets" if design.amount == design.confirm_amount else f"budgets of {_budget(design)}"
        tuned = f"tuned with {_spent_on_search(design, comparison)} {of} each"
    return (
        f"The difference is the mean one of {comparison.primary} after {amount} of training, over new seeds "
        f"{_text(comparison)}, between arms {tuned}, each scored as its objective implies, a run that "
        "diverges or fails counting as the worst model known; it holds for this corpus, this search and this budget."
    )


def _budget(design: Design) -> str:
    return formatting.quantity(design.amount, design.unit)


def _spent_on_search(design: Design, comparison: Comparison) -> str:
    """In trial budgets: the search's, but for less than a trial; or what a search that ended before it spent."""
    spent = [arm.search.spent for arm in comparison.arms.values() if arm.search is not None]
    if not spent or min(spent) > design.search_budget - 1:
        return f"{design.search_budget:g}"
    least, most = (f"{value:.2g}" for value in (min(spent), max(spent)))
    return f"{least if least == most else f'{least} to {most}'} of {design.search_budget:g}"


def _text(comparison: Comparison) -> str:
    if not _samples_text(comparison):
        return "on this held-out text"
    fixed = {name for pair in comparison.pairs for name in pair.yardsticks[comparison.primary].fixed_text}
    besides = f" (that of {' and '.join(sorted(fixed))} as it is)" if fixed else ""
    return f"and new held-out text of the same sources{besides}"


def _samples_text(comparison: Comparison) -> bool:
    """Whether the chance of the text is in every pair's interval."""
    return all(pair.yardsticks[comparison.primary].text_error is not None for pair in comparison.pairs)


def methods(history: History, comparison: Comparison) -> str:
    """Some sentences of plain text, from the ledger alone."""
    return " ".join(_sentences(history, comparison))


def _sentences(history: History, comparison: Comparison) -> Iterator[str]:
    design = history.design
    arms = "; ".join(f"{name} ({arm.objective}, {_scorer(history, name)})" for name, arm in design.arms.items())
    yield f"We asked: {design.question.rstrip()} {formatting.plural(len(design.arms), 'arm')} were compared: {arms}."
    if design.search_budget:
        budget = f"{_spent_on_search(design, comparison)} times {_budget(design)}"
        yield f"Each arm was tuned by a search of {budget}: {_counted(comparison, 'search')}."
        yield from _by_hand(history, comparison)
    seeds = f"{design.seeds} paired seeds"
    if design.minimum_seeds is not None:
        seeds = f"{design.minimum_seeds} to {seeds}, until the question was answered (Lan & DeMets 1983)"
    amount = formatting.quantity(design.confirm_amount, design.unit)
    yield f"Its best configuration was trained for {amount} with {seeds}: {_counted(comparison, 'confirm')}."
    for name, arm in comparison.arms.items():
        if arm.confirmed > 1:
            chosen = f"{name} is the best of its {arm.confirmed} confirmed configurations"
            yield f"{chosen}, chosen by the values that are compared: its pairs are exploratory."
    yield from _failures(history, comparison)
    margins = sorted({f"{pair.margin:.2g}" for pair in comparison.pairs if pair.margin})
    margin = f", within a margin of {' and '.join(margins)}" if margins else ""
    yield f"The primary measure was {comparison.primary}{margin}. " + RULE.format(
        chance=BOTH if _samples_text(comparison) else "seeds; the held-out text was taken as it is"
    )
    if comparison.leaves_pairs_out:
        yield f"Each arm was compared with {comparison.control} alone."
    if len(comparison.pairs) > 1:
        yield f"Levels were shared by {len(comparison.pairs)} pairs of arms (Bonferroni)."
    yield estimand(design, comparison)
    if history.study is not None:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(history.study.versions.items()))
        fixed = f"The protocol ({history.study.protocol_digest}) was fixed before the first run"
        if history.extensions:
            fixed = "The study was extended after it had an answer, so that this one is exploratory"
        yield f"{fixed}. Software: {versions}."


def _scorer(history: History, arm: str) -> str:
    runs = [run for run in chosen_runs(history, arm).values() if run.measures and run.measures[-1].scorer]
    return f"scored by {runs[0].measures[-1].scorer}" if runs else "not scored"


def _by_hand(history: History, comparison: Comparison) -> Iterator[str]:
    """What a person had a search try while it went on, and whether that stands for the arm."""
    for name, arm in comparison.arms.items():
        own = [trial.configuration for trial in history.trials_of("search", name) if trial.by_hand]
        if own:
            chosen = ", its best one among them" if arm.configuration in own else ""
            number = formatting.plural(len(own), "configuration")
            yield f"Of {name}'s, {number} {'was' if len(own) == 1 else 'were'} chosen by hand on the way{chosen}."


def _counted(comparison: Comparison, phase: TrainingPhase) -> str:
    """``headless 3 completed, 6 pruned``, arm by arm."""
    said = []
    for name, arm in comparison.arms.items():
        counts = arm.counts[phase]
        outcomes = {"completed": counts.completed, "pruned": counts.pruned, "diverged": counts.diverged}
        outcomes |= {"failed": counts.failed, "lost": counts.lost, "not ended": counts.running}
        listed = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)
        said.append(f"{name} {listed or 'none'}")
    return "; ".join(said)


def _failures(history: History, comparison: Comparison) -> Iterator[str]:
    """Each run of the confirmation that did not come to its end, by name."""
    broken = [trial for trial in current_runs(history) if trial.outcome in ("lost", *BROKEN)]
    for trial in broken:
        reason = f" ({trial.reason})" if trial.reason else ""
        yield f"Seed {trial.seed} of {trial.arm} {'was ' * (trial.outcome == 'lost')}{trial.outcome}{reason}."
    retried = sum(arm.failures["confirm"].retried + arm.failures["search"].retried for arm in comparison.arms.values())
    if retried:
        yield f"{formatting.plural(retried, 'attempt')} failed and went on from a checkpoint."
