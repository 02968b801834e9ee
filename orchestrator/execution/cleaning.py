"""Checkpoints that nothing needs any more: what ``h2h clean`` removes.

Of a trial that has ended one checkpoint is needed, the newest whole one: it has the model that is exported, scored
again and asked downstream tasks, or what an extended search goes on from. The one before it is kept while a trial runs,
should the newest be damaged; here it goes once the newest is read and found undamaged. A trial that broke or was lost
is never taken up again, and needs none. A trial that has not ended keeps all, and so does a folder that the ledger does
not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from orchestrator.config.folder import LEDGER
from orchestrator.ledger.alone import alone
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.records import BROKEN
from orchestrator.ledger.trials import TrialHistory
from trainables.config import Config
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders, CheckpointRecord, DamagedError, Place


class Unneeded(Config):
    """A checkpoint that nothing needs."""

    trial: str
    step: int
    folder: str
    num_bytes: int
    why: str


class Cleaning(Config):
    """What a study's checkpoints are, and which of them nothing needs."""

    format: Literal["headtohead.clean/1"] = "headtohead.clean/1"
    folder: str
    """The study's."""
    removed: bool
    """Whether the unneeded ones are gone; else they are still there."""
    unneeded: tuple[Unneeded, ...]
    kept: int
    """Other checkpoints."""
    kept_bytes: int
    notes: tuple[str, ...]
    """What a person must know: of checkpoints that are damaged, and why more is kept."""

    @property
    def freed_bytes(self) -> int:
        """Of the unneeded ones."""
        return sum(one.num_bytes for one in self.unneeded)


def unneeded_checkpoints(folder: Location) -> Cleaning:
    """Look; nothing is removed. Checkpoints that must vouch for others are read whole. Raises InputError if there is no
    study, or its ledger is damaged."""
    history = read_history(folder / LEDGER, keeps_curves=False)
    unneeded, kept, notes = list[Unneeded](), list[Place](), list[str]()
    for name in (folder / "trials").names():
        folders = CheckpointFolders(folder / "trials" / name)
        needed, why, note = _needed(history, name, folders)
        notes += [note] if note else []
        for place in _all(folders):
            if needed is None or place.folder.uri in needed:
                kept.append(place)
                continue
            size = place.folder.size_bytes()
            unneeded.append(Unneeded(trial=name, step=place.step, folder=place.folder.uri, num_bytes=size, why=why))
    return Cleaning(
        folder=folder.uri,
        removed=False,
        unneeded=tuple(unneeded),
        kept=len(kept),
        kept_bytes=sum(place.folder.size_bytes() for place in kept),
        notes=tuple(notes),
    )


def remove_checkpoints(found: Cleaning, say: Callable[[str], None] = lambda _: None) -> Cleaning:
    """Remove what was found, if it still is unneeded. Raises InputError if another process leads the study."""
    folder = Location(found.folder)
    with alone(folder / LEDGER, say) as still_alone:
        now = {one.folder for one in unneeded_checkpoints(folder).unneeded}
        chosen = tuple(one for one in found.unneeded if one.folder in now)
        for one in chosen:
            still_alone()
            Location(one.folder).delete()
    return found.model_copy(update={"removed": True, "unneeded": chosen})


def _all(folders: CheckpointFolders) -> Iterator[Place]:
    for start in folders.starts():
        yield from folders.begun(start)


def _needed(history: History, name: str, folders: CheckpointFolders) -> tuple[set[str] | None, str, str]:
    """The folders that are needed, None: all of them; why the others are not; and what a person must know."""
    trial = history.trials.get(name)
    if trial is None or trial.outcome is None or trial.runs:
        return None, "", ""
    if trial.outcome in ("lost", *BROKEN):
        return (
            set(),
            f"the trial {trial.outcome if trial.outcome != 'lost' else 'was lost'}, and is not taken up again",
            "",
        )
    whole = folders.whole()
    problem = _damage(trial, whole)
    if problem:
        return None, "", f"{name}: {problem}; its checkpoints are all kept"
    return {whole[-1].folder.uri}, f"the one of step {whole[-1].step} is newer and undamaged", ""


def _damage(trial: TrialHistory, whole: list[Place]) -> str:
    """Why the newest checkpoint of an ended trial cannot vouch for itself; empty where it can."""
    if not whole:
        return "no checkpoint is whole"
    newest = whole[-1]
    try:
        record = CheckpointRecord.read(newest.folder)
    except (DamagedError, InputError) as error:
        return f"the checkpoint of step {newest.step} cannot be read: {error}"
    if record.step != newest.step:
        return f"the checkpoint of step {newest.step} says that it is of step {record.step}"
    if trial.outcome == "completed" and not record.finished:
        return f"the checkpoint of step {newest.step} is not that of its end"
    for name, file in record.files.items():
        own = newest.folder / name
        if not own.exists() or checksum(own.read_bytes()) != file.checksum:
            return f"{name} of the checkpoint of step {newest.step} is damaged"
    return ""
