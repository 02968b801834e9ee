"""A corpus: how its preparation goes on, and what came of it by language."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.table import Table as Grid
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.reporting.table import Table, on_terminal
from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.preparation.prepare import Progress as Preparation
from trainables.corpora.preparation.prepare import warnings
from trainables.corpora.stream.manifest import LanguageCounts
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream

SAMPLE_CHARACTERS = 240  # shown of a sample
BARS_WIDTH = 78  # at most, in characters, as the table above them
PICTURE_WIDTH = 100  # of a picture, in characters

STAGES = {
    "tokenizer": "making the tokenizer",
    "fingerprint": "hashing the text",
    "verification": "reading the shards",
    "duplicates": "looking for duplicates",
    "comparison": "comparing",
    "sketches": "sketching the held-out text",
    "overlap": "looking it up in the training text",
    "packing": "tokenising and packing",
}


def in_words(progress: Preparation) -> str:
    """How far a preparation is, in a line."""
    parts = f" {progress.done}/{progress.parts} parts" if progress.parts > 1 else ""
    tokens = f" {formatting.quantity(progress.tokens, 'tokens')}" if progress.tokens else ""
    return f"{STAGES[progress.stage]}{parts}{tokens}"


@contextmanager
def preparation_bar(console: Console) -> Iterator[Callable[[Preparation], None]]:
    """Shows a bar for each stage while inside; gives what is to be told of the progress."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: Preparation) -> None:
            title = STAGES[progress.stage]
            if progress.stage not in tasks:
                # Until something is done the bar only moves.
                tasks[progress.stage] = bars.add_task(title, total=None, amount="")
            bars.update(
                tasks[progress.stage],
                total=progress.parts if progress.done else None,
                completed=progress.done,
                amount=in_words(progress).removeprefix(title).strip(),
            )

        yield show


def sequences_of_a_trial(spec: StudySpec) -> float | None:
    """How many a trial of the study's budget reads; None where its unit does not tell, or arms' batches differ."""
    if spec.budget.tokens is not None:
        return spec.budget.tokens / spec.corpora.sequence_length
    sizes = {spec.training_of(arm).batch_sequences for arm in spec.arms}
    searched = any("batch_sequences" in arm.search_space.dimensions for arm in spec.arms.values())
    if spec.budget.steps is None or searched or len(sizes) > 1:
        return None
    return spec.budget.steps * sizes.pop()


def show_corpus(corpus: PackedCorpus, corpora: CorporaConfig, trial_sequences: float | None = None) -> RenderableType:
    """The training text by language, what was held out and left out, and how often a trial sees each."""
    stream = TokenStream(corpus, 0, corpora.alpha, corpora.maximum_repetition)
    counts = corpus.manifest.splits["train"]
    natural_l = np.array([counts[language].sequences for language in corpus.languages], dtype=np.float64)
    natural_l /= natural_l.sum()
    parts = [on_terminal(languages_table(corpus, stream.share_l, natural_l, trial_sequences))]
    if len(corpus.languages) > 1:
        parts.append(Padding(_mix_bars(corpus.languages, natural_l, stream.share_l), (0, 0, 1, 1)))
    if corpus.manifest.overlap:
        parts.append(on_terminal(held_out_table(corpus)))
    sources = zip(corpora.sources, corpus.manifest.group_bytes, strict=False)
    resolved = tuple(source.model_copy(update={"group_bytes": chosen}) for source, chosen in sources)
    notes = [*_notes(corpus, trial_sequences), *groups_in_words(resolved)]
    return Group(*parts, Padding(Text("\n".join([*notes, str(corpus.folder)]), style="dim"), (0, 0, 1, 0)))


