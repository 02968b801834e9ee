"""Ray Tune's controller, as far as a scheduler of ours reaches into it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def tune_controller(**more: Any) -> SimpleNamespace:
    """The wrapper that Tune hands to schedulers, of a controller without any trials."""
    sets = ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache", "_resetting_trials")
    known = {name: set() for name in sets} | {"_trials": [], "_trial_to_actor": {}, "_trial_metadata": {}}
    return SimpleNamespace(_tune_controller=SimpleNamespace(**known, **more))
