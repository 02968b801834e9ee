"""A small study, the command line in a process of its own, and what of a result is not a clock's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.ledger.trials import TrialHistory


def small_study(name: str, storage: Path | str, **changes: Any) -> dict[str, Any]:
    """Two decoder arms on two embedded languages; about a second a trial."""
    return {
        "name": name,
        "corpora": {
            "sources": [
                {"language": language, "grammar": language, "documents": 200} for language in ("veldan", "kharto")
            ],
            "sequence_length": 32,
            "validation_share": 0.1,
            "test_share": 0.1,
            "minimal_pairs_per_language": 20,
        },
        "tokenizer": {"train": {"vocabulary_size": 500}},
        "model": {
            "config": {
                "model_type": "gpt_neox",
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 64,
            }
        },
        "training": {"batch_sequences": 8, "learning_rate": 3e-3},
        "arms": {"headless": {"objective": "headless_clm"}, "vanilla": {"objective": "clm"}},
        "budget": {"tokens": 8 * 32 * 40},
        "search": {"budget_per_arm": 2, "halving": {"rungs": 2}},
        "confirm": {"seeds": 2, "describe_only": True, "evaluations": 2},
        "yardsticks": {
            "primary": "recovery_accuracy",
            "others": ["recovery_mrr", "minimal_pair_accuracy"],
            "evaluation": {"sequences_per_language": 8},
        },
        "storage": str(storage),
        **changes,
    }


def h2h(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return patient([sys.executable, "-m", "orchestrator.cli", *arguments], **options)


def patient(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """A command, given again where Ray's own processes had not started within its half a minute."""
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
        if not (done.returncode and ray_was_slow(done.stderr)):
            break
    return done


def ray_was_slow(errors: str) -> bool:
    """Whether this ended a command, by what it printed."""
    return "Ray did not start in time" in errors or "timed out during startup" in errors


def told_by(trial: TrialHistory, *more: str) -> dict[str, Any]:
    """What of a trial must not depend on what happened to its processes; ``more`` fields of its reports."""
    kept = {"step", "progress", "loss", "learning_rate", "digest", "mix", "rung", "yardsticks", *more}
    return {
        "outcome": trial.outcome,
        "configuration": trial.configuration,
        "seed": trial.seed,
        "spent": {unit: trial.spent[unit] for unit in ("tokens", "steps", "flops")},
        "measures": [measure.model_dump(include=kept) for measure in trial.measures],
    }


def without_seconds(value: Any) -> Any:
    """Without what is a clock's: whether clocks were steady as well."""
    if isinstance(value, dict):
        clocks = ("device_seconds", "wall_seconds", "steady")
        return {key: without_seconds(inner) for key, inner in value.items() if key not in clocks}
    if isinstance(value, list):
        return [without_seconds(v) for v in value]
    return value
