"""The comparison: what the confirm phase says about every two arms, by rules fixed beforehand.

A yardstick is compared at the end of the confirm runs, whose budgets are equal, seed by seed; a greater value
is better, or a smaller one where the study's record in the ledger lists the yardstick as ``lower_is_better``.
Arms are compared only where their task is the same: recovering a masked token, which sees both sides of it, and
predicting the next one are different tasks, and no yardstick means the same in both.

Where the confirm phase ran several configurations of an arm, the arm's value at a seed is that of *one* of
them: the one with the most completed seeds and, among those, the best mean of the primary yardstick. That choice is
made by the values that the test then sees, so a pair of such an arm is ``exploratory``, as is every pair of a study
that was extended: its verdict is one for a next study to confirm.

The verdict on a pair of arms is that of the first rule to apply:

1. ``undecided`` while a planned seed is yet to end, or with fewer than two complete pairs. To look early, and
   to stop when the numbers please, would find winners where there are none.
2. ``equivalent`` where two one-sided t-tests at 5% find the difference within the margin: a difference too
   small to matter is no win, however sure it is.
3. The *name of the arm* with the better mean, where the permutation p-value of the primary yardstick,
   adjusted by Holm's method over all pairs of arms, is at most 5%.
4. ``undecided``, with the number of further seeds it would take; with fewer than two complete pairs, the least at
   which an arm can win.

A seed at which either arm's run failed or diverged is no pair: it is missing, and listed.

Where the study's record says ``stopping: {minimum}``, seeds are added until the question is answered, ``seeds`` at
the most, by the rules of :mod:`orchestrator.analysis.statistics.sequential`: a pair of arms is settled by its first
look that has a verdict, and its numbers are those of the seeds up to there, in their order; what was trained beyond,
for another pair's sake, is not in them. Rules 2 to 4 hold with the boundaries and the p-value that such looks need,
and until a pair is settled it has neither p nor interval. :func:`answered` says when to stop.

Only the primary yardstick was named beforehand, with margin, seeds and stopping rule. All others are exploratory,
as are ``matched``, ``anytime``, ``time_to_target``, ``tuning`` and ``ranks``: they may suggest a question, and answer
none. Their p-values and intervals are those of a fixed number of pairs, also where stopping was adaptive.

:func:`compare` returns JSON values (None where something is not there yet)::

    unit, amount            the binding budget of a trial
    primary, margin, alpha  the yardstick that decides, the margin of equivalence, the level of the tests
    arms: ARM:              objective, task, headless,
                            configuration (the chosen one of confirm; before, the best of search),
                            confirmed (configurations that confirm has begun: beyond one, the best is chosen),
                            counts: {search, confirm, anytime}: {planned, running, completed, pruned, diverged, failed}
                            (of the present budget; ``planned`` is what has begun, but of a confirm that is not over:
                            a search plans a budget, not a number, and a confirm may end with its answer, or by a cap),
                            failures: {search, confirm, anytime}: {diverged, failed, retried},
                            yardsticks: NAME: {n, mean, deviation, languages: {LANGUAGE: mean}} of confirm,
                            spent: {search, confirm, anytime}: {UNIT: total}
    pairs: [                one for every two arms of one task, a headless arm first:
        a, b, task, verdict, more_seeds (beyond the n so far; None: no practical number; before two pairs: the
                    least at which an arm can win),
        role (confirmatory; exploratory where a configuration was chosen or the study extended),
        detectable (the smallest true difference that the planned seeds would name with a chance of 80%, at the
                    deviation observed; None before two pairs, or where no number of them could),
        pending (planned seeds yet to end; 0 once settled), missing: [{seed, arm, outcome, reason}],
        stopping: {minimum, maximum} of pairs, or None
        yardsticks: NAME:   {role (primary, exploratory), lower_is_better, n, mean_a, mean_b,
                             difference (a - b), deviation (of the paired differences),
                             interval (95%: bootstrap; of the primary one after adaptive stopping, see there), p,
                             equivalence (90% interval, to lie within the margin; None under adaptive stopping),
                             p_adjusted (over all pairs; the exploratory ones among themselves)},
        matched: UNIT:      {role (exploratory), spent, progress, n, mean_a, mean_b, difference,
                             interval (None unless annealed), annealed},
        time_to_target: UNIT: {target, relation (=, <=, >=), ratio (a's spending over b's), interval (95%, open
                             ends None), reached_a, reached_b, n}, or None before the first pair,
        anytime: [          every yardstick at shares of the budget, where ``confirm.anytime`` says so:
            share, yardstick, role (exploratory), lower_is_better, n, mean_a, mean_b, difference, deviation, interval,
            equivalence, p, p_adjusted (over shares, yardsticks and pairs),
            missing (as above: of the runs that are there for this share, those without a value),
            ranks: {n, tau, p} (whether runs ahead there end ahead)]]
    not_compared: [[a, b]]  the pairs of different tasks
    extensions: [{KEY: [before, after]}]  what the study was let spend more of after its first answer

``matched`` compares the primary yardstick at the greatest share of their schedules that all paired runs have reached
(``progress``), in each unit of which they have spent the same by then. A point in the middle of a schedule is never
compared with the end of one: where arms with equal budgets in one unit differ in another, there is no row (n = 0), and
``anytime`` or a study with a budget in that unit is what compares them. Once a pair has completed, the share is the
whole (``annealed``). Before, both are in the middle, interpolated along their evaluations: an indication for who looks
on, without an interval.

``time_to_target`` compares what it takes to reach the study's ``yardsticks.target`` or, where it names none, the
worse of the two arms' final means. A run that diverged or failed never reaches it: the ratio is then a bound.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from itertools import combinations, product
from typing import Any

import numpy as np

from orchestrator.analysis.exploratory import (
    describe_failures,
    describe_ranks,
    describe_time_to_target,
    describe_tuning,
)
from orchestrator.analysis.statistics import (
    ALPHA,
    Decision,
    Sequential,
    bootstrap_interval,
    equivalence_interval,
    holm,
    minimum_detectable_effect,
    permutation_p,
    rank_stability,
    seeds_needed,
)
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.segments import Record

TRAINING_PHASES = ("search", "confirm", "anytime")
"""Those that train."""

MATCHED_UNITS = ("tokens", "flops", "device_seconds")
OUTCOMES = ("completed", "pruned", "diverged", "failed")
BROKEN = ("diverged", "failed")
SAME_SPENDING = 0.99
"""Runs have spent the same where the least is this share of the most: all but rounding, and the noise of clocks."""

Runs = dict[int, TrialHistory]
"""The confirm runs of one arm's chosen configuration, by seed."""


