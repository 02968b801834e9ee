"""Whether an arm's search ended at a bound of its space: the best there is may lie beyond."""

from collections.abc import Mapping

from pydantic import ValidationError

from orchestrator import formatting
from orchestrator.analysis.comparison import ArmSummary, Boundary, Comparison, Pair
from orchestrator.ledger.history import History
from search_spaces import Configuration, Space

AT_BOUNDARY = "the search ended at its boundary"


def boundaries_of(history: History, arm: str, configuration: Configuration | None) -> tuple[Boundary, ...]:
    """The settings of the configuration that stands for an arm which lie at a bound of what its search tried."""
    space = _space_of(history, arm)
    if space is None or not configuration or not history.design.search_budget:
        return ()
    tried = [trial.configuration for trial in history.trials_of("search", arm)]
    found = []
    for name, dimension in space.dimensions.items():
        value = configuration.get(name)
        bound = dimension.bound_at(value, [other.get(name) for other in tried])
        if bound is not None:
            found.append(Boundary(name=name, value=value, bound=bound))
    return tuple(found)


def _space_of(history: History, arm: str) -> Space | None:
    """As the protocol has it; None of a ledger that kept its name alone."""
    arms = history.study.protocol.get("arms") if history.study is not None else None
    own = arms.get(arm) if isinstance(arms, dict) else None
    try:
        return Space.model_validate(own.get("space")) if isinstance(own, dict) else None
    except ValidationError:
        return None


def ended_inside(arms: Mapping[str, ArmSummary], pair: Pair) -> bool:
    """Whether both arms' searches ended inside their spaces, so that the pair may have a verdict."""
    return not any(arms[arm].boundaries for arm in (pair.a, pair.b))


def boundaries_in_words(comparison: Comparison, pair: Pair) -> str:
    """Which best values lie at which bounds, and what would settle it; empty where none does."""
    found = [
        f"{boundary.name} of {arm} ({formatting.setting(boundary.value)}, tried up to "
        f"{formatting.setting(boundary.bound)})"
        for arm in (pair.a, pair.b)
        for boundary in comparison.arms[arm].boundaries
    ]
    if not found:
        return ""
    return f"At its bound lies the best {', '.join(found)}: a search in a wider range might settle it."
