"""A study's folder: how it is known, and what to say where there is none."""

from trainables.errors import InputError, nearest, storage_errors
from trainables.storage import Location

STUDY_FILE = "study.yaml"
LEDGER = "ledger"


def tasks_in(storage: Location) -> Location:
    """Where a storage has prepared downstream tasks, each set of them in a folder by its digest."""
    return storage / "tasks"


def no_study(folder: Location) -> InputError:
    """Why nothing of a study can be read in a folder, and where there is something."""
    if (folder / STUDY_FILE).exists():
        return InputError(
            f"the study in {folder} has not begun to record anything",
            where=str(folder / LEDGER),
            why="it has just been started, or was stopped before its first record",
            remedy=f"h2h resume {folder}   (in Python: Study.open({folder.uri!r}).resume())",
        )
    if is_starting(folder):
        return InputError(
            f"the study in {folder} has not begun",
            where=str(folder),
            why="it is being started now, or was refused as it started",
            remedy="wait, if it is being started; else h2h run STUDY --resume   begins it",
        )
    if (folder / LEDGER).names():
        return InputError(
            "the study itself is missing",
            where=str(folder / STUDY_FILE),
            why="the ledger beside it says what the study is by this file",
            remedy="copy the folder again from where the study ran",
        )
    inside, beside, here = studies_in(folder), studies_in(folder.parent), Location(folder.name)
    if (here / STUDY_FILE).exists():
        remedy = f"the folder ./{folder.name} has one: name it so, with ./"
    elif inside:
        remedy = f"one of those in it: {', '.join(str(folder / name) for name in inside)}"
    elif any(map(is_text, names_in(folder))):
        remedy = f"h2h init {folder}   writes a study for the text in it"
    elif beside:
        remedy = nearest(folder.name, beside)
    else:
        remedy = "h2h run STUDY makes one: of a study file, or a shipped study (h2h list)"
    return InputError(f"no study lies in {folder}", where=str(folder), why=f"it has no {STUDY_FILE}", remedy=remedy)


def is_starting(folder: Location) -> bool:
    """Whether a process leads, or led, a study there that has neither a file nor a record yet."""
    ledger = folder / LEDGER
    names = ledger.names()
    segments = [ledger / name for name in names if name.endswith(".jsonl")]
    return bool(names) and not (folder / STUDY_FILE).exists() and not any(b"\n" in s.read_bytes() for s in segments)


def anew(folder: Location) -> str:
    """What makes another study of the one in a folder."""
    return f"h2h run {folder / STUDY_FILE if folder.local else 'ITS_FILE'} --set name=ANOTHER   makes a new one"


def studies_in(folder: Location) -> list[str]:
    """Names of the studies that have begun in a folder, sorted; none where it cannot be read: they are but hints."""
    try:
        return [name for name in names_in(folder) if (folder / name / STUDY_FILE).exists()]
    except storage_errors():
        return []


def names_in(folder: Location) -> list[str]:
    """What lies in a folder; nothing where it cannot be read."""
    try:
        return folder.names()
    except storage_errors():
        return []


def is_text(name: str) -> bool:
    """Whether a file of that name is text to train on, by its suffix."""
    from trainables.corpora.reading.files import suffix_of  # it takes a while, and only a mistake needs it

    return suffix_of(name) is not None
