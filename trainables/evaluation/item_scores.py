"""Scores of one trial item by item: a Parquet file, which is read without unpickling. Letter: I items.

Columns: yardstick, scorer, language, item, value, weight. A language's score is sum(value) / sum(weight), or what the
yardstick's transform makes of it; the transforms are in the file's metadata.
"""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trainables.config import LARGEST
from trainables.errors import InputError, printable
from trainables.evaluation.registry import find_yardstick
from trainables.evaluation.yardstick import Items, Transform, mean_over, shares_of, transformed
from trainables.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa


_TRANSFORMS = b"transforms"
_COMMON = b"common"  # the yardsticks whose items are; files of earlier versions do not say, and have none


class ItemScores(NamedTuple):
    """One yardstick of one model by one scorer."""

    transform: Transform
    language_I: NDArray[np.str_]  # in the order of the file
    item_I: NDArray[np.int64]
    value_I: NDArray[np.float64]
    weight_I: NDArray[np.float64]
    is_common: bool = False
    """As :class:`Items` has it."""

    def some(self, own: NDArray[np.bool_]) -> ItemScores:
        """Of the items that ``own``, (I,), says."""
        columns = ("language_I", "item_I", "value_I", "weight_I")
        return self._replace(**{name: getattr(self, name)[own] for name in columns})

    @property
    def units(self) -> list[Hashable]:
        """The unit of text that each item is, (I,)."""
        numbers = self.item_I.tolist()
        return numbers if self.is_common else list(zip(self.language_I.tolist(), numbers, strict=True))

    @property
    def overall(self) -> float:
        """The score: the transform of the mean of the languages' ratios."""
        return transformed(self.transform, mean_over({name: own.ratio for name, own in self.languages.items()}))

    @property
    def languages(self) -> dict[str, Items]:
        """Each language's own."""
        found = {name: self.language_I == name for name in dict.fromkeys(self.language_I.tolist())}
        return {
            name: Items(self.item_I[own], self.value_I[own], self.weight_I[own], self.is_common)
            for name, own in found.items()
        }

    def influences(self) -> NDArray[np.float64]:
        """What each item does to the score, to first order, (I,): in a language they sum to 0.

        With R the ratio of an item's language, s what the language counts and W the sum of its weights it is
        f'(mean of the R) s (value - R weight) / W: the infinitesimal jackknife of a mean of ratios.
        """
        influence_I, languages = np.zeros(len(self.item_I)), self.languages
        shares = shares_of(languages)
        for name, own in languages.items():
            if weight := own.weight_I.sum():
                residual_I = own.value_I - own.ratio * own.weight_I
                influence_I[self.language_I == name] = shares[name] * residual_I / weight
        return influence_I * (self.overall if self.transform == "exp" else 1.0)


def items_file(folder: Location, trial: str, *, floors: bool = False) -> Location:
    """Where a study in the folder has a trial's, or those of its floors."""
    return folder / f"items/{trial}{'-floors' if floors else ''}.parquet"


def to_parquet(taken: Mapping[str, Mapping[str, Mapping[str, Items]]]) -> bytes:
    """By scorer, yardstick and language the items, as a file. What is infinite becomes the largest number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [
        (yardstick, scorer, language, own)
        for scorer, yardsticks in taken.items()
        for yardstick, languages in yardsticks.items()
        for language, own in languages.items()
    ]
    lengths = [len(own.item_I) for *_, own in parts]
    names = (np.repeat(np.array([part[i] for part in parts], dtype=str), lengths) for i in range(3))
    numbers = (np.concatenate([own[i] for *_, own in parts]) for i in range(3))
    item_I, value_I, weight_I = numbers
    columns = [*names, item_I, np.clip(value_I, -LARGEST, LARGEST), weight_I]
    transforms = {yardstick: find_yardstick(yardstick).transform for yardstick, *_ in parts}
    common = sorted({yardstick for yardstick, _, _, own in parts if own.is_common})
    schema = _schema().with_metadata({_TRANSFORMS: json.dumps(transforms), _COMMON: json.dumps(common)})
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(content: bytes, where: str) -> dict[tuple[str, str], ItemScores]:
    """By yardstick and scorer what :func:`to_parquet` wrote. Raises InputError: it is no such file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content))
        metadata = table.schema.metadata or {}
        transforms, common = json.loads(metadata[_TRANSFORMS]), frozenset(json.loads(metadata.get(_COMMON, "[]")))
        _require_sound(table, transforms)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "the scores of a trial's items cannot be read",
            where=where,
            why=printable(str(error).strip().split("\n")[0])[:200],
            remedy="put back what was there; without the file the study's answer knows nothing of this text's spread",
        ) from error
    names = [table.column(i).cast(pa.string()).to_numpy() for i in range(3)]
    item_I, value_I, weight_I = (table.column(i).to_numpy() for i in range(3, 6))
    found = {}
    for yardstick, scorer in dict.fromkeys(zip(names[0], names[1], strict=True)):
        own = (names[0] == yardstick) & (names[1] == scorer)
        language_I = names[2][own].astype(str)
        numbers = item_I[own], value_I[own], weight_I[own]
        found[yardstick, scorer] = ItemScores(transforms[yardstick], language_I, *numbers, yardstick in common)
    return found


def _schema() -> pa.Schema:
    import pyarrow as pa

    name, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    kinds = {"yardstick": name, "scorer": name, "language": name, "item": pa.int64(), "value": number, "weight": number}
    return pa.schema([pa.field(key, kind, nullable=False) for key, kind in kinds.items()])


def _require_sound(table: pa.Table, transforms: Mapping[str, str]) -> None:
    """Raises ValueError."""
    if not table.schema.equals(_schema()):
        raise ValueError("its columns are others")
    keys = table.select(["yardstick", "scorer", "language", "item"])
    value_I, weight_I = (table.column(name).to_numpy() for name in ("value", "weight"))
    if not len(table) or any(column.null_count for column in table.columns):
        raise ValueError("values are missing")
    if not (np.isfinite(value_I).all() and np.isfinite(weight_I).all() and (weight_I >= 0).all()):
        raise ValueError("a value is not finite, or a weight negative")
    if keys.group_by(keys.column_names).aggregate([]).num_rows < len(table):
        raise ValueError("an item is there twice")
    for yardstick in table.column("yardstick").unique().to_pylist():
        if transforms[yardstick] not in get_args(Transform):
            raise ValueError(f"there is no transform {transforms[yardstick]}")
