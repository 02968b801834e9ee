"""From a study's state to its :class:`Comparison`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, takewhile
from typing import get_args

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
from orchestrator.analysis.floors import below, floors_of
from orchestrator.analysis.held_out_text import evidence_of
from orchestrator.analysis.robustness import variants
from orchestrator.analysis.rows import (
    at_shares,
    branches_of,
    broken,
    deviation,
    final_row,
    holm_adjusted,
    is_steady,
    matched,
    mean,
    missing,
    paired_runs,
)
from orchestrator.analysis.selection import (
    Runs,
    best_of_search,
    chosen_runs,
    confirmed,
    final_values,
    values_by_language,
)
from orchestrator.analysis.sensitivity import is_sensitive, margin_of
from orchestrator.analysis.statistics.planning import Settling, minimum_detectable_effect, what_would_settle
from orchestrator.analysis.statistics.rule import FEWEST_EQUIVALENT, Decision, Rule, Verdict, Withheld
from orchestrator.analysis.statistics.time_to_target import TimeToTarget
from orchestrator.analysis.tasks import over_tasks, task_rows
from orchestrator.analysis.worth import Pairs, pairs_of, up_to
from orchestrator.config.confirmation import ALPHA, TASKS
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN, TRAINING_PHASES, Design, Outcome, TrainingPhase
from trainables.training.config import Unit
from trainables.training.state import Spent

MATCHED_UNITS: tuple[Unit, ...] = ("tokens", "flops", "device_seconds")

_Decisions = dict[tuple[str, str], Decision]


def compare(history: History) -> Comparison:
    """Compare the arms on what the ledger holds so far; see :mod:`orchestrator.analysis.comparison` for the rules."""
    design = history.design
    runs = {arm: chosen_runs(history, arm) for arm in design.arms}
    arms = in_order(design)
    decisions = _decisions(history, runs, arms)
    pairs = [_pair(history, names, runs, decision, len(decisions)) for names, decision in decisions.items()]
    summaries = {arm: _describe_arm(history, arm, runs[arm]) for arm in arms}
    pairs = list(_judged(history, _adjusted(pairs, design.yardsticks.primary), decisions, runs, summaries))
    return Comparison(
        unit=design.unit,
        amount=design.confirm_amount,
        primary=design.yardsticks.primary,
        alpha=ALPHA,
        arms=summaries,
        pairs=tuple(pairs),
        not_compared=tuple((a, b) for a, b in combinations(arms, 2) if design.arms[a].task != design.arms[b].task),
        extensions=tuple(record.changes for record in history.extensions),
        control=design.control,
    )


def in_order(design: Design) -> list[str]:
    """The arms as they are compared: headless ones first, and otherwise in the study's own order."""
    return sorted(design.arms, key=lambda arm: not design.arms[arm].headless)


def answered(history: History) -> bool:
    """Whether adaptive stopping has an answer for every pair of arms, so that no more seeds are wanted."""
    runs = {arm: chosen_runs(history, arm) for arm in history.design.arms}
    decisions = _decisions(history, runs, list(runs))
    return all(decision.verdict != "continue" for decision in decisions.values())


def rule_of(design: Design, family_size: int, margin: float = 0.0) -> Rule:
    """The rule of a study's verdicts, for so many pairs of arms; ``margin`` in the unit of the primary yardstick, 0:
    none."""
    return Rule(design.minimum_seeds or design.seeds, design.seeds, margin, family_size=max(1, family_size))


def _decisions(history: History, runs: Mapping[str, Runs], arms: Sequence[str]) -> _Decisions:
    """What the rule says of every two arms of one task, or of each with the control."""
    design = history.design
    pairs = [
        (a, b)
        for a, b in combinations(arms, 2)
        if design.arms[a].task == design.arms[b].task and design.control in (None, a, b)
    ]
    rule = rule_of(design, len(pairs))
    return {names: _decision(history, rule, names, runs) for names in pairs}


def _decision(history: History, rule: Rule, names: tuple[str, str], by_arm: Mapping[str, Runs]) -> Decision:
    primary = history.design.yardsticks.primary
    a, b = _ended(history, *(by_arm[name] for name in names))
    pairs = pairs_of(history, primary, a, b)

    def first(n: int) -> tuple[Runs, Runs]:
        return _first(n, pairs, a, b)

    return rule.decide(
        lambda n: evidence_of(history, primary, pairs_of(history, primary, *first(n))),
        len(pairs),
        ended=len(a) >= history.planned_seeds,
        withheld=lambda n, verdict, level: _withheld(history, names, verdict, level, *first(n)),
        margin=lambda n: margin_of(history, first(n)),
    )


