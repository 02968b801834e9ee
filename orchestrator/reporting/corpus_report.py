"""What ``h2h corpus`` says of prepared text, as one value."""

from __future__ import annotations

from typing import Literal

from orchestrator.config.study import StudySpec
from orchestrator.reporting.corpus import sequences_of_a_trial
from trainables.config import Config
from trainables.corpora.preparation.prepare import warnings
from trainables.corpora.stream.manifest import LanguageCounts, Overlap, Split
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream


class CorpusCounts(Config):
    """One language of one split."""

    documents: int
    tokens: int
    sequences: int
    words: int
    """Runs of characters between white space."""
    characters: int
    unknown_tokens: int


class CorpusReport(Config):
    """Prepared text."""

    format: Literal["headtohead.corpus/1"] = "headtohead.corpus/1"
    folder: str
    fingerprint: str
    vocabulary_size: int
    sequence_length: int
    languages: tuple[str, ...]
    splits: dict[Split, dict[str, CorpusCounts]]
    target_mix: dict[str, float]
    """Share of the stream, by language."""
    trial_sequences: float | None
    """That a trial of the study's budget reads; None where its unit does not tell."""
    overlap: dict[Split, dict[str, Overlap]]
    """How much of the held-out text stands in the training text too."""
    empty_records: int
    duplicates: int
    warnings: tuple[str, ...]


def corpus_report(corpus: PackedCorpus, spec: StudySpec) -> CorpusReport:
    """The text of a study, as it was prepared."""
    manifest = corpus.manifest
    stream = TokenStream(corpus, 0, spec.corpora.alpha, spec.corpora.maximum_repetition)
    return CorpusReport(
        folder=corpus.folder.uri,
        fingerprint=manifest.fingerprint,
        vocabulary_size=manifest.vocabulary_size,
        sequence_length=manifest.sequence_length,
        languages=corpus.languages,
        splits={
            split: {language: _counts(counts) for language, counts in own.items()}
            for split, own in manifest.splits.items()
        },
        target_mix={name: float(share) for name, share in zip(corpus.languages, stream.share_l, strict=True)},
        trial_sequences=sequences_of_a_trial(spec),
        overlap=manifest.overlap,
        empty_records=sum(tally.empty for tally in manifest.sources),
        duplicates=sum(tally.duplicates for tally in manifest.sources),
        warnings=tuple(warnings(manifest)),
    )


def _counts(counts: LanguageCounts) -> CorpusCounts:
    return CorpusCounts(**{name: getattr(counts, name) for name in CorpusCounts.model_fields})
