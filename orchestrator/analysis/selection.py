"""Which runs stand for an arm: the best of its search, and the confirmation runs of its chosen configuration."""

import json
from collections import defaultdict
from statistics import fmean

from orchestrator.ledger.history import History
from orchestrator.ledger.trials import TrialHistory
from search_spaces import Configuration

Runs = dict[int, TrialHistory]  # confirmation runs of one configuration of an arm, by seed


def same_configuration(configuration: Configuration) -> str:
    """Equal for configurations that are the same."""
    return json.dumps(configuration, sort_keys=True)


def best_trials(history: History, arm: str, top: int) -> list[TrialHistory]:
    """The arm's best completed search trials, best first and the earlier of equal ones; of those with the same
    configuration, which a grid of choices or a sampler may come to twice, only the best."""
    primary = history.design.yardsticks.primary
    sign = 1 if history.design.lower_is_better(primary) else -1
    completed = [t for t in history.trials_of("search", arm) if t.outcome == "completed"]
    scored = [(sign * score, t.number, t) for t in completed if (score := t.score(primary)) is not None]
    distinct: dict[str, TrialHistory] = {}
    for _, _, trial in sorted(scored, key=lambda entry: entry[:2]):
        distinct.setdefault(same_configuration(trial.configuration), trial)
    return list(distinct.values())[:top]


def best_of_search(history: History, arm: str) -> TrialHistory | None:
    """The first of :func:`best_trials`; None before one is completed."""
    return next(iter(best_trials(history, arm, 1)), None)


def current_runs(history: History, arm: str | None = None) -> list[TrialHistory]:
    """The confirmation runs of the present budget: a study that was extended may have others."""
    amount = history.design.confirm_amount
    return [trial for trial in history.trials_of("confirm", arm) if trial.amount == amount]


def confirmed(history: History, arm: str) -> list[Runs]:
    """An arm's confirmation runs of the present budget, by configuration and seed."""
    by_configuration: dict[str, Runs] = defaultdict(dict)
    for trial in current_runs(history, arm):
        by_configuration[same_configuration(trial.configuration)][trial.seed] = trial
    return list(by_configuration.values())


def chosen_runs(history: History, arm: str) -> Runs:
    """The confirmation runs that stand for an arm, by seed: of the configuration with the most completed seeds and,
    among those, the best mean of the primary yardstick."""
    primary = history.design.yardsticks.primary
    sign = -1 if history.design.lower_is_better(primary) else 1

    def rank(runs: Runs) -> tuple[int, float]:
        values = final_values(runs, primary).values()
        return len(values), sign * fmean(values) if values else 0.0

    return max(confirmed(history, arm), key=rank, default={})


def values_by_language(runs: Runs, yardstick: str) -> dict[str, list[float]]:
    """By language, sorted, the yardstick at the end of the runs that completed, in the order of the seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    for seed in final_values(runs, yardstick):
        last = next(m for m in reversed(runs[seed].measures) if yardstick in m.yardsticks)
        for language, value in last.yardsticks[yardstick].languages.items():
            found[language].append(value)
    return dict(sorted(found.items()))


def final_values(runs: Runs, yardstick: str) -> dict[int, float]:
    """By seed, the yardstick at the end of the runs that completed."""
    return {
        seed: score
        for seed, run in runs.items()
        if run.outcome == "completed" and (score := run.score(yardstick)) is not None
    }
