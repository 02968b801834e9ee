"""What a study is and how it is run: ``Study`` defines, runs and resumes one, ``Results`` reads what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.analysis.results import Results
    from orchestrator.study import Study

__all__ = ["Results", "Study"]


def __getattr__(name: str) -> object:
    # Imported when asked for: reading results needs neither torch nor Ray.
    if name == "Results":
        from orchestrator.analysis.results import Results

        return Results
    if name == "Study":
        from orchestrator.study import Study

        return Study
    raise AttributeError(f"module 'orchestrator' has no attribute '{name}'")
