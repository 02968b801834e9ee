"""Search spaces: what may vary, one YAML per objective, and their types. Imports nothing else of this project."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_FOLDER = Path(__file__).parent

Setting = float | int | str | bool | None
"""A value that a setting can have."""

Configuration = dict[str, Setting]
"""The searched settings' values, by name."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class _Number(_Record):
    type: str
    low: float
    high: float
    log: bool = False
    """Uniform in the logarithm."""

    @model_validator(mode="after")
    def _interval(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low above 0, not {self.low}")
        return self

    @property
    def ends(self) -> tuple[float, ...]:
        """The outermost values."""
        return self.low, self.high

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

    def grid(self, points: int) -> list[Configuration]:
        """Every combination of the dimensions' grids, with so many ``points`` for each number."""
        values = [dimension.grid(points) for dimension in self.dimensions.values()]
        return [dict(zip(self.dimensions, chosen, strict=True)) for chosen in product(*values)]

    def grid_beyond_first(self, points: int) -> list[Configuration]:
        """What a :meth:`grid` has to try after ``first``, in which some of its points may be."""
        return [point for point in self.grid(points) if not any(_same(point, first) for first in self.first)]


def space_names() -> list[str]:
    """Names of the shipped spaces."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def space_path(name_or_path: str) -> Path:
    """Where a space is written: a shipped one by name, or one's own file by path (``.yaml``)."""
    path = Path(name_or_path)
    return path if path.suffix in (".yaml", ".yml") else _FOLDER / f"{name_or_path}.yaml"


def _same(a: Mapping[str, Setting], b: Mapping[str, Setting]) -> bool:
    """Whether two configurations are one, but for the rounding of a logarithmic grid."""
    return a.keys() == b.keys() and all(
        value == b[name]
        or (isinstance(value, float) and isinstance(other := b[name], int | float) and math.isclose(value, other))
        for name, value in a.items()
    )
