"""What a study is and how it is run: ``Study`` defines, runs and resumes one, ``Results`` reads what it found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.analysis.scores import ScoreComparison, compare_scores
    from orchestrator.reporting.results import Results
    from orchestrator.study import Study

__all__ = ["Results", "ScoreComparison", "Study", "compare_scores"]
_MODULES = {
    "Results": "orchestrator.reporting.results",
    "ScoreComparison": "orchestrator.analysis.scores",
    "Study": "orchestrator.study",
    "compare_scores": "orchestrator.analysis.scores",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: reading results needs neither torch nor Ray.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'orchestrator' has no attribute '{name}'")
