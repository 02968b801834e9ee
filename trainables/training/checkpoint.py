"""Checkpoints: safetensors and JSON, no pickles. A checkpoint is there whole or not at all.

The training step waits for a copy to host memory only; a thread writes it. Sharded tensors (FSDP) are written by the
workers that hold them, and read again by any number of workers, each only the files that its rows lie in.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from trainables.errors import InputError
from trainables.storage import Location
from trainables.training.checkpoint_record import (
    BEFORE_ALL,
    START_FILE,
    STATE_FILE,
    AttemptOrder,
    CheckpointFolders,
    CheckpointRecord,
    DamagedError,
    FileRecord,
    Place,
    StartRecord,
    SupersededError,
    WorkerRecord,
    unfitting,
)
from trainables.training.checkpoint_tensors import GroupReader, Part, Tensors
from trainables.training.state import TrialState
from trainables.training.world import World

KEPT = 2  # checkpoints kept of a trial: the newest and, should that be damaged, the one before

_POLL_SECONDS = 0.2
_OTHERS_SECONDS = 600.0  # how long the first worker's writer waits for the others' files


class Saved(NamedTuple):
    """A checkpoint that was read."""

    step: int
    finished: bool
    state: TrialState
    tensors: dict[str, dict[str, Tensor]]
    """By group and name: on the CPU and whole, or sharded as the tensor of that name that was given."""
    model_digest: str  # of the model's files


class Checkpoints(CheckpointFolders):
    """The checkpoints of one trial, of which this process's workers are one start, in the attempt of that ``order``.

    ``start-0001/step-00000123/`` has a safetensors file a group of tensors and ``state.json``.

    A group is one file, ``model.safetensors``; if it is sharded, one a worker, ``model-00001-of-00002.safetensors``.
    ``state.json`` is written last: where it is, the checkpoint is whole. It names the files with their checksums.
    """

    def __init__(self, folder: Location, order: AttemptOrder = BEFORE_ALL) -> None:
        super().__init__(folder)
        self.order = order
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[str] | None = None
        self._closing = threading.Event()
        self._starts: list[int] = []  # the numbers that this process has claimed; it writes into the last

    def save(self, step: int, groups: Mapping[str, Tensors], state: TrialState, world: World | None = None) -> None:
        """Copy a checkpoint to host memory and begin to write it; all workers call it at the same step.

        What the loop reports meanwhile may be rolled back: after a crash the trial goes on from the newest whole
        checkpoint, and repeats what the ledger then drops. A run's last report waits, and one at a rung (:meth:`wait`,
        whose errors of the checkpoint before it raises). Without the group ``optimiser`` the run is finished. The state
        is the same on all workers. Raises SupersededError where a later attempt began.
        """
        world = world or World()
        self.wait()
        if not self._starts:
            self._begin(None, world)
        # A worker's files of an earlier attempt at the same step must not count as this one's.
        number = world.sum_integers(secrets.randbits(62) if world.rank == 0 else 0)
        parts = {group: Part.copy(tensors, world) for group, tensors in groups.items()}
        if world.device.type == "cuda":
            torch.cuda.current_stream(world.device).synchronize()
        random, finished = _random_state(world.device), "optimiser" not in groups
        state = state.model_copy(deep=True)

        def write() -> str:
            folder = self.place(self._starts[-1], step).folder
            files: dict[str, FileRecord] = {}
            for group, part in parts.items():
                files |= part.write(folder, group, world)
            mine = WorkerRecord(save=number, files=files, random=random)
            if world.rank > 0:
                (folder / f"worker-{world.rank}.json").write_json(mine.model_dump(mode="json"))
                return ""
            others = [folder / f"worker-{rank}.json" for rank in range(1, world.size)]
            workers = [mine, *(self._await(other, number) for other in others)]
            record = CheckpointRecord(
                step=step,
                finished=finished,
                state=state,
                files={name: file for worker in workers for name, file in worker.files.items()},
                random=tuple(worker.random for worker in workers),
            )
            self.require_newest()
            (folder / STATE_FILE).write_json(record.to_json())
            for other in others:
                other.delete()
            self._sweep(step)
            return record.model_digest

        self._writing = self._pool.submit(write)

    def wait(self) -> str | None:
        """Until this worker's part of the last checkpoint is written; the first worker's: until all of it is. Then it
        gives the digest of the model's files.

        Raises FullDiskError (the checkpoints before are whole), OSError, SupersededError, or TimeoutError for another
        worker's part.
        """
        writing, self._writing = self._writing, None
        return (writing.result() or None) if writing is not None else None

    def close(self) -> None:
        """End the writer, whatever comes of it: what it can finish without other workers it finishes."""
        self._closing.set()
        if self._writing is not None:
            wait_for([self._writing])
        self._pool.shutdown()

    def require_newest(self) -> None:
        """Raises SupersededError if the trial was started again elsewhere: this process was thought dead."""
        if self._starts and max(self.starts(), default=0) > self._starts[-1]:
            raise self._superseded()

    def _begin(self, place: Place | None, world: World) -> None:
        """Begin a start that goes on from a checkpoint, None: from none; all workers call it. Raises SupersededError,
        on all of them, where a later attempt began."""
        number = world.sum_integers(self._claim(place) if world.rank == 0 else 0)
        if not number:
            raise self._superseded()
        self._starts.append(number)

    def _claim(self, place: Place | None) -> int:
        """A new start's number; 0 where a later attempt has one."""
        (session, attempt), (step, start) = self.order, place[:2] if place is not None else (0, 0)
        record = StartRecord(step=step, start=start, session=session, attempt=attempt, token=secrets.token_hex(16))
        while True:  # who claims a number has seen all below it, so that none is a later attempt's
            claims = self.claims()
            if any(claim is not None and claim.order > self.order for claim in claims.values()):
                return 0
            number = max(claims, default=0) + 1
            if (self.start(number) / START_FILE).write_new(record.model_dump_json().encode()):
                return number

    def _superseded(self) -> SupersededError:
        return SupersededError(f"the trial was started again elsewhere ({self.folder})")

    def _sweep(self, newest: int) -> None:
        """Remove what is older than the checkpoints that are kept, and what was not finished before the newest."""
        kept, own = {place[:2] for place in self.whole()[-KEPT:]}, self._starts[-1]
        for start in self.starts():
            for place in self.begun(start) if start <= own else ():
                if place[:2] not in kept and (start < own or place.step < newest):
                    place.folder.delete()

    def _await(self, file: Location, number: int) -> WorkerRecord:
        """Another worker's record of this checkpoint. Files, not a collective: a thread must not disturb training's."""
        deadline = time.monotonic() + _OTHERS_SECONDS
        while True:
            with suppress(FileNotFoundError, ValidationError):  # there is none yet, or one that other code wrote
                record = WorkerRecord.model_validate_json(file.read_bytes())
                if record.save == number:  # not of an earlier attempt
                    return record
            if time.monotonic() > deadline or self._closing.is_set():
                raise TimeoutError(f"the checkpoint is not whole: {file} was not written")
            self._closing.wait(_POLL_SECONDS)

    def load_newest(
        self, wanted: Callable[[TrialState], Mapping[str, Tensors]], world: World | None = None
    ) -> tuple[Saved | None, list[str]]:
        """Read the newest checkpoint that is undamaged, and restore the random state; all workers call it.

        What this process writes from now on goes on from it, and no earlier start's checkpoint beyond it counts.

        It may have been written by any number of workers, sharded or not. A damaged checkpoint is passed over for the
        one before, and removed. ``wanted`` gives the groups of tensors that a state is for: what is read must have
        their names and shapes, and is sharded as they are. Of the ``optimiser`` they may be some of the tensors; the
        others are read whole. A group that a finished run did not save is left out.

        Returns what was read, None where there is no checkpoint, and what a person should know of it. Raises
        InputError: it does not fit the tensors, or all are damaged; SupersededError: a later attempt began.
        """
        world, before = world or World(), len(self._starts)
        while True:
            # What the first worker sees, newest first: the others may not see all of them yet.
            seen = self.whole(without=self._starts[before:])[::-1] if world.rank == 0 else []
            if (loaded := self._load_first(seen, wanted, world)) is not None:
                return loaded

    def _load_first(
        self, seen: Sequence[Place], wanted: Callable[[TrialState], Mapping[str, Tensors]], world: World
    ) -> tuple[Saved | None, list[str]] | None:
        """As :meth:`load_newest`, of these; None where what was thought dead has removed them for newer ones."""
        damaged: list[tuple[Place, str]] = []
        for number in range(world.sum_integers(len(seen))):
            start, step = (seen[number].start, seen[number].step) if world.rank == 0 else (0, 0)
            place = self.place(world.sum_integers(start), world.sum_integers(step))
            record, found, problem = None, None, ""
            try:
                record = _record(place)
            except DamagedError as error:
                problem = str(error)
            if not _anywhere(problem, world):
                assert record is not None
                if not record.finished:  # first: what was thought dead might go on, and remove it while it is read
                    self._begin(place, world)
                try:
                    found = self._read(record, place.folder, wanted)
                except DamagedError as error:
                    problem = str(error)
                if _anywhere(problem, world):
                    found = None
            if record is None or found is None:
                damaged.append((place, problem or "another worker cannot read its part"))
                continue
            _restore_random_state(record, place.folder, world)
            if world.rank == 0:
                for bad, _ in damaged:
                    bad.folder.delete()
            return found, [
                f"the checkpoint of step {bad.step} was damaged and is removed ({why}); going on from step {place.step}"
                for bad, why in damaged
            ]
        if damaged:
            if world.sum_integers(int(world.rank == 0 and _has_vanished(damaged))):
                return None
            newest, why = damaged[0]
            raise _damaged(newest.folder, f"{why}; there is no undamaged one before")
        self._begin(None, world)
        return None, []

    def read_model(self, place: Place) -> Saved:
        """Of the tensors the model's alone, whole and on the CPU. Raises InputError where the checkpoint is damaged."""
        try:
            return self._read(_record(place), place.folder, lambda state: {"model": {}})
        except DamagedError as error:
            raise _damaged(place.folder, str(error)) from error

    @staticmethod
    def _read(
        record: CheckpointRecord, folder: Location, wanted: Callable[[TrialState], Mapping[str, Tensors]]
    ) -> Saved:
        tensors = {}
        for group, layout in wanted(record.state).items():
            files = {name: file for name, file in record.files.items() if file.group == group}
            if files:
                tensors[group] = GroupReader(folder, group, files, layout).read()
            elif not record.finished:
                if layout:
                    raise unfitting(folder, "configuration", f"it has no {group}")
                tensors[group] = {}  # an optimiser that has made no step
        return Saved(record.step, record.finished, record.state, tensors, record.model_digest)