def _ended(history: History, a: Runs, b: Runs) -> tuple[Runs, Runs]:
    """The runs of the seeds at which both have ended."""
    design = history.design
    ended = {seed for seed in a.keys() & b.keys() if a[seed].outcome is not None and b[seed].outcome is not None}
    if design.minimum_seeds is not None:
        # Looks are at the protocol's seeds in their order: a run that ends early must not be looked at before its turn,
        # nor one beyond a seed that somebody took out.
        planned = range(design.seed + 1, design.seed + 1 + history.planned_seeds)
        ended = set(takewhile(ended.__contains__, planned))
    one, other = ({seed: run for seed, run in runs.items() if seed in ended} for runs in (a, b))
    return one, other


def _withheld(
    history: History, names: tuple[str, str], verdict: Verdict, level: float, a: Runs, b: Runs
) -> Withheld | None:
    """Why what the rule finds of these runs is no verdict."""
    primary = history.design.yardsticks.primary
    pairs = pairs_of(history, primary, a, b)
    counts = [sum(runs[seed].outcome in BROKEN for seed in pairs) for runs in (a, b)]
    if verdict == "equivalent":
        told = sum(not (a[seed].outcome in BROKEN and b[seed].outcome in BROKEN) for seed in pairs)
        mostly = 2 * max(counts) > len(pairs) or counts[0] != counts[1] or told < FEWEST_EQUIVALENT
    else:
        mostly = 2 * counts[(verdict == "b") != history.design.lower_is_better(primary)] > len(pairs)
    if mostly:
        return "broken"
    if verdict == "equivalent" and not is_sensitive(history, (a, b), level):
        return "sensitivity"
    both = verdict == "equivalent"
    return "floor" if below(history, names, pairs, level=level, both=both).keys() - {"bigram"} else None


def settled_runs(history: History) -> dict[tuple[str, str], tuple[Runs, Runs]]:
    """The runs that the numbers of each pair of arms rest on."""
    runs = {arm: chosen_runs(history, arm) for arm in history.design.arms}
    decisions = _decisions(history, runs, in_order(history.design))
    return {(a, b): _settled(history, runs[a], runs[b], decision) for (a, b), decision in decisions.items()}


def _settled(history: History, a: Runs, b: Runs, decision: Decision) -> tuple[Runs, Runs]:
    """The runs that a pair's numbers rest on, as its decision does."""
    a, b = _ended(history, a, b)
    return _first(decision.evidence.n, pairs_of(history, history.design.yardsticks.primary, a, b), a, b)


def _first(n: int, pairs: Pairs, a: Runs, b: Runs) -> tuple[Runs, Runs]:
    """The runs up to the seed of the n-th pair."""
    last = list(pairs)[n - 1] if n else -1
    return up_to(last, a), up_to(last, b)


def _pair(
    history: History, names: tuple[str, str], runs: Mapping[str, Runs], decision: Decision, num_pairs: int
) -> Pair:
    """All of a pair but its adjusted p-values and its verdict."""
    (a, b), design = names, history.design
    primary = design.yardsticks.primary
    runs_a, runs_b = _settled(history, runs[a], runs[b], decision)
    pairs, branches = pairs_of(history, primary, runs_a, runs_b), branches_of(history, runs_a, runs_b)
    of_tasks = pairs_of(history, TASKS, runs_a, runs_b)
    # Of a fixed number the runs that broke after the last pair are told too.
    ended = _ended(history, runs[a], runs[b]) if design.minimum_seeds is None else (runs_a, runs_b)
    both_ended = paired_runs(*ended, ("completed", *BROKEN), primary)
    margin, steady = margin_of(history, (runs_a, runs_b)), is_steady((runs_a, runs_b))
    rule = rule_of(design, num_pairs, margin)
    rows = {name: final_row(history, name, pairs_of(history, name, runs_a, runs_b)) for name in design.yardsticks.names}
    p = None if decision.p is None else float(decision.evidence.p())
    # With a fixed number, the interval of the seeds so far is an indication.
    interval = decision.interval or (rows[primary].interval if design.minimum_seeds is None else None)
    found = {"interval": interval, "p": p, "p_adjusted": decision.p}
    rows[primary] = rows[primary].model_copy(update=found)
    # What is withheld for a floor is so by the tests of its own look.
    at_look = decision.withheld == "floor"
    gate = float(replace(rule, maximum=decision.evidence.n).gate_levels[-1]) if at_look else ALPHA
    floors = below(history, names, pairs, level=gate)
    # Of a pair that is barred the variants would be too.
    told = decision.verdict != "continue" and decision.withheld is None and not floors.keys() - {"bigram"}
    looks = replace(rule, maximum=decision.evidence.n) if decision.ended_early else rule
    chosen = any(len(confirmed(history, arm)) > 1 for arm in names)
    minimum = design.minimum_seeds

    def race(yardstick: str, target: float | None) -> dict[Unit, TimeToTarget | None]:
        known = history.trials_of("anytime"), design.lower_is_better(yardstick)
        return {
            unit: describe_time_to_target(both_ended, unit, yardstick, target, *known)
            if steady or unit != "device_seconds"
            else None
            for unit in MATCHED_UNITS
        }

    return Pair(
        a=a,
        b=b,
        task=design.arms[a].task,
        standing="exploratory" if chosen or history.extensions else "confirmatory",
        verdict="undecided",
        margin=margin or None,
        more_seeds=None,
        more_text=None,
        detectable=None,
        pending=0,
        missing=missing(runs[a], runs[b], primary, pairs),
        broken=broken(runs_a, runs_b, pairs),
        withheld=decision.withheld,
        steady=steady,
        below=floors,
        stopping=None
        if minimum is None
        else comparison.Stopping(minimum=minimum, maximum=design.seeds, ended_early=decision.ended_early),
        yardsticks=rows,
        matched={
            unit: matched(history, *((runs_a, runs_b) if pairs else (runs[a], runs[b])), unit) for unit in MATCHED_UNITS
        },
        time_to_target=race(primary, design.yardsticks.target),
        tasks_time_to_target=race(TASKS, None) if TASKS in design.yardsticks.names and primary != TASKS else {},
        branches=tuple(at_shares(history, branches)),
        variants=variants(history, names, (runs_a, runs_b), branches, looks) if told else (),
        tasks=tuple(task_rows(history, names, of_tasks)),
        over_tasks=over_tasks(history, of_tasks),
    )


