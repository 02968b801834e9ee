"""A study that tests disturb, and what must not depend on that."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import optuna

from orchestrator.analysis.selection import best_trials
from orchestrator.ledger.history import read_history
from orchestrator.reporting.optuna_journal import OPTUNA_FILE
from orchestrator.study import Study
from tests.helpers.study import h2h, small_study, told_by, without_seconds
from trainables.storage import Location

ATTEMPTS = 1000
"""A trial is started again as often as it is killed."""


def chaotic(name: str, storage: Path | str, launcher: str = "direct", **changes: Any) -> dict[str, Any]:
    """A study of some seconds."""
    defaults = {
        "budget": {"tokens": 8 * 32 * 60},
        "search": {"budget_per_arm": 2, "halving": {"rungs": 2}},
        "resources": {"launcher": launcher, "attempts": ATTEMPTS},
    }
    return small_study(name, storage, **(defaults | changes))


def undisturbed(storage: Path, **changes: Any) -> dict[str, Any]:
    """What a study that nobody disturbs comes to."""
    file = storage / "study.yaml"
    file.write_text(json.dumps(chaotic("undisturbed", storage, **changes)))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    return outcome(storage / "undisturbed")


def outcome(place: Path | Location) -> dict[str, Any]:
    """All that must not depend on what was killed; clocks do."""
    folder = Location(place) if isinstance(place, Path) else place
    history = read_history(folder / "ledger")
    study = Study.open(folder)
    assert history.comparison is not None
    found: dict[str, Any] = {
        "comparison": without_seconds({key: history.comparison.comparison[key] for key in ("pairs", "not_compared")})
    }
    for name, trial in history.trials.items():
        found[name] = told_by(trial)
    for arm in study.spec.arms:
        found[f"best of {arm}"] = [t.trial for t in best_trials(history, arm, 3)]
        if study.spec.search.budget_per_arm:
            found[f"optuna of {arm}"] = [
                (t.state, t.params, t.values, t.intermediate_values) for t in optuna_trials(folder, study, arm)
            ]
        found[f"spent by {arm}"] = [
            history.spent(phase, arm, unit)
            for phase in ("search", "confirm", "anytime")
            for unit in ("tokens", "steps", "flops")
        ]
    return found


def optuna_trials(folder: Location, study: Study, arm: str) -> list[optuna.trial.FrozenTrial]:
    """As Optuna itself reads them from a copy of the file in the study's folder."""
    with tempfile.NamedTemporaryFile() as copy:
        Path(copy.name).write_bytes((folder / OPTUNA_FILE).read_bytes())
        backend = optuna.storages.journal.JournalFileBackend(copy.name)
        storage = optuna.storages.JournalStorage(backend)
        return optuna.load_study(study_name=f"{study.spec.name}/{arm}", storage=storage).trials