def _record(place: Place) -> CheckpointRecord:
    record = CheckpointRecord.read(place.folder)
    if record.step != place.step:
        raise DamagedError(f"its state.json is of step {record.step}")
    return record


def _anywhere(problem: str, world: World) -> bool:
    """Whether any worker has one, the same answer for all."""
    return world.largest(float(bool(problem))) > 0


def _has_vanished(damaged: Sequence[tuple[Place, str]]) -> bool:
    """Whether one of these is no longer what was listed: its record is written last, and was there."""
    return any(not (place.folder / STATE_FILE).exists() for place, _ in damaged)


def _damaged(folder: Location, why: str) -> InputError:
    return InputError(
        "the checkpoint cannot be loaded",
        where=str(folder),
        why=why,
        remedy="remove that folder: the trial goes on from the checkpoint before, or from its start",
    )


def _random_state(device: torch.device) -> dict[str, str]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {name: state.numpy().tobytes().hex() for name, state in states.items()}


def _restore_random_state(record: CheckpointRecord, folder: Location, world: World) -> None:
    """Each worker's own; a worker that was not there when it was saved keeps what it was seeded with."""
    if world.rank >= len(record.random):
        return
    for name, text in record.random[world.rank].items():
        state = torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
        if name == "cpu":
            if state.shape != torch.get_rng_state().shape:
                raise unfitting(folder, "version", "the random state is that of another version of torch")
            torch.set_rng_state(state)
        elif world.device.type == "cuda":
            torch.cuda.set_rng_state(state, world.device)
