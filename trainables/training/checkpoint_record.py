"""What a checkpoint's ``state.json`` says, and whether it is as it was written."""

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, StringConstraints, ValidationError

from trainables.config import Config, Count
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.state import TrialState

STATE_FILE = "state.json"
START_FILE = "start.json"
Hexadecimal = Annotated[str, StringConstraints(pattern="^([0-9a-f]{2})*$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z]+(-\d{5}-of-\d{5})?\.safetensors$")]


class DamagedError(Exception):
    """A checkpoint's files are not as they were written."""


class SupersededError(Exception):
    """The trial was started again, as this process was thought dead."""


class ShardRecord(Config):
    """Which part of a sharded tensor a file has."""

    shape: Annotated[tuple[Count, ...], Field(min_length=1)]  # of the whole tensor
    first_row: Count
    end_row: Count  # the row after the last


class FileRecord(Config):
    """A file of tensors."""

    group: str
    checksum: str
    shards: Mapping[str, ShardRecord]  # of the sharded tensors in it
    whole: bool  # whether it has whole tensors too


class WorkerRecord(Config):
    """What a worker has written of a checkpoint."""

    save: int  # which attempt at the checkpoint it belongs to
    files: Mapping[FileName, FileRecord]
    random: Mapping[str, Hexadecimal]  # torch's random state, by device type


class CheckpointRecord(Config):
    """A whole checkpoint."""

    step: Count
    finished: bool  # the run has ended: there are weights alone
    state: TrialState
    files: Mapping[FileName, FileRecord]
    random: tuple[Mapping[str, Hexadecimal], ...]  # by worker

    @property
    def model_digest(self) -> str:
        """Of the model's files: names, what is in them, and their checksums."""
        files = {name: file.model_dump(mode="json") for name, file in self.files.items() if file.group == "model"}
        return _checksum_of(files)

    def to_json(self) -> dict[str, Any]:
        """With a checksum of itself."""
        content = self.model_dump(mode="json")
        return {"checksum": _checksum_of(content), **content}

    @classmethod
    def read(cls, folder: Location) -> Self:
        """The record in a checkpoint's folder. Raises DamagedError, or InputError where another version wrote it."""
        try:
            content = json.loads((folder / STATE_FILE).read_bytes())
        except FileNotFoundError as error:
            raise DamagedError("state.json is missing") from error
        except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
            raise DamagedError("state.json is cut short or overwritten") from error
        if not isinstance(content, dict):
            raise DamagedError("state.json is overwritten")
        if "checksum" not in content:
            raise unfitting(folder, "version", "its state.json has no checksum")
        if content.pop("checksum") != _checksum_of(content):
            raise DamagedError("state.json is not as it was written (its checksum differs)")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise unfitting(folder, "version", f"its state.json: {key}: {first['msg']}") from error


def _checksum_of(content: dict[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True).encode())


def unfitting(folder: Location, what: str, why: str) -> InputError:
    """The error of a checkpoint that is undamaged, and not the trial's."""
    return InputError(
        f"the checkpoint is of another {what}",
        where=str(folder),
        why=why,
        remedy="resume the study with the code and configuration that made it",
    )


class AttemptOrder(NamedTuple):
    """Which of two attempts at a trial is the later one, as the study counts them. One that was thought dead may come
    to write long after the one that followed it."""

    session: int
    """Of the study, from 1."""
    number: int  # of the attempt in it

    def as_beginning(self) -> "AttemptOrder":
        """Of what an attempt at another trial begins this one with: before all attempts of this one's own, and among
        each other as those of the other one."""
        return AttemptOrder(0, self.session * 10**9 + self.number)


BEFORE_ALL = AttemptOrder(0, 0)


class StartRecord(Config):
    """A start of a trial's workers, and the checkpoint that they went on from."""

    step: Count  # its step; 0: they went on from none
    start: Count  # the number of the start that wrote it
    session: Count  # of the study that started them
    attempt: Count  # at the trial
    token: str  # that tells it from any other

    @property
    def order(self) -> AttemptOrder:
        """Of the attempt that it belongs to."""
        return AttemptOrder(self.session, self.attempt)


class Place(NamedTuple):
    """Where a checkpoint lies."""

    step: int
    start: int  # the number of the start that wrote it
    folder: Location


class CheckpointFolders:
    """Where a trial's checkpoints lie: each start of its workers has a folder, and in it one for each checkpoint.

    Workers that were thought dead may go on and write. So those checkpoints count that the newest start wrote, and
    those on the way to it: of the start that it went on from, up to the step from which it did, and so on. Starts are
    numbered as they claim their folders, an attempt's never after a later attempt's.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    def whole(self, without: Collection[int] = ()) -> list[Place]:
        """The whole checkpoints that count, by step, ascending; ``without`` these starts, those that count else."""
        claims, found = self.claims(), dict[int, Place]()
        on_the_way, limit = max(claims.keys() - set(without), default=0), math.inf
        for start, claim in reversed(claims.items()):
            if start == on_the_way:
                for place in self.begun(start):
                    if place.step <= limit and place.step not in found and (place.folder / STATE_FILE).exists():
                        found[place.step] = place
                # What cannot be read says of nothing before that it counts.
                on_the_way, limit = (claim.start, min(limit, claim.step)) if claim is not None else (0, 0)
        return [found[step] for step in sorted(found)]

    def steps(self) -> list[int]:
        """The steps of :meth:`whole`, ascending."""
        return [place.step for place in self.whole()]

    def begun(self, start: int) -> list[Place]:
        """A start's checkpoints, whole or not, by step, ascending."""
        names = (re.fullmatch(r"step-(\d{8,18})", name) for name in self.start(start).names())
        return [self.place(start, step) for step in sorted(int(name[1]) for name in names if name is not None)]

    def place(self, start: int, step: int) -> Place:
        """Where a start's checkpoint of a step lies."""
        return Place(step, start, self.start(start) / f"step-{step:08d}")

    def claims(self) -> dict[int, StartRecord | None]:
        """What each start went on from, by its number, ascending; None where that cannot be read. A folder without a
        record or a checkpoint is none: its maker was killed, or found no space, before it had claimed it."""
        found: dict[int, StartRecord | None] = {}
        for start in self.starts():
            try:
                found[start] = StartRecord.model_validate_json((self.start(start) / START_FILE).read_bytes())
            except ValidationError:
                found[start] = None
            except FileNotFoundError:
                if self.begun(start):
                    found[start] = None
        return found

    def starts(self) -> list[int]:
        """Their numbers, ascending, from 1."""
        names = (re.fullmatch(r"start-(\d{4,})", name) for name in self.folder.names())
        return sorted(int(name[1]) for name in names if name is not None)

    def start(self, number: int) -> Location:
        """The folder of a start."""
        return self.folder / f"start-{number:04d}"
