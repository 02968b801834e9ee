"""A corpus: how its preparation goes on, and what came of it by language."""

import io
import time
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
from orchestrator.reporting.log_lines import QUIET_SECONDS, clock
from orchestrator.reporting.table import Table, on_terminal
from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.preparation.prepare import warnings
from trainables.corpora.preparation.progress import Packing
from trainables.corpora.preparation.progress import Progress as Preparation
from trainables.corpora.stream.manifest import LanguageCounts
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream

SAMPLE_CHARACTERS = 240  # shown of a sample
BAR_WIDTH = 24  # of a preparation's stage, in characters
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


def how_far(progress: Preparation) -> str:
    """How far the stage of a preparation is: its parts, and of the packing how much text, how fast and how long yet."""
    parts = f"{progress.done}/{progress.parts} parts" if progress.parts > 1 else ""
    packing, left = progress.packing, progress.packing.seconds_left
    if not packing.done_bytes:
        return parts
    amount = f"{formatting.size(packing.done_bytes)} of {formatting.size(packing.total_bytes)}"
    known = [parts, amount, formatting.quantity(packing.tokens, "tokens"), _rate(packing)]
    return ", ".join(filter(None, [*known, f"{formatting.duration(left)} left" if left else ""]))


def in_words(progress: Preparation) -> str:
    """What a preparation does now and how far it is, in a line; of one that is done what it took."""
    if progress.stage in STAGES:
        return " ".join(filter(None, [STAGES[progress.stage], how_far(progress)]))
    packing, account = progress.packing, list[str]()
    if made := packing.made_parts:
        machines = f" on {packing.machines} machines" if packing.machines > 1 else ""
        amount = f"{formatting.plural(made, 'part')} of {formatting.size(packing.made_bytes)}"
        account.append(f"{amount} packed in {formatting.duration(packing.seconds)}{machines}, {_rate(packing)}")
    if there := packing.parts - made:
        account.append(f"{formatting.plural(there, 'part')} had been made before")
    if packing.abandoned:
        account.append(f"{formatting.plural(packing.abandoned, 'abandoned preparation')} of other text removed")
    took = f"prepared {formatting.quantity(packing.tokens, 'tokens')} in {formatting.duration(packing.whole_seconds)}"
    return f"{took}: {'; '.join(account)}"


def _rate(packing: Packing) -> str:
    rate = packing.tokens_per_second
    return "" if rate is None else formatting.quantity(rate, "tokens/s")


@contextmanager
def preparation_shown(console: Console) -> Iterator[Callable[[Preparation], None]]:
    """Shows a preparation while inside, with a bar for each stage on a terminal and else in lines; gives what is to be
    told of the progress."""
    if not console.is_terminal:
        yield _Lines(console).show
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: Preparation) -> None:
            if progress.stage not in STAGES:
                bars.console.print(in_words(progress), highlight=False, soft_wrap=True)
                return
            if progress.stage not in tasks:
                # Until something is done the bar only moves.
                tasks[progress.stage] = bars.add_task(STAGES[progress.stage], total=None, amount="")
            parts = f"{progress.done}/{progress.parts} parts" if progress.parts > 1 else ""
            bars.update(
                tasks[progress.stage],
                total=progress.parts if progress.done else None,
                completed=progress.done,
                amount="  ".join(filter(None, [parts, _rate(progress.packing)])),
            )

        yield show


class _Lines:
    """For a log: a line at every stage's begin, and of one that takes longer every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage, self._said = "", 0.0

    def show(self, progress: Preparation) -> None:
        now = time.monotonic()
        if progress.stage != self._stage or now - self._said > QUIET_SECONDS:
            line = f"{clock(time.time())} {in_words(progress)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._stage, self._said = progress.stage, now


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
