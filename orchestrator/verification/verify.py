"""``h2h verify``: does all that a study reports follow from its raw ledger, and the ledger from the files beside it?"""

from collections.abc import Sequence

from orchestrator.config.files import frozen_content, read_frozen
from orchestrator.config.folder import LEDGER, STUDY_FILE, no_study
from orchestrator.ledger import protocol, records, registry
from orchestrator.ledger.chain import head_after, unlink
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import LedgerReader, Line, parse_line
from orchestrator.verification.answer import check_comparison
from orchestrator.verification.consistency import check_balance, check_data, check_plan, check_protocol, check_trials
from orchestrator.verification.files import check_asked, check_checkpoints, check_floors, check_items, check_names
from orchestrator.verification.findings import Verification
from trainables.errors import InputError
from trainables.storage import Location


def verify(
    folder: Location, *, head: str | None = None, text: bool = False, rescored: int = 0, seed: int = 0
) -> Verification:
    """Check a study's folder; of a damaged ledger, which records are whole. Raises InputError if there is no study.

    Args:
        folder: the study's.
        head: the ledger's as it was published, or its first 16 or more digits, to compare with.
        text: check the prepared text too: all of it is read.
        rescored: score so many checkpoints again, all if there are not so many, and all floors.
        seed: by which they are chosen.
    """
    found, lines = Verification(), list[Line]()
    written, history, reader = list[records.Record](), History(), LedgerReader(folder / LEDGER)
    for line in reader.lines():
        try:
            record = parse_line(line)
            history.apply(record)
            written.append(record)
            lines.append(line)
        except InputError as error:
            found.damaged.append(f"{line.place}: {error.why}")
    found.records, found.head = len(written), reader.head
    if found.damaged:
        return found
    if history.study is None or history.first is None:
        raise no_study(folder)
    _check_chain(found, lines)
    if head is not None:
        _check_head(found, lines, head)
    data = read_frozen(folder)
    check_protocol(found, written, data, protocol.protocol(frozen_content(data, str(folder / STUDY_FILE))))
    check_plan(found, written)
    check_trials(found, history)
    check_data(found, history)
    check_balance(found, written)
    check_names(found, history, folder)
    check_checkpoints(found, history, folder)
    check_asked(found, history, folder)
    whole = check_items(found, history, folder)
    if check_floors(found, history, folder) and whole:
        check_comparison(found, written, folder)
    _note_standing(found, history.first, folder)
    if text:
        from orchestrator.verification.text import check_text

        check_text(found, history, folder)
    if rescored:
        from orchestrator.verification.rescoring import rescore

        rescore(found, history, folder, rescored, seed)
    return found


def _check_chain(found: Verification, lines: Sequence[Line]) -> None:
    """Each line follows those before it. After one that does not, it is taken at its word: each break is named once."""
    claims = [unlink(line.text).before for line in lines]
    first = next((number for number, before in enumerate(claims) if before is not None), len(lines))
    if first:
        found.notes.append(
            f"{first:,} of {len(lines):,} records have no chain: they were written before there was one, or it was "
            "taken out; nothing binds one to the next"
        )
    follows = lines[first].head if first < len(lines) else ""
    for line, before in zip(lines[first:], claims[first:], strict=True):
        found.check("chain", f"{line.place}: the digest of what is before it", before, follows)
        follows = head_after(before or follows, line.text)


def _check_head(found: Verification, lines: Sequence[Line], head: str) -> None:
    heads = [line.head for line in lines[1:]] + [found.head]
    place = next((number for number, own in enumerate(heads, 1) if own.startswith(head)), None)
    where = "--head"
    if place is not None and place < len(heads):
        where += f", which is that of the first {place:,} of {len(heads):,} records"
    found.check("head", where, head, found.head[: len(head)])


def _note_standing(found: Verification, first: records.StudyRecord, folder: Location) -> None:
    """Which of its storage's studies it is, when it began and now."""
    now, registered = registry.others(folder.parent, first)
    if began := registry.standing(first):
        found.notes.append(f"when it began: {began}")
    if registered:
        found.notes.append(
            f"now: one of {now.studies + 1:,} studies of {folder.parent}; of the others {registry.alike_in_words(now)}"
        )
    else:
        found.notes.append(f"it is not registered in {folder.parent}: it was begun elsewhere, or its entry is gone")