def compare(history: History) -> dict[str, Any]:
    """Compare the arms on what the ledger holds so far; see the module for rules and schema."""
    study = history.study
    if study is None:
        return {"arms": {}, "pairs": [], "not_compared": []}
    primary, others = study["yardsticks"]["primary"], study["yardsticks"]["others"]
    runs = {arm: chosen_runs(history, arm) for arm in study["arms"]}
    # sorted() is stable: headless arms come first, and otherwise the study's own order holds.
    arms = sorted(study["arms"], key=lambda arm: not study["arms"][arm]["headless"])
    task = {arm: study["arms"][arm]["task"] for arm in arms}
    decisions = _decisions(history, runs, arms)
    pairs = []
    for (a, b), decision in decisions.items():
        runs_a, runs_b = _settled(runs[a], runs[b], primary, decision)
        both_ended = _paired(runs_a, runs_b, ("completed", *BROKEN), primary)
        rows = {
            name: {
                "role": "primary" if name == primary else "exploratory",
                "lower_is_better": lower_is_better(study, name),
            }
            | _compare_values(_values(runs_a, name), _values(runs_b, name))
            for name in [primary, *others]
        }
        if decision is not None:
            interval = list(decision.interval) if decision.interval else None
            rows[primary] |= {"interval": interval, "p": decision.p, "equivalence": None}
        pairs.append(
            {
                "a": a,
                "b": b,
                "task": task[a],
                "role": _role(history, a, b),
                "missing": _missing(runs_a, primary) + _missing(runs_b, primary),
                "stopping": _stopping(study),
                "yardsticks": rows,
                "matched": {unit: _compare_at_equal(runs_a, runs_b, unit, study) for unit in MATCHED_UNITS},
                "time_to_target": {
                    unit: describe_time_to_target(
                        both_ended,
                        unit,
                        primary,
                        study["yardsticks"].get("target"),
                        lower_is_better(study, primary),
                    )
                    for unit in MATCHED_UNITS
                },
                "anytime": _at_shares(history, runs_a, runs_b, [primary, *others]),
            }
        )
    for role in ("primary", "exploratory"):
        _adjust([row for pair in pairs for row in pair["yardsticks"].values() if row["role"] == role])
    _adjust([row for pair in pairs for row in pair["anytime"]])
    for pair, decision in zip(pairs, decisions.values(), strict=True):
        row = pair["yardsticks"][primary]
        differences = _differences(_values(runs[pair["a"]], primary), _values(runs[pair["b"]], primary))
        ended = len(differences) + len({gap["seed"] for gap in pair["missing"]})
        settled = decision is not None and decision.verdict != "continue"
        pair["pending"] = 0 if settled else max(0, history.planned_seeds - ended)
        pair["verdict"] = _verdict(pair, row, decision, study["margin"])
        undecided = pair["verdict"] == "undecided"
        pair["more_seeds"] = seeds_needed(differences, study["margin"], len(pairs)) if undecided else 0
        pair["detectable"] = _detectable(study, row["deviation"], len(pairs))
    return {
        "unit": study["budget"]["unit"],
        "amount": study.get("confirm_amount", study["budget"]["amount"]),
        "primary": primary,
        "margin": study["margin"],
        "alpha": ALPHA,
        "arms": {arm: _describe_arm(history, study, arm, runs[arm]) for arm in arms},
        "pairs": pairs,
        "not_compared": [[a, b] for a, b in combinations(arms, 2) if task[a] != task[b]],
        "extensions": [record["changes"] for record in history.extensions],
    }


