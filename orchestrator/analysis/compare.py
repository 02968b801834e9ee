"""From a study's state to its :class:`Comparison`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product, takewhile
from typing import TypeVar, get_args

import numpy as np

from orchestrator.analysis import comparison
from orchestrator.analysis.boundaries import boundaries_of, ended_inside
from orchestrator.analysis.comparison import Comparison, Pair, Row
from orchestrator.analysis.exploratory import (
    describe_failures,
    describe_search,
    describe_time_to_target,
    describe_tuning,
)
from orchestrator.analysis.floors import below_floor, floors_of
from orchestrator.analysis.held_out_text import evidence_of, of_runs
from orchestrator.analysis.selection import Runs, best_of_search, chosen_runs, confirmed, final_values, worth
from orchestrator.analysis.statistics.evidence import Evidence, of_seeds
from orchestrator.analysis.statistics.holm import holm
from orchestrator.analysis.statistics.planning import Settling, minimum_detectable_effect, what_would_settle
from orchestrator.analysis.statistics.rule import FEWEST, Decision, Rule
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TRAINING_PHASES, Design, Outcome, TrainingPhase
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit
from trainables.training.state import Spent

MATCHED_UNITS: tuple[Unit, ...] = ("tokens", "flops", "device_seconds")
SAME_SPENDING = 0.99  # runs have spent the same where the least is this share of the most: clocks are noisy

_BROKEN: tuple[Outcome, ...] = ("diverged", "failed")

_AnyRow = TypeVar("_AnyRow", bound=Row)
_Decisions = dict[tuple[str, str], Decision]


def compare(history: History) -> Comparison:
    """Compare the arms on what the ledger holds so far; see :mod:`orchestrator.analysis.comparison` for the rules."""
    design = history.design
    runs = {arm: chosen_runs(history, arm) for arm in design.arms}
    # sorted() is stable: headless arms come first, and otherwise the study's own order holds.
    arms = sorted(design.arms, key=lambda arm: not design.arms[arm].headless)
    decisions = _decisions(history, runs, arms)
    pairs = [_pair(history, (a, b), runs, decision) for (a, b), decision in decisions.items()]
    summaries = {arm: _describe_arm(history, arm, runs[arm]) for arm in arms}
    pairs = _judged(history, _adjusted(pairs, design.yardsticks.primary), decisions, runs, summaries)
    return Comparison(
        unit=design.unit,
        amount=design.confirm_amount,
        primary=design.yardsticks.primary,
        margin=design.margin,
        alpha=ALPHA,
        arms=summaries,
        pairs=tuple(pairs),
        not_compared=tuple((a, b) for a, b in combinations(arms, 2) if (a, b) not in decisions),
        extensions=tuple(record.changes for record in history.extensions),
    )


def answered(history: History) -> bool:
    """Whether adaptive stopping has an answer for every pair of arms, so that no more seeds are wanted."""
    runs = {arm: chosen_runs(history, arm) for arm in history.design.arms}
    decisions = _decisions(history, runs, list(runs))
    return all(decision.verdict != "continue" for decision in decisions.values())


def _rule(design: Design, family_size: int) -> Rule:
    return Rule(design.minimum_seeds or design.seeds, design.seeds, design.margin, family_size=max(1, family_size))


def _decisions(history: History, runs: Mapping[str, Runs], arms: Sequence[str]) -> _Decisions:
    """What the rule says of every two arms of one task."""
    design = history.design
    pairs = [(a, b) for a, b in combinations(arms, 2) if design.arms[a].task == design.arms[b].task]
    rule = _rule(design, len(pairs))
    return {(a, b): _decision(history, rule, runs[a], runs[b]) for a, b in pairs}


def _decision(history: History, rule: Rule, a: Runs, b: Runs) -> Decision:
    design = history.design
    ended = {seed for seed in a.keys() & b.keys() if a[seed].outcome is not None and b[seed].outcome is not None}
    if design.minimum_seeds is not None:
        # Looks are at the protocol's seeds in their order: a run that ends early must not be looked at before its turn,
        # nor one beyond a seed that somebody took out.
        seeds = range(design.seed + 1, design.seed + 1 + rule.maximum)
        ended = set(takewhile(ended.__contains__, seeds))
    primary = design.yardsticks.primary
    values = [{s: v for s, v in worth(history, runs, primary).items() if s in ended} for runs in (a, b)]
    all_ended = len(ended) >= min(rule.maximum, history.planned_seeds)
    evidence = evidence_of(history, primary, a, b, *values)
    return rule.decide(evidence, len(values[0].keys() & values[1].keys()), ended=all_ended)


def _settled(history: History, a: Runs, b: Runs, decision: Decision) -> tuple[Runs, Runs]:
    """The runs that a pair's numbers rest on: all, or those up to the look that settled it."""
    design = history.design
    if design.minimum_seeds is None or decision.verdict in ("continue", "undecided"):
        return a, b
    primary = design.yardsticks.primary
    last = sorted(worth(history, a, primary).keys() & worth(history, b, primary).keys())[decision.evidence.n - 1]
    one, other = ({seed: run for seed, run in runs.items() if seed <= last} for runs in (a, b))
    return one, other


