"""What a study's configuration is made of: frozen records, and names that stand for members of a registry."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from trainables.errors import InputError, nearest

LARGEST = 1e30  # no number of a record is larger: sums and squares of some stay finite

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Several = Annotated[int, Field(ge=1, le=100_000)]  # seeds, workers: what costs something each
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=200)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]  # no dots: --set says it


class Config(BaseModel):
    """Base of all configuration records. Frozen, typed; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class _Named(Protocol):
    name: ClassVar[str]


Member = TypeVar("Member", bound=_Named)


class Registry(Generic[Member]):
    """Classes by their ``name``: this package's, and those of others' entry points, imported when asked for."""

    def __init__(self, kind: str, group: str, base: type[Member], own: Iterable[type[Member]]) -> None:
        self.kind, self.group, self._base = kind, group, base
        self._found = {member.name: member for member in own}

    @cached_property
    def _brought(self) -> dict[str, EntryPoint]:
        brought: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, _package(point))):
            if point.name in self._found or point.name in brought:
                other = _package(brought[point.name]) if point.name in brought else "headtohead"
                raise InputError(
                    f"there are two {self.kind}s called '{point.name}'",
                    where=f"the entry point {point.name} in the group {self.group} of {_package(point)}",
                    why=f"the other is that of {other}",
                    remedy=f"pip uninstall {_package(point)}, or another name in that package",
                )
            brought[point.name] = point
        return brought

    def names(self) -> list[str]:
        """This package's first. Raises InputError where two members have one name."""
        return list(dict.fromkeys([*self._found, *self._brought]))

    def __iter__(self) -> Iterator[type[Member]]:
        return map(self.find, self.names())

    def find(self, name: str, where: str = "") -> type[Member]:
        """The member of that name. Raises InputError: there is none, or two, or its package cannot be imported."""
        if name not in self.names():
            raise InputError(f"unknown {self.kind} '{name}'", where=where, remedy=nearest(name, self.names()))
        if name not in self._found:
            self._found[name] = self._load(self._brought[name])
        return self._found[name]

    def _load(self, point: EntryPoint) -> type[Member]:
        try:
            member = point.load()
        except Exception as error:  # the package is another's: it may raise anything
            raise self._unusable(point, f"{type(error).__name__}: {error}") from error
        if not (isinstance(member, type) and issubclass(member, self._base)):
            raise self._unusable(point, f"{point.value} is no class derived from {self._base.__name__}")
        if getattr(member, "name", None) != point.name:
            raise self._unusable(point, f"{point.value} is called '{getattr(member, 'name', '')}'")
        return member

    def _unusable(self, point: EntryPoint, why: str) -> InputError:
        return InputError(
            f"the {self.kind} '{point.name}' of the package {_package(point)} cannot be used",
            where=f"the entry point {point.name} = {point.value} in the group {self.group}",
            why=why,
            remedy=f"mend the package, or pip uninstall {_package(point)}",
        )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