def answered(history: History) -> bool:
    """Whether adaptive stopping has an answer for every pair of arms, so that no more seeds are wanted."""
    assert history.study is not None
    runs = {arm: chosen_runs(history, arm) for arm in history.study["arms"]}
    decisions = _decisions(history, runs, list(runs), with_intervals=False)
    return all(decision is not None and decision.verdict != "continue" for decision in decisions.values())


def _stopping(study: Record) -> dict[str, int] | None:
    stopping = study.get("stopping")
    return {"minimum": stopping["minimum"], "maximum": study["seeds"]} if stopping else None


def _decisions(
    history: History, runs: dict[str, Runs], arms: list[str], *, with_intervals: bool = True
) -> dict[tuple[str, str], Decision | None]:
    """What adaptive stopping says of every two arms of one task; None where the number of seeds is fixed."""
    study = history.study
    assert study is not None
    task = {arm: study["arms"][arm]["task"] for arm in arms}
    pairs = [(a, b) for a, b in combinations(arms, 2) if task[a] == task[b]]
    stopping, primary = _stopping(study), study["yardsticks"]["primary"]
    if stopping is None:
        return dict.fromkeys(pairs)
    rule = Sequential(**stopping, margin=study["margin"], family_size=max(1, len(pairs)))
    seeds = [study["protocol"]["seed"] + 1 + index for index in range(stopping["maximum"])]
    decisions: dict[tuple[str, str], Decision | None] = {}
    for a, b in pairs:
        # Looks are at the protocol's seeds in their order: a run that ends early must not be looked at before its turn,
        # nor one beyond a seed that somebody took out.
        ended = []
        for seed in seeds:
            both = [arm_runs.get(seed) for arm_runs in (runs[a], runs[b])]
            if any(run is None or run.outcome is None for run in both):
                break
            ended.append(seed)
        values_a, values_b = (
            {seed: value for seed, value in _values(runs[arm], primary).items() if seed in ended}
            for arm in (a, b)
        )
        all_ended = len(ended) >= min(stopping["maximum"], history.planned_seeds)
        differences = _differences(values_a, values_b)
        decisions[a, b] = rule.decide(differences, ended=all_ended, with_interval=with_intervals)
    return decisions


