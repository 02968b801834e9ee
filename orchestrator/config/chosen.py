"""A configuration that a person chose for an arm's search, held against what the search may try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

from orchestrator import formatting
from orchestrator.config.search import WIDENING
from orchestrator.config.study import StudySpec
from orchestrator.config.yaml_text import LARGEST, parse_yaml
from search_spaces import Categorical, Configuration, Dimension, Integer, Setting, Space
from trainables.errors import InputError, nearest


def settings_of(words: Sequence[str]) -> dict[str, object]:
    """Of ``key=value`` each, the value being YAML. Raises InputError if one is not, or a key is there twice."""
    found: dict[str, object] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InputError(f"'{word}' is not key=value", remedy="as in learning_rate=0.002")
        if name in found:
            raise InputError(f"'{name}' is given twice", remedy="one value for each setting")
        found[name] = parse_yaml(text, word)
    return found


def chosen_configuration(spec: StudySpec, arm: str, given: Mapping[str, object]) -> Configuration:
    """A whole configuration of an arm's search space: what is not ``given`` is as in the arm's first configuration.
    Raises InputError: there is no such arm, nothing is given, a setting is not searched, a value lies outside its
    range, or one is missing that the first configuration does not have either."""
    if arm not in spec.arms:
        raise InputError(f"no arm is called '{arm}'", remedy=nearest(arm, spec.arms))
    declared = spec.arms[arm].search_space
    # Beyond the declared range lie values that the search itself may come to.
    space = declared.widest if spec.search.algorithm in WIDENING else declared
    if not given:
        raise InputError("no setting is given", where=arm, remedy=f"one or more of {', '.join(space.dimensions)}")
    known = {name: _value(space, arm, name, value) for name, value in given.items()}
    first = declared.first[0] if declared.first else {}
    missing = [name for name in space.dimensions if name not in known and name not in first]
    if missing:
        raise InputError(
            f"a value is missing: {', '.join(missing)}",
            where=arm,
            why="what is not given is as in the arm's first configuration, which does not say it either",
            remedy=" ".join(f"{name}=VALUE ({_range(space.dimensions[name])})" for name in missing),
        )
    return {name: known[name] if name in known else first[name] for name in space.dimensions}


def _value(space: Space, arm: str, name: str, value: object) -> Setting:
    if name not in space.dimensions:
        raise InputError(f"the search of '{arm}' does not vary '{name}'", remedy=nearest(name, space.dimensions))
    dimension = space.dimensions[name]
    if isinstance(value, Real) and not isinstance(value, int | float):  # NumPy's
        value = int(value) if isinstance(value, Integral) else float(value)
    if isinstance(dimension, Categorical):
        for own in dimension.choices:
            # True is 1 to Python, and an array is equal to a number place by place.
            if isinstance(value, bool) == isinstance(own, bool) and _is_plain(value) and value == own:
                return own
    elif isinstance(value, int | float) and not isinstance(value, bool) and dimension.low <= value <= dimension.high:
        if not isinstance(dimension, Integer):
            return float(value)
        if value == int(value):
            return int(value)
    raise InputError(
        f"{name} cannot be {_shown(value)}",
        where=arm,
        why="it is not what the search may try",
        remedy=_range(dimension),
    )


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, int | float | str)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"'{value[:80]}'"
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "so large"
    if _is_plain(value):
        return formatting.exact(value)
    return f"of type {type(value).__name__}"


def _range(dimension: Dimension) -> str:
    if isinstance(dimension, Categorical):
        return f"one of {', '.join(map(formatting.exact, dimension.choices))}"
    kind = "a whole number" if isinstance(dimension, Integer) else "a number"
    return f"{kind} from {dimension.low:.12g} to {dimension.high:.12g}"
