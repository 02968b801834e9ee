"""The prepared text, held against the ledger: shards, the files beside them, and what trials say they trained on."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from orchestrator.config.files import open_frozen
from orchestrator.config.folder import tasks_in
from orchestrator.ledger.history import History
from orchestrator.scheduling.trained import corpus_of
from orchestrator.verification.findings import Verification
from trainables.corpora.stream.checksums import is_shard_intact
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream, sequence_digest
from trainables.errors import InputError
from trainables.storage import Location
from trainables.tasks.prepared import Tasks

_BLOCK_TOKENS = 1 << 22  # read at once


def check_text(found: Verification, history: History, folder: Location) -> None:
    """Read all of it, and the stream of every seed as far as a trial went. Raises InputError if it is not there."""
    spec = open_frozen(folder)
    if history.corpus is None:
        found.notes.append("no text was prepared yet")
        return
    corpus = corpus_of(history, spec, folder)
    found.check("text", f"{corpus.folder}: fingerprint", history.corpus.fingerprint, corpus.manifest.fingerprint)
    if history.corpus.files:
        found.check("text", str(corpus.folder), dict(history.corpus.files), dict(corpus.digests()))
    else:
        found.notes.append("the ledger has no digest of the manifest: only what trials trained on is bound to it")
    check_tasks(found, history, tasks_in(corpus.folder.parent.parent))
    sound = len(found.mismatches)
    for own in corpus.manifest.splits.values():
        for shard in (shard for counts in own.values() for shard in counts.shards):
            intact = is_shard_intact(corpus.folder, shard, afresh=True)
            found.check("text", f"{corpus.folder / shard.file}: as the manifest says", intact, True)
    if len(found.mismatches) == sound:
        _check_streams(found, history, corpus, spec.corpora.alpha, spec.corpora.maximum_repetition)


def check_tasks(found: Verification, history: History, store: Location) -> None:
    """The prepared examples of downstream tasks are those that the ledger names."""
    if history.tasks is None:
        return
    tasks = Tasks(store / history.tasks.digest)
    for name in history.tasks.tasks:
        try:
            known = name in tasks.manifest.tasks and bool(tasks.examples(name, "test", tasks.languages(name)[0]))
        except InputError as error:
            found.check("tasks", error.where, error.why, "as the ledger says")
            return
        found.check("tasks", f"{name}: its prepared examples are there", known, True)


def _check_streams(
    found: Verification, history: History, corpus: PackedCorpus, alpha: float, maximum_repetition: float
) -> None:
    """The digests of what trials trained on are those of the seed's first sequences."""
    reported: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)  # by seed and number of sequences
    for name, trial in history.trials.items():
        for measure in trial.measures:
            where = f"{name} step {measure.step}: the text trained on"
            reported[trial.seed].setdefault(sum(measure.mix.values()), (where, measure.digest))
    block = max(1, _BLOCK_TOKENS // corpus.manifest.sequence_length)
    for seed, points in sorted(reported.items()):
        stream, digest, place = TokenStream(corpus, seed, alpha, maximum_repetition), 0, 0
        for end, (where, said) in sorted(points.items()):
            for first in range(place, end, block):
                digest += sequence_digest(stream.take(np.arange(first, min(first + block, end))))
            place = end
            found.check("text", where, said, f"{digest % (1 << 64):016x}")