def _pair(history: History, names: tuple[str, str], runs: Mapping[str, Runs], decision: Decision) -> Pair:
    """All of a pair but its adjusted p-values and its verdict."""
    (a, b), design = names, history.design
    primary = design.yardsticks.primary
    runs_a, runs_b = _settled(history, runs[a], runs[b], decision)
    both_ended = _paired(runs_a, runs_b, ("completed", *_BROKEN), primary)
    rows = {name: _final_row(history, name, runs_a, runs_b) for name in design.yardsticks.names}
    p = None if decision.p is None else float(decision.evidence.p())
    # With a fixed number, the interval of the seeds so far is an indication.
    interval = decision.interval or (rows[primary].interval if design.minimum_seeds is None else None)
    found = {"interval": interval, "p": p, "p_adjusted": decision.p}
    rows[primary] = rows[primary].model_copy(update=found)
    chosen = any(len(confirmed(history, arm)) > 1 for arm in names)
    minimum = design.minimum_seeds
    return Pair(
        a=a,
        b=b,
        task=design.arms[a].task,
        standing="exploratory" if chosen or history.extensions else "confirmatory",
        verdict="undecided",
        more_seeds=None,
        more_text=None,
        detectable=None,
        pending=0,
        missing=_missing(history, runs_a, primary) + _missing(history, runs_b, primary),
        untrained=_untrained(history, runs_a, primary) + _untrained(history, runs_b, primary),
        stopping=None if minimum is None else comparison.Stopping(minimum=minimum, maximum=design.seeds),
        yardsticks=rows,
        matched={unit: _matched(history, runs_a, runs_b, unit) for unit in MATCHED_UNITS},
        time_to_target={
            unit: describe_time_to_target(
                both_ended, unit, primary, design.yardsticks.target, design.lower_is_better(primary)
            )
            for unit in MATCHED_UNITS
        },
        branches=_at_shares(history, runs_a, runs_b),
    )


def _differences(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, ...]:
    return tuple(a[seed] - b[seed] for seed in sorted(a.keys() & b.keys()))


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return float(np.mean(values)) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _final_row(history: History, yardstick: str, a: Runs, b: Runs) -> Row:
    """Of the runs that are worth something."""
    values = (worth(history, runs, yardstick) for runs in (a, b))
    return _row(history.design, yardstick, of_runs(history, yardstick, a, b), *values)


def _row(design: Design, yardstick: str, found: Evidence, a: Mapping[int, float], b: Mapping[int, float]) -> Row:
    differences, seeds = _differences(a, b), a.keys() & b.keys()
    return Row(
        role="primary" if yardstick == design.yardsticks.primary else "exploratory",
        lower_is_better=design.lower_is_better(yardstick),
        n=len(differences),
        mean_a=_mean(a[seed] for seed in seeds),
        mean_b=_mean(b[seed] for seed in seeds),
        difference=_mean(differences),
        deviation=_deviation(differences),
        seed_error=float(found.seed_variance) ** 0.5 if found.n > 1 else None,
        text_error=float(found.text_variance) ** 0.5 if np.isfinite(found.text_degrees) else None,
        interval=found.interval(ALPHA) if found.n > 1 else None,
        p=float(found.p()) if found.n >= FEWEST else None,
        p_adjusted=None,
    )


def _at_shares(history: History, a: Runs, b: Runs) -> tuple[comparison.BranchRow, ...]:
    """The yardsticks where the branches of these runs ended, by share of the budget, ascending."""
    design = history.design
    branches: dict[float, tuple[Runs, Runs]] = defaultdict(lambda: ({}, {}))
    for trial in history.trials_of("anytime"):
        for side, runs in enumerate((a, b)):
            trunk = runs.get(trial.seed)
            same = trunk is not None and (trunk.arm, trunk.number) == (trial.arm, trial.number)
            if same and trial.share is not None:
                branches[trial.share][side][trial.seed] = trial
    return tuple(
        comparison.BranchRow(
            **_final_row(history, name, *both).model_dump() | {"role": "exploratory"},
            share=share,
            yardstick=name,
            missing=tuple(gap for runs in both for gap in _missing(history, runs, name)),
        )
        for (share, both), name in product(sorted(branches.items()), design.yardsticks.names)
    )


