"""Search spaces: what may vary, one YAML per objective, and their types. Imports nothing else of this project."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_FOLDER = Path(__file__).parent

Setting = float | int | str | bool | None
"""A value that a setting can have."""

Configuration = dict[str, Setting]
"""The searched settings' values, by name."""

Closed = Literal["low", "high", "both"] | None

NEAR = 0.05
"""A value so near an end of its range, as a share of it on its scale, lies at that bound."""

FEWEST_ORDERED = 3
"""Numbers in order are a range with ends if there are so many."""

STRIDE = 1 / 3
"""Of a range's length on its scale, by which it is widened at once."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class _Number(_Record):
    type: str
    low: float
    high: float
    log: bool = False
    """Uniform in the logarithm."""
    lowest: float | None = None
    """The search widens the range down to it, where its best value so far lies at `low` (`tpe` and `random` do)."""
    highest: float | None = None
    """Likewise up to it, beyond `high`."""
    closed: Closed = None
    """Ends beyond which there is nothing to search by nature, as below a dropout of 0: a best value there is no reason
    to doubt the search."""

    @model_validator(mode="after")
    def _interval(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        for name, limit, inside in (("lowest", self.lowest, self.low), ("highest", self.highest, self.high)):
            if limit is not None and (limit > inside if name == "lowest" else limit < inside):
                raise ValueError(f"{name} ({limit}) lies inside the range, which it is to widen")
        if self.log and self.lowest is not None and self.lowest <= 0:
            raise ValueError(f"a logarithmic range needs lowest above 0, not {self.lowest}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low above 0, not {self.low}")
        return self

    @property
    def ends(self) -> tuple[float, ...]:
        """The outermost values."""
        widest = self.widest
        return widest.low, widest.high

    @property
    def widest(self) -> Self:
        """The range as far as it may be widened."""
        low, high = self.lowest, self.highest
        limits = {"low": self.low if low is None else low, "high": self.high if high is None else high}
        return self.model_copy(update=limits)

    def widened(self, best: Setting, declared: Self) -> Self:
        """The range, which was ``declared`` once, made wider at the bound that the best value lies at."""
        if not isinstance(best, int | float):
            return self
        (low, high), limits = (self._scaled(self.low), self._scaled(self.high)), self.widest
        stride = STRIDE * (self._scaled(declared.high) - self._scaled(declared.low))
        place = self._place(best, self.low, self.high)
        if place <= NEAR:
            return self.model_copy(update={"low": max(limits.low, self._unscaled(low - stride))})
        if place >= 1 - NEAR:
            return self.model_copy(update={"high": min(limits.high, self._unscaled(high + stride))})
        return self

    def including(self, value: Setting) -> Self:
        """The range, made as wide as to hold a value."""
        if not isinstance(value, int | float):
            return self
        return self.model_copy(update={"low": min(self.low, value), "high": max(self.high, value)})

    def bound_at(self, value: Setting, tried: Iterable[Setting]) -> Setting:
        """The bound that a value lies at, of the range or of what was ``tried`` beyond it; None where it lies inside or
        the range is closed there."""
        numbers = [number for number in tried if isinstance(number, int | float)]
        low, high = min([self.low, *numbers]), max([self.high, *numbers])
        if not isinstance(value, int | float) or low == high:
            return None
        place = self._place(value, low, high)
        if place <= NEAR and self.closed not in ("low", "both"):
            return low
        return high if place >= 1 - NEAR and self.closed not in ("high", "both") else None

    def _place(self, value: float, low: float, high: float) -> float:
        """Where a value lies in a range, 0 to 1 on its scale."""
        start, end = self._scaled(low), self._scaled(high)
        return (self._scaled(value) - start) / (end - start) if end > start else 0.5

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _unscaled(self, value: float) -> float:
        return math.exp(value) if self.log else value

    def grid(self, points: int) -> Sequence[float]:
        """So many values from end to end, evenly or in one ratio; one is the middle."""
        low, high = self.low, self.high
        if low == high:
            return [low]
        shares = [0.5] if points == 1 else [index / (points - 1) for index in range(points)]
        return [low ** (1 - share) * high**share if self.log else low * (1 - share) + high * share for share in shares]


class Float(_Number):
    """A real number from an interval."""

    type: Literal["float"]

    def contains(self, value: Setting) -> bool:
        """Whether it is one of the values."""
        return isinstance(value, int | float) and self.low <= value <= self.high


class Integer(_Number):
    """A whole number from an interval, both ends included."""

    type: Literal["int"]
    low: int
    high: int
    lowest: int | None = None
    """As of a real number."""
    highest: int | None = None
    """As of a real number."""

    def _unscaled(self, value: float) -> int:
        return round(super()._unscaled(value))

    def contains(self, value: Setting) -> bool:
        """Whether it is one of the values."""
        return isinstance(value, int) and self.low <= value <= self.high

    def grid(self, points: int) -> list[int]:
        """As that of a real number, rounded; fewer where values coincide."""
        return sorted({round(value) for value in super().grid(points)})


class Categorical(_Record):
    """One of some values; null may be one of them."""

    type: Literal["choice"]
    choices: tuple[Setting, ...] = Field(min_length=1)
    closed: Closed = None
    """As of a number: `low` is the end of the smallest one."""

    @property
    def widest(self) -> Self:
        """Itself: choices are all there are."""
        return self

    def widened(self, best: Setting, declared: Self) -> Self:
        """Itself."""
        return self

    def including(self, value: Setting) -> Self:
        """Itself."""
        return self

    def bound_at(self, value: Setting, tried: Iterable[Setting]) -> Setting:
        """The value itself where it is the first or last of three or more choices in the order of numbers, and the list
        is not closed there; else None. Null has a place at either end, as the choice beyond all numbers."""
        numbers = [own for own in self.choices if isinstance(own, int | float) and not isinstance(own, bool)]
        ordered = numbers == sorted(numbers) or numbers == sorted(numbers, reverse=True)
        if len(self.choices) < FEWEST_ORDERED or len(numbers) < len(self.choices) - 1 or not ordered:
            return None
        if None in self.choices[1:-1] or value not in (self.choices[0], self.choices[-1]) or value is None:
            return None
        end = "low" if value == min(numbers) else "high"
        return None if self.closed in (end, "both") else value

    @property
    def ends(self) -> tuple[Setting, ...]:
        """All choices."""
        return self.choices

    def contains(self, value: Setting) -> bool:
        """Whether it is one of the choices."""
        return value in self.choices

    def grid(self, points: int) -> list[Setting]:
        """All choices, however many points are asked for."""
        return list(self.choices)


Dimension = Annotated[Float | Integer | Categorical, Field(discriminator="type")]
"""One setting's range."""