def _settled(runs_a: Runs, runs_b: Runs, primary: str, decision: Decision | None) -> tuple[Runs, Runs]:
    """The runs that a pair's numbers rest on: all, or those up to the look that settled it."""
    if decision is None or decision.verdict in ("continue", "undecided"):
        return runs_a, runs_b
    last = sorted(_paired(runs_a, runs_b, ("completed",), primary))[decision.n - 1]
    a, b = ({seed: run for seed, run in runs.items() if seed <= last} for runs in (runs_a, runs_b))
    return a, b


def _detectable(study: Record, deviation: float | None, family_size: int) -> float | None:
    if not deviation:
        return None
    stopping = _stopping(study)
    if stopping is not None:
        rule = Sequential(**stopping, margin=study["margin"], family_size=family_size)
        return rule.minimum_detectable_effect(deviation)
    return minimum_detectable_effect(study["seeds"], deviation, study["margin"], family_size)


def lower_is_better(study: Record, yardstick: str) -> bool:
    """Whether smaller values of a yardstick are the better ones, by the study's record."""
    return yardstick in study["yardsticks"].get("lower_is_better", ())


def _role(history: History, a: str, b: str) -> str:
    chosen = any(len(_confirmed(history, arm)) > 1 for arm in (a, b))
    return "exploratory" if chosen or history.extensions else "confirmatory"


def _confirmed(history: History, arm: str) -> dict[str, Runs]:
    """An arm's confirm runs of the present budget, by configuration."""
    assert history.study is not None
    by_configuration: dict[str, Runs] = defaultdict(dict)
    for trial in history.trials_of("confirm", arm):
        if trial.amount not in (None, history.study.get("confirm_amount", trial.amount)):
            continue  # of a smaller budget, before the study was extended
        by_configuration[json.dumps(trial.configuration, sort_keys=True)][trial.seed] = trial
    return by_configuration


def chosen_runs(history: History, arm: str) -> Runs:
    """The confirm runs that stand for an arm, by seed: those of its best configuration (see the module)."""
    assert history.study is not None
    primary = history.study["yardsticks"]["primary"]
    sign = -1 if lower_is_better(history.study, primary) else 1

    def rank(runs: Runs) -> tuple[int, float]:
        values = list(_values(runs, primary).values())
        return len(values), sign * float(np.mean(values)) if values else 0.0

    return max(_confirmed(history, arm).values(), key=rank, default={})


def best_of_search(history: History, arm: str) -> TrialHistory | None:
    """The search trial with the best score among those that ran to the end of their budget; None before."""
    assert history.study is not None
    primary = history.study["yardsticks"]["primary"]
    sign = -1 if lower_is_better(history.study, primary) else 1
    finished = [
        (sign * score, trial)
        for trial in history.trials_of("search", arm)
        if trial.outcome == "completed" and (score := trial.score(primary)) is not None
    ]
    return max(finished, key=lambda entry: entry[0], default=(None, None))[1]


def _values(runs: Runs, yardstick: str) -> dict[int, float]:
    """By seed, the yardstick at the end of the runs that completed."""
    return {
        seed: score
        for seed, run in runs.items()
        if run.outcome == "completed" and (score := run.score(yardstick)) is not None
    }


def _differences(a: dict[int, float], b: dict[int, float]) -> tuple[float, ...]:
    return tuple(a[seed] - b[seed] for seed in sorted(a.keys() & b.keys()))


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return float(np.mean(values)) if values else None


def _compare_values(a: dict[int, float], b: dict[int, float]) -> dict[str, Any]:
    differences, seeds = _differences(a, b), a.keys() & b.keys()
    interval, equivalence = bootstrap_interval(differences), equivalence_interval(differences)
    return {
        "n": len(differences),
        "mean_a": _mean(a[seed] for seed in seeds),
        "mean_b": _mean(b[seed] for seed in seeds),
        "difference": _mean(differences),
        "deviation": float(np.std(differences, ddof=1)) if len(differences) > 1 else None,
        "interval": list(interval) if interval else None,
        "equivalence": list(equivalence) if equivalence else None,
        "p": permutation_p(differences),
    }