def _adjusted(pairs: Sequence[Pair], primary: str) -> list[Pair]:
    """Adjusts p over all pairs of arms, for all yardsticks but the primary one together, for the branches, and for the
    tasks."""
    others = [name for name in (pairs[0].yardsticks if pairs else ()) if name != primary]
    exploratory = iter(holm_adjusted([pair.yardsticks[name] for pair in pairs for name in others]))
    branches = iter(holm_adjusted([row for pair in pairs for row in pair.branches]))
    tasks = iter(holm_adjusted([row for pair in pairs for row in pair.tasks]))
    return [
        pair.model_copy(
            update={
                "yardsticks": pair.yardsticks | {name: next(exploratory) for name in others},
                "branches": tuple(next(branches) for _ in pair.branches),
                "tasks": tuple(next(tasks) for _ in pair.tasks),
            }
        )
        for pair in pairs
    ]


def _judged(
    history: History,
    pairs: Sequence[Pair],
    decisions: _Decisions,
    runs: Mapping[str, Runs],
    arms: Mapping[str, comparison.ArmSummary],
) -> Iterator[Pair]:
    primary = history.design.yardsticks.primary
    for pair, decision in zip(pairs, decisions.values(), strict=True):
        if decision.verdict in ("a", "b", "equivalent") and not ended_inside(arms, pair):
            pair = pair.model_copy(update={"withheld": "boundary", "variants": ()})
        rule = rule_of(history.design, len(pairs), pair.margin or 0.0)
        row = pair.yardsticks[primary]
        known = pairs_of(history, primary, runs[pair.a], runs[pair.b])
        ended = len(_ended(history, runs[pair.a], runs[pair.b])[0])
        verdict = "undecided" if pair.withheld else _verdict(pair, row, decision)
        needed = Settling(None if pair.barred and verdict == "undecided" else 0, None)
        if verdict == "undecided" and not pair.barred:
            needed = what_would_settle(rule, evidence_of(history, primary, known))
        effect = None
        if row.deviation:
            text = (row.text_error or 0.0, row.text_degrees or math.inf)
            effect = minimum_detectable_effect(rule, row.deviation, *text)
        yield pair.model_copy(
            update={
                "pending": max(0, history.planned_seeds - ended) if decision.verdict == "continue" else 0,
                "verdict": verdict,
                "more_seeds": needed.seeds,
                "more_text": needed.text,
                "detectable": effect,
            }
        )


def _verdict(pair: Pair, row: Row, decision: Decision) -> str:
    if decision.verdict in ("a", "b"):
        return pair.a if (decision.verdict == "a") != row.lower_is_better else pair.b
    return "equivalent" if decision.verdict == "equivalent" else "undecided"


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
            searched, best_of_search(history, arm), primary, design.lower_is_better(primary), design.margin or 0.0
        ),
        boundaries=boundaries_of(history, arm, best.configuration if best else None),
    )


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
    scores = list(final_values(runs, yardstick).values())
    languages = {name: float(np.mean(found)) for name, found in values_by_language(runs, yardstick).items()}
    return comparison.Summary(n=len(scores), mean=mean(scores), deviation=deviation(scores), languages=languages)


def _total_spent(history: History, phase: TrainingPhase, arm: str) -> Spent:
    if phase == "anytime":  # what a branch has from its confirmation run is that run's
        return dict(sorted(history.spending(phase, arm).useful.items()))
    units = {unit for trial in history.trials_of(phase, arm) for unit in trial.spent}
    return {unit: history.spent(phase, arm, unit) for unit in sorted(units)}