class Space(_Record):
    """A search space."""

    dimensions: dict[str, Dimension] = Field(min_length=1)
    """By the setting's name: a training setting or an option of the objective."""
    first: tuple[Configuration, ...] = ()
    """Configurations to try before the search suggests its own; settings left out are suggested."""

    @model_validator(mode="after")
    def _known_settings(self) -> Self:
        for configuration in self.first:
            unknown = sorted(set(configuration) - set(self.dimensions))
            if unknown:
                raise ValueError(f"'first' names settings that are no dimensions: {', '.join(unknown)}")
        return self

    @property
    def widest(self) -> "Space":
        """The space as far as it may be widened."""
        return self.model_copy(update={"dimensions": {name: own.widest for name, own in self.dimensions.items()}})

    def widened(self, best: Configuration, declared: "Space") -> "Space":
        """The space, which was ``declared`` once, with wider ranges where the best configuration lies at a bound."""
        ranges = {
            name: dimension.widened(best.get(name), declared.dimensions[name])  # type: ignore[arg-type]
            for name, dimension in self.dimensions.items()
        }
        return self.model_copy(update={"dimensions": ranges})

    def including(self, configuration: Configuration) -> "Space":
        """The space, with ranges as wide as to hold a configuration."""
        ranges = {name: own.including(configuration.get(name)) for name, own in self.dimensions.items()}
        return self.model_copy(update={"dimensions": ranges})

    def grid(self, points: int) -> list[Configuration]:
        """Every combination of the dimensions' grids, with so many ``points`` for each number."""
        values = [dimension.grid(points) for dimension in self.dimensions.values()]
        return [dict(zip(self.dimensions, chosen, strict=True)) for chosen in product(*values)]

    def grid_beyond_first(self, points: int) -> list[Configuration]:
        """What a :meth:`grid` has to try after ``first``, in which some of its points may be."""
        return [point for point in self.grid(points) if not any(is_same(point, first) for first in self.first)]


def space_names() -> list[str]:
    """Names of the shipped spaces."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def space_path(name_or_path: str) -> Path:
    """Where a space is written: a shipped one by name, or one's own file by path (``.yaml``)."""
    path = Path(name_or_path)
    return path if path.suffix in (".yaml", ".yml") else _FOLDER / f"{name_or_path}.yaml"


def is_same(a: Mapping[str, Setting], b: Mapping[str, Setting]) -> bool:
    """Whether two configurations are one, but for the rounding of a logarithmic grid."""
    return a.keys() == b.keys() and all(
        value == b[name]
        or (isinstance(value, float) and isinstance(other := b[name], int | float) and math.isclose(value, other))
        for name, value in a.items()
    )