def _at_shares(history: History, a: Runs, b: Runs, yardsticks: list[str]) -> list[dict[str, Any]]:
    """The yardsticks where the runs that left these on their way ended, by share of the budget, ascending."""
    assert history.study is not None
    left: dict[float, tuple[Runs, Runs]] = defaultdict(lambda: ({}, {}))
    for trial in history.trials_of("anytime"):
        assert trial.share is not None
        for side, runs in enumerate((a, b)):
            trunk = runs.get(trial.seed)
            if trunk is not None and (trunk.arm, trunk.number) == (trial.arm, trial.number):
                left[trial.share][side][trial.seed] = trial
    rows = []
    for (share, branches), name in product(sorted(left.items()), yardsticks):
        both_ends = [
            (value, final)
            for trunks, runs in zip((a, b), branches, strict=True)
            for seed, value in _values(runs, name).items()
            if (final := trunks[seed].score(name)) is not None
        ]
        early, late = zip(*both_ends, strict=True) if both_ends else ((), ())
        rows.append(
            {
                "share": share,
                "yardstick": name,
                "role": "exploratory",
                "lower_is_better": lower_is_better(history.study, name),
            }
            | _compare_values(*(_values(runs, name) for runs in branches))
            | {"missing": [gap for runs in branches for gap in _missing(runs, name)]}
            | {"ranks": asdict(rank_stability(early, late))}
        )
    return rows


def _missing(runs: Runs, yardstick: str) -> list[dict[str, Any]]:
    """The runs that ended without a value."""
    values = _values(runs, yardstick)
    return [
        {"seed": seed, "arm": run.arm, "outcome": run.outcome, "reason": run.reason}
        for seed, run in sorted(runs.items())
        if run.outcome is not None and seed not in values
    ]


def _adjust(rows: list[dict[str, Any]]) -> None:
    """Add ``p_adjusted``. A pair without a p-value yet keeps its place in the family, as the weakest."""
    adjusted = holm([1.0 if row["p"] is None else row["p"] for row in rows])
    for row, p in zip(rows, adjusted, strict=True):
        row["p_adjusted"] = None if row["p"] is None else p


def _verdict(pair: dict[str, Any], row: dict[str, Any], decision: Decision | None, margin: float) -> str:
    if pair["pending"] or row["n"] < 2:
        return "undecided"
    if decision is not None:
        equivalent = decision.verdict == "equivalent"
    else:
        low, high = row["equivalence"]
        equivalent = -margin <= low and high <= margin
    if equivalent:
        return "equivalent"
    if row["p_adjusted"] is not None and row["p_adjusted"] <= ALPHA:
        return str(pair["a"] if (row["difference"] > 0) != row["lower_is_better"] else pair["b"])
    return "undecided"


def _compare_at_equal(runs_a: Runs, runs_b: Runs, unit: str, study: Record) -> dict[str, Any]:
    """The primary yardstick at the greatest share of their schedules that all paired runs have reached."""
    primary = study["yardsticks"]["primary"]
    completed = _paired(runs_a, runs_b, ("completed",), primary)
    paired = completed or _paired(runs_a, runs_b, ("completed", None), primary)
    curves = {
        (run.arm, seed): np.array(
            [
                (measure["progress"], measure["spent"][unit], measure["yardsticks"][primary]["overall"])
                for measure in run.evaluations
                if primary in measure["yardsticks"]
            ]
        )
        for seed, both in paired.items()
        for run in both
    }
    progress = min((curve[-1, 0] for curve in curves.values()), default=0.0)
    spent = [float(np.interp(progress, curve[:, 0], curve[:, 1])) for curve in curves.values()]
    # Progress is spending of the budget over the budget, so that of it all have spent the same by then.
    same = bool(spent) and (unit == study["budget"]["unit"] or min(spent) >= SAME_SPENDING * max(spent))
    # There is no point to show before the first pair, nor where a run was first evaluated only beyond it.
    if not same or any(progress < curve[0, 0] for curve in curves.values()):
        nothing = dict.fromkeys(("spent", "progress", "mean_a", "mean_b", "difference", "interval"))
        return {"role": "exploratory", "n": 0, **nothing, "annealed": False}
    at = {key: float(np.interp(progress, curve[:, 0], curve[:, 2])) for key, curve in curves.items()}
    values_a, values_b = (
        {seed: at[run.arm, seed] for seed, run in runs.items() if (run.arm, seed) in at}
        for runs in (runs_a, runs_b)
    )
    row = _compare_values(values_a, values_b)
    for deciding in ("p", "deviation", "equivalence"):
        del row[deciding]
    annealed = bool(completed)
    if not annealed:
        row["interval"] = None
    place = {"role": "exploratory", "spent": min(spent), "progress": float(progress)}
    return place | row | {"annealed": annealed}