def languages_table(
    corpus: PackedCorpus, target_l: NDArray[np.float64], natural_l: NDArray[np.float64], trial_sequences: float | None
) -> Table:
    """The training text by language."""
    counts = corpus.manifest.splits["train"]
    titles = ["language", "documents", "tokens", "tokens\na word", "chars\na token", "unknown"]
    titles += ["target\nmix", "times\nseen", *(["in a\ntrial"] if trial_sequences is not None else [])]
    passes = (trial_sequences or 0.0) / sum(counts[language].sequences for language in corpus.languages)
    rows = []
    for language, target, natural in zip(corpus.languages, target_l, natural_l, strict=True):
        row = [language, *_amounts(counts[language]), f"{target:.1%}", f"{target / natural:.2f}x"]
        rows.append([*row, *([f"{passes * target / natural:.2f}x"] if trial_sequences is not None else [])])
    if len(corpus.languages) > 1:
        whole = ["all", *_amounts(_sum(list(counts.values()))), "100%"]
        rows.append([*whole, *[""] * (len(titles) - len(whole))])
    return Table.of(titles, rows, numbers=True)


def held_out_table(corpus: PackedCorpus) -> Table:
    """The held-out text by language: how much of it stands in the training text."""
    rows = []
    for language in corpus.languages:
        for split, languages in corpus.manifest.overlap.items():
            own = languages[language]
            counts = own.documents - own.left_out, corpus.num_units(split, language), own.left_out
            rows.append([language, split, *map(str, counts), f"{own.before:.2%}", f"{own.after:.2%}"])
    titles = ["language", "held out for", "documents", "groups", "left out", "in training\nwith those", "in training"]
    return Table.of(titles, rows, numbers=True)


def _mix_bars(
    languages: Sequence[str], natural_l: NDArray[np.float64], target_l: NDArray[np.float64]
) -> RenderableType:
    """Of each language its share of the text and, below, of the stream."""
    longest = max(natural_l.max(), target_l.max())
    rows = Grid.grid(Column(no_wrap=True), Column(ratio=1), Column(justify="right"), padding=(0, 1), expand=True)
    for language, natural, target in zip(languages, natural_l, target_l, strict=True):
        for name, share, colour in ((language, natural, "bright_black"), ("", target, "cyan")):
            rows.add_row(Text(name, style="cyan"), Bar(longest, 0, share, color=colour), f"{share:.1%}")
    key = Text.assemble(
        ("█ ", "bright_black"), "above: share of the text   ", ("█ ", "cyan"), "below: share of the stream"
    )
    return Constrain(Group(rows, key), BARS_WIDTH)


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


def _notes(corpus: PackedCorpus, trial_sequences: float | None) -> list[str]:
    manifest = corpus.manifest
    held_out = {split: _sum(list(manifest.splits[split].values())) for split in manifest.splits}
    empty = sum(tally.empty for tally in manifest.sources)
    duplicates = sum(tally.duplicates for tally in manifest.sources)
    notes = [
        f"{manifest.vocabulary_size} pieces, sequences of {manifest.sequence_length} tokens; held out: "
        + ", ".join(
            f"{formatting.plural(held_out[split].documents, 'document')} for {split}"
            for split in manifest.splits
            if split != "train"
        ),
        f"left out: {formatting.plural(empty, 'record')} without text, {formatting.plural(duplicates, 'duplicate')}",
        *warnings(manifest),
        "words: what stands between white space; where a script has none, see chars a token",
        "unknown: tokens of characters without a piece",
        "times seen: in one pass over a stream as long as all the text",
    ]
    if trial_sequences is not None:
        notes.append(f"in a trial: in the {trial_sequences:,.0f} sequences of the study's budget")
    if manifest.overlap:
        notes.append("in training: share of the held-out n-grams (8 words, or as many characters) in training text too")
    for split, languages in manifest.overlap.items():
        if kept := {language: own.kept for language, own in languages.items() if own.kept}:
            listing = ", ".join(f"{language} {number}" for language, number in kept.items())
            notes.append(
                f"{split} documents that repeat the training text and stay, as most of it or generated: {listing}"
            )
    return notes


def groups_in_words(sources: Sequence[SourceConfig]) -> list[str]:
    """How the documents of each source are kept together, where they are; by sources whose groups are chosen."""
    lines = []
    for number, source in enumerate(sources):
        where = f"corpora.sources[{number}]: documents"
        if source.group_column is not None:
            lines.append(f"{where} with the same '{source.group_column}' are in one split")
        elif source.group_bytes == 0:
            lines.append(f"{where} of a text file are in one split")
        elif source.group_bytes is not None and source.group_bytes > 1:
            lines.append(f"{where} that begin in the same {source.group_bytes:,} bytes of a text file are in one split")
    return lines