def _missing(history: History, runs: Runs, yardstick: str) -> tuple[comparison.Gap, ...]:
    """The runs that ended without being worth anything."""
    values = worth(history, runs, yardstick)
    return tuple(_gap(run) for seed, run in sorted(runs.items()) if run.outcome is not None and seed not in values)


def _untrained(history: History, runs: Runs, yardstick: str) -> tuple[comparison.Gap, ...]:
    """The runs that are worth what an untrained model is."""
    broken = worth(history, runs, yardstick).keys() - final_values(runs, yardstick).keys()
    return tuple(_gap(runs[seed]) for seed in sorted(broken))


def _gap(run: TrialHistory) -> comparison.Gap:
    assert run.outcome is not None
    return comparison.Gap(seed=run.seed, arm=run.arm, outcome=run.outcome, reason=run.reason)


def _matched(history: History, a: Runs, b: Runs, unit: Unit) -> comparison.Matched:
    """The primary yardstick at the greatest share of their schedules that all paired runs have reached."""
    design, primary = history.design, history.design.yardsticks.primary
    completed = _paired(a, b, ("completed",), primary)
    paired = completed or _paired(a, b, ("completed", None), primary)
    curves = {
        (run.arm, seed): np.array(
            [
                (measure.progress, measure.spent[unit], measure.yardsticks[primary].overall)
                for measure in run.evaluations
                if primary in measure.yardsticks
            ]
        )
        for seed, both in paired.items()
        for run in both
    }
    progress = min((float(curve[-1, 0]) for curve in curves.values()), default=0.0)
    spent = [float(np.interp(progress, curve[:, 0], curve[:, 1])) for curve in curves.values()]
    # Progress is spending of the budget over the budget, so that of it all have spent the same by then.
    same = bool(spent) and (unit == design.unit or min(spent) >= SAME_SPENDING * max(spent))
    # There is no point to show before the first pair, nor where a run was first evaluated only beyond it.
    if not same or any(progress < curve[0, 0] for curve in curves.values()):
        nothing = dict.fromkeys(("spent", "progress", "mean_a", "mean_b", "difference", "interval"))
        return comparison.Matched(n=0, annealed=False, **nothing)
    at = {key: float(np.interp(progress, curve[:, 0], curve[:, 2])) for key, curve in curves.items()}
    values = [{seed: at[run.arm, seed] for seed, run in runs.items() if (run.arm, seed) in at} for runs in (a, b)]
    annealed = bool(completed)
    found = of_runs(history, primary, a, b) if annealed else of_seeds(_differences(*values))
    row = _row(design, primary, found, *values)
    shown = row.model_dump(include={"n", "mean_a", "mean_b", "difference"})
    interval = row.interval if annealed else None
    return comparison.Matched(**shown, interval=interval, spent=min(spent), progress=progress, annealed=annealed)


def _paired(
    a: Runs, b: Runs, outcomes: tuple[Outcome | None, ...], primary: str
) -> dict[int, tuple[TrialHistory, TrialHistory]]:
    """The seeds at which both arms' runs have one of the outcomes and, unless they broke, were evaluated."""
    both = {seed: (a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())}
    return {
        seed: pair
        for seed, pair in both.items()
        if all(run.outcome in outcomes and (run.outcome in _BROKEN or run.score(primary) is not None) for run in pair)
    }


def _adjusted(pairs: Sequence[Pair], primary: str) -> list[Pair]:
    """Adjusts p over all pairs of arms, for all yardsticks but the primary one together, and for the branches."""
    others = [name for name in (pairs[0].yardsticks if pairs else ()) if name != primary]
    exploratory = iter(_holm([pair.yardsticks[name] for pair in pairs for name in others]))
    branches = iter(_holm([row for pair in pairs for row in pair.branches]))
    return [
        pair.model_copy(
            update={
                "yardsticks": pair.yardsticks | {name: next(exploratory) for name in others},
                "branches": tuple(next(branches) for _ in pair.branches),
            }
        )
        for pair in pairs
    ]


def _holm(rows: Sequence[_AnyRow]) -> list[_AnyRow]:
    """A pair without a p-value yet keeps its place in the family, as the weakest."""
    adjusted = holm([1.0 if row.p is None else row.p for row in rows])
    return [
        row.model_copy(update={"p_adjusted": None if row.p is None else p})
        for row, p in zip(rows, adjusted, strict=True)
    ]


