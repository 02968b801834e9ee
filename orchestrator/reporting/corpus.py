"""A prepared corpus as tables: how much text each language has, how it is cut into tokens, how it is mixed."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Column, Table
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.prepare import warnings
from trainables.corpora.stream.manifest import LanguageCounts
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream

SAMPLE_CHARACTERS = 240
"""Shown of a sample."""

BARS_WIDTH = 78
"""At most, in characters, as the table above them."""

PICTURE_WIDTH = 100
"""Of a picture, in characters."""


def sequences_of_a_trial(spec: StudySpec) -> float | None:
    """How many a trial of the study's budget reads; None where its unit does not tell, or arms' batches differ."""
    if spec.budget.tokens is not None:
        return spec.budget.tokens / spec.corpora.sequence_length
    sizes = {spec.training_of(arm).batch_sequences for arm in spec.arms.values()}
    searched = any("batch_sequences" in arm.load_space().dimensions for arm in spec.arms.values())
    if spec.budget.steps is None or searched or len(sizes) > 1:
        return None
    return spec.budget.steps * sizes.pop()


def corpus_table(
    corpus: PackedCorpus, corpora: CorporaConfig, trial_sequences: float | None = None
) -> RenderableType:
    """The training text by language, what was held out, and what was left out of the sources.

    Args:
        corpus: prepared.
        corpora: how its languages are mixed.
        trial_sequences: how many a trial reads; None: how often it sees a language is not told.
    """
    stream = TokenStream(corpus, 0, corpora.alpha, corpora.maximum_repetition)
    counts = corpus.manifest.splits["train"]
    natural_l = np.array([counts[language].sequences for language in corpus.languages], dtype=np.float64)
    natural_l /= natural_l.sum()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("language", style="cyan", no_wrap=True)
    titles = [
        "documents",
        "tokens",
        "tokens\na word",
        "chars\na token",
        "unknown",
        "target\nmix",
        "times\nseen",
    ]
    in_a_trial: list[list[str]] = [[] for _ in corpus.languages]
    if trial_sequences is not None:
        titles.append("in a\ntrial")
        passes = trial_sequences / sum(counts[language].sequences for language in corpus.languages)
        in_a_trial = [[f"{passes * times:.2f}x"] for times in stream.share_l / natural_l]
    for title in titles:
        table.add_column(title, justify="right")
    for language, share, natural, last in zip(
        corpus.languages, stream.share_l, natural_l, in_a_trial, strict=True
    ):
        times = [f"{share / natural:.2f}x", *last]
        table.add_row(Text(language), *_amounts(counts[language]), f"{share:.1%}", *times)
    if len(corpus.languages) > 1:
        table.add_section()
        table.add_row("all", *_amounts(_sum(list(counts.values()))), "100%")
    notes = _notes(corpus)
    if trial_sequences is not None:
        notes.insert(-1, f"in a trial: in the {trial_sequences:,.0f} sequences of the study's budget")
    parts: list[RenderableType] = [table]
    if len(corpus.languages) > 1:
        parts.append(Padding(_mix_bars(corpus.languages, natural_l, stream.share_l), (0, 0, 1, 1)))
    return Group(*parts, Padding(Text("\n".join(notes), style="dim"), (0, 0, 1, 0)))


def _mix_bars(
    languages: Sequence[str], natural_l: NDArray[np.float64], target_l: NDArray[np.float64]
) -> RenderableType:
    """Of each language its share of the text and, below, of the stream."""
    longest = max(natural_l.max(), target_l.max())
    grid = Table.grid(
        Column(no_wrap=True), Column(ratio=1), Column(justify="right"), padding=(0, 1), expand=True
    )
    for language, natural, target in zip(languages, natural_l, target_l, strict=True):
        for name, share, colour in ((language, natural, "bright_black"), ("", target, "cyan")):
            grid.add_row(Text(name, style="cyan"), Bar(longest, 0, share, color=colour), f"{share:.1%}")
    key = Text.assemble(
        ("█ ", "bright_black"), "above: share of the text   ", ("█ ", "cyan"), "below: share of the stream"
    )
    return Constrain(Group(grid, key), BARS_WIDTH)


def picture(shown: Sequence[RenderableType], title: str) -> str:
    """What is shown, as SVG."""
    console = Console(
        record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(*shown, sep="", highlight=False)
    return console.export_svg(title=title, theme=DIMMED_MONOKAI)


def samples(corpus: PackedCorpus, num_samples: int) -> RenderableType:
    """Sequences of each language as a model sees them, decoded, spread evenly over the training split."""
    tokenizer = corpus.tokenizer()
    parts: list[RenderableType] = []
    for language in corpus.languages:
        size = corpus.sequences("train", language)
        indices = np.unique((2 * np.arange(num_samples) + 1) * size // (2 * num_samples))
        parts.append(Text(language, style="cyan"))
        for index, token_L in zip(indices, corpus.take("train", language, indices), strict=True):
            text = tokenizer.decode(token_L.tolist())
            # Text may hold what a terminal would obey.
            shown = "".join(character if character.isprintable() else " " for character in text)
            more = "..." if len(shown) > SAMPLE_CHARACTERS else ""
            line = Text.assemble((f"{index}  ", "dim"), shown[:SAMPLE_CHARACTERS] + more)
            parts.append(Padding(line, (0, 0, 0, 2)))
        parts.append(Text())
    return Group(*parts)


def _amounts(counts: LanguageCounts) -> list[str]:
    """Documents, tokens, tokens a word, characters a token, unknown; separators are no part of the last three."""
    text_tokens = counts.tokens - counts.documents
    known = text_tokens > 0 and counts.words > 0
    return [
        formatting.quantity(counts.documents, "").strip(),
        formatting.quantity(counts.tokens, "").strip(),
        f"{text_tokens / counts.words:.2f}" if known else "–",
        f"{counts.characters / text_tokens:.2f}" if known else "–",
        f"{counts.unknown_tokens / text_tokens:.2%}" if known else "–",
    ]


def _sum(counts: list[LanguageCounts]) -> LanguageCounts:
    fields = ("documents", "tokens", "sequences", "words", "characters", "unknown_tokens")
    totals = {name: sum(getattr(one, name) for one in counts) for name in fields}
    return LanguageCounts(shards=(), **totals)


def _notes(corpus: PackedCorpus) -> list[str]:
    manifest = corpus.manifest
    held_out = {split: _sum(list(manifest.splits[split].values())) for split in manifest.splits}
    empty = sum(tally.empty for tally in manifest.sources)
    duplicates = sum(tally.duplicates for tally in manifest.sources)
    return [
        f"{manifest.vocabulary_size} pieces, sequences of {manifest.sequence_length} tokens; held out: "
        + ", ".join(
            f"{formatting.plural(held_out[split].documents, 'document')} for {split}"
            for split in manifest.splits
            if split != "train"
        ),
        f"left out: {formatting.plural(empty, 'record')} without text, "
        f"{formatting.plural(duplicates, 'duplicate')}",
        *warnings(manifest),
        "words: what stands between white space; where a script has none, see chars a token",
        "unknown: tokens of characters without a piece",
        "times seen: in one pass over a stream as long as all the text",
        str(corpus.folder),
    ]