def _paired(
    runs_a: Runs, runs_b: Runs, outcomes: tuple[str | None, ...], primary: str
) -> dict[int, tuple[TrialHistory, TrialHistory]]:
    """The seeds at which both arms' runs have one of the outcomes and, unless they broke, were evaluated."""
    both = {seed: (runs_a[seed], runs_b[seed]) for seed in sorted(runs_a.keys() & runs_b.keys())}
    return {
        seed: pair
        for seed, pair in both.items()
        if all(
            run.outcome in outcomes and (run.outcome in BROKEN or run.score(primary) is not None)
            for run in pair
        )
    }


def _describe_arm(history: History, study: Record, arm: str, runs: Runs) -> dict[str, Any]:
    best = next(iter(runs.values()), None) or best_of_search(history, arm)
    names = [study["yardsticks"]["primary"], *study["yardsticks"]["others"]]
    searched = history.trials_of("search", arm)
    return {
        **{key: study["arms"][arm][key] for key in ("objective", "task", "headless")},
        "configuration": best.configuration if best else None,
        "confirmed": len(_confirmed(history, arm)),
        "counts": {phase: _count(history, phase, arm) for phase in TRAINING_PHASES},
        "failures": {phase: describe_failures(history.trials_of(phase, arm)) for phase in TRAINING_PHASES},
        "yardsticks": {name: _describe_yardstick(runs, name) for name in names},
        "spent": {phase: _total_spent(history, phase, arm) for phase in TRAINING_PHASES},
        "tuning": describe_tuning(searched, names[0], lower_is_better(study, names[0])),
        "ranks": describe_ranks(searched, names[0]),
    }


def _count(history: History, phase: str, arm: str) -> dict[str, int]:
    trials, confirmed = history.trials_of(phase, arm), _confirmed(history, arm)
    if phase != "search":  # a run that left a longer one has its number
        numbers = {run.number for runs in confirmed.values() for run in runs.values()}
        trials = [trial for trial in trials if trial.number in numbers]
    planned = len(trials)
    if phase == "confirm" and history.phases.get("confirm") != "end":
        planned = history.planned_seeds * max(1, len(confirmed))
    outcomes = [trial.outcome for trial in trials]
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    running = sum(trial.outcome is None and not trial.paused for trial in trials)
    return {"planned": planned, "running": running, **counts}


def _describe_yardstick(runs: Runs, yardstick: str) -> dict[str, Any]:
    values = _values(runs, yardstick)
    by_language: dict[str, list[float]] = defaultdict(list)
    for seed in values:
        last = next(m for m in reversed(runs[seed].measures) if yardstick in m["yardsticks"])
        for language, value in last["yardsticks"][yardstick]["languages"].items():
            by_language[language].append(value)
    scores = list(values.values())
    return {
        "n": len(scores),
        "mean": _mean(scores),
        "deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        "languages": {language: float(np.mean(found)) for language, found in sorted(by_language.items())},
    }


def _total_spent(history: History, phase: str, arm: str) -> dict[str, float]:
    if phase == "anytime":  # what its runs have from those that they left is these's
        return dict(sorted(history.spending(phase, arm).useful.items()))
    units = {unit for trial in history.trials_of(phase, arm) for unit in trial.spent}
    return {unit: history.spent(phase, arm, unit) for unit in sorted(units)}