def _judged(
    history: History,
    pairs: Sequence[Pair],
    decisions: _Decisions,
    runs: Mapping[str, Runs],
    arms: Mapping[str, comparison.ArmSummary],
) -> list[Pair]:
    design, judged = history.design, []
    primary, rule = design.yardsticks.primary, _rule(design, len(pairs))
    for pair, decision in zip(pairs, decisions.values(), strict=True):
        row = pair.yardsticks[primary]
        found = of_runs(history, primary, runs[pair.a], runs[pair.b])
        ended = found.n + len({gap.seed for gap in pair.missing})
        pending = 0 if decision.verdict != "continue" else max(0, history.planned_seeds - ended)
        learned = not all(below_floor(arms[arm], "unigram") for arm in (pair.a, pair.b))
        may_be_judged = learned and ended_inside(arms, pair)
        verdict = _verdict(pair, row, decision) if may_be_judged else "undecided"
        needed = what_would_settle(rule, found) if verdict == "undecided" and may_be_judged else Settling(0, None)
        judged.append(
            pair.model_copy(
                update={
                    "pending": pending,
                    "verdict": verdict,
                    "more_seeds": needed.seeds,
                    "more_text": needed.text,
                    "detectable": minimum_detectable_effect(rule, row.deviation, row.text_error or 0.0)
                    if row.deviation
                    else None,
                }
            )
        )
    return judged


def _verdict(pair: Pair, row: Row, decision: Decision) -> str:
    if decision.verdict in ("a", "b"):
        return pair.a if (decision.verdict == "a") != row.lower_is_better else pair.b
    differ = len({sum(gap.arm == arm for gap in pair.untrained) for arm in (pair.a, pair.b)}) > 1
    return "equivalent" if decision.verdict == "equivalent" and not differ else "undecided"


def _describe_arm(history: History, arm: str, runs: Runs) -> comparison.ArmSummary:
    design, searched = history.design, history.trials_of("search", arm)
    primary = design.yardsticks.primary
    best = next(iter(runs.values()), None) or best_of_search(history, arm)
    completed = [run for run in runs.values() if run.outcome == "completed"]
    return comparison.ArmSummary(
        **dict(design.arms[arm]),
        configuration=best.configuration if best else None,
        confirmed=len(confirmed(history, arm)),
        counts={phase: _count(history, phase, arm) for phase in TRAINING_PHASES},
        failures={phase: describe_failures(history.trials_of(phase, arm)) for phase in TRAINING_PHASES},
        yardsticks={name: _summary(runs, name) for name in design.yardsticks.names},
        spent={phase: _total_spent(history, phase, arm) for phase in TRAINING_PHASES},
        tuning=describe_tuning(searched, primary, design.lower_is_better(primary)),
        built=tuple(dict.fromkeys(built for run in completed for built in run.built)),
        a_run={
            unit: float(np.mean([run.spent.get(unit, 0.0) for run in completed])) for unit in MATCHED_UNITS if completed
        },
        floors=dict(floors_of(history, arm, runs)),
        search=describe_search(
            searched, best_of_search(history, arm), primary, design.lower_is_better(primary), design.margin
        ),
        boundaries=boundaries_of(history, arm, best.configuration if best else None),
    )


def _mean_spent(runs: Sequence[TrialHistory]) -> dict[Unit, float]:
    return {unit: float(np.mean([run.spent.get(unit, 0.0) for run in runs])) for unit in MATCHED_UNITS if runs}


def _count(history: History, phase: TrainingPhase, arm: str) -> comparison.Counts:
    trials, by_configuration = history.trials_of(phase, arm), confirmed(history, arm)
    if phase != "search":  # a branch has its run's number
        numbers = {run.number for runs in by_configuration for run in runs.values()}
        trials = [trial for trial in trials if trial.number in numbers]
    planned = len(trials)
    if phase == "confirm" and history.phases.get("confirm") != "end":
        planned = history.planned_seeds * max(1, len(by_configuration))
    outcomes = [trial.outcome for trial in trials]
    return comparison.Counts(
        planned=planned,
        running=outcomes.count(None),
        **{outcome: outcomes.count(outcome) for outcome in get_args(Outcome)},
    )


def _summary(runs: Runs, yardstick: str) -> comparison.Summary:
    values = final_values(runs, yardstick)
    by_language: dict[str, list[float]] = defaultdict(list)
    for seed in values:
        last = next(m for m in reversed(runs[seed].measures) if yardstick in m.yardsticks)
        for language, value in last.yardsticks[yardstick].languages.items():
            by_language[language].append(value)
    scores = list(values.values())
    languages = {language: float(np.mean(found)) for language, found in sorted(by_language.items())}
    return comparison.Summary(n=len(scores), mean=_mean(scores), deviation=_deviation(scores), languages=languages)


def _total_spent(history: History, phase: TrainingPhase, arm: str) -> Spent:
    if phase == "anytime":  # what a branch has from its confirmation run is that run's
        return dict(sorted(history.spending(phase, arm).useful.items()))
    units = {unit for trial in history.trials_of(phase, arm) for unit in trial.spent}
    return {unit: history.spent(phase, arm, unit) for unit in sorted(units)}
