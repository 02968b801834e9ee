"""What scoring all held-out text costs, of a study's confirmation run: its share of the time, and its memory.

A run of each arm is built as the study would, and some steps and the evaluations are timed in turns, so that a share is
of one stretch of time. A whole run has the study's number of steps; what it is judged by at its end and on the way is
counted as often as it happens. Memory is what a step, or the last evaluation, needs beyond what was there before it.

    python benchmarks/scoring.py --study laptop --set 'corpora.sources=[{language: en, files: "en.jsonl.gz"}]'

The last line is one JSON object, also written to ``benchmarks/results``: ``share`` and ``memory_ratio`` are those of
the arm with the largest. ``floors_share`` is what one run of each arm takes more, the first.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from measure import command_line, peak_bytes, publish

from orchestrator.ledger.history import History
from orchestrator.scheduling.trials import Planner
from orchestrator.study import Study
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.storage import Location
from trainables.training.config import TrialConfig
from trainables.training.loop import Trial
from trainables.training.stepper import PreparedStep

STEPS = 10
"""Of a turn."""


def make_trial(content: str) -> Trial:
    config = TrialConfig.model_validate_json(content)
    stream = TokenStream(PackedCorpus(Location(config.corpus)), config.seed, config.alpha, config.maximum_repetition)
    return Trial(config, stream)


def stepping(trial: Trial) -> Callable[[], PreparedStep]:
    """Makes the next step."""
    size, numbers = trial.config.training.batch_sequences, itertools.count()

    def step() -> PreparedStep:
        first = next(numbers) * size
        prepared = trial.stepper.prepare(trial.stream.take(np.arange(first, first + size)), first)
        trial.stepper.step(prepared, trial.config.training.learning_rate)
        return prepared

    return step


def one_step(content: str) -> Callable[[], object]:
    """For the measurement of memory."""
    return stepping(make_trial(content))


def last_evaluation(content: str) -> Callable[[], object]:
    """The same."""
    trial = make_trial(content)
    return lambda: trial.evaluator.take(trial.stepper, final=True)


def seconds(run: Callable[[], object], times: int = 1) -> float:
    """Of each of so many."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def measured(config: TrialConfig, turns: int, steps: int) -> dict[str, float]:
    """One arm's figures."""
    content = config.model_dump_json()
    trial = make_trial(content)
    step = stepping(trial)
    step()
    parts: dict[str, Callable[[], float]] = {
        "step": lambda: seconds(step, steps),
        "last": lambda: seconds(lambda: trial.evaluator.take(trial.stepper, final=True)),
        "on_the_way": lambda: seconds(lambda: trial.evaluator.take(trial.stepper, final=False)),
        "floors": lambda: seconds(trial.measure_floors),
    }
    found: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(turns):
        for name, part in parts.items():
            found[name].append(part())
    times = {name: statistics.median(values) for name, values in found.items()}
    cost = step().cost(config.budget.unit)
    num_steps = config.budget.amount / cost
    judged = times["last"] + (len(config.evaluations) + bool(config.evaluations)) * times["on_the_way"]
    memory = {name: peak_bytes("cpu", run, content) for name, run in (("step", one_step), ("last", last_evaluation))}
    return {
        "step_seconds": times["step"],
        "steps": num_steps,
        "last_evaluation_seconds": times["last"],
        "evaluation_on_the_way_seconds": times["on_the_way"],
        "share": judged / (judged + num_steps * times["step"]),
        "floors_share": times["floors"] / (num_steps * times["step"]),
        "step_bytes": memory["step"],
        "evaluation_bytes": memory["last"],
        "memory_ratio": memory["last"] / memory["step"],
    }


def run(study: str, overrides: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Measure each arm."""
    with tempfile.TemporaryDirectory() as storage:
        made = Study(study, [*overrides, f"storage={storage}"])
        corpus = made.prepare()
        planner = Planner(made.spec, History(), str(corpus.folder))
        arms = {}
        for arm in made.spec.arms:
            config = planner.plan("confirm", arm, 0, made.spec.seed + 1, {}).config
            arms[arm] = measured(config, 1 if quick else 3, 2 if quick else STEPS)
            print(arm, arms[arm])
    worst = {key: max(own[key] for own in arms.values()) for key in ("share", "memory_ratio", "floors_share")}
    return {"study": study, "arms": arms, **worst}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "a turn of two steps")
    parser.add_argument("--study", default="laptop")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    result = run(options.study, options.overrides, quick=options.quick)
    publish("scoring", "cpu", result, quick=options.quick)
    return result


if __name__ == "__main__":
    main()
