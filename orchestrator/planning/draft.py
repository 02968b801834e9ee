"""A study for somebody's own files: what ``h2h init`` writes, with the reasons for its settings beside them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

import yaml

from orchestrator import formatting
from orchestrator.config.errors import validated
from orchestrator.config.files import StudyContent, make_study
from orchestrator.config.study import StudyName, StudySpec
from orchestrator.config.yaml_text import Dumper, parse_yaml
from orchestrator.planning.machine import Machine
from orchestrator.planning.preflight import check_places
from trainables.config import Config
from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.files import READERS, column_names, has_columns, read_records, sound_lines, suffix_of
from trainables.corpora.reading.portions import expand
from trainables.corpora.reading.reader import Record
from trainables.errors import InputError, nearest
from trainables.storage import Location, is_here

Kind = Literal["encoder", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LOOKED_AT = 200  # records of a source
MOST_SHOWN = 5  # values of a column
MOST_FILES = 2000  # of a folder; more are named by a pattern
COMPRESSED = 3.5  # about how much larger text is than its compressed file
BYTES_PER_TOKEN = 4.0
SHARES = (0.05, 0.1, 0.2)  # that may be held out: the smallest with which no split is empty
SHARE_OF_MUCH, MUCH_BYTES = 0.02, 3e7
DATA_SET_SUFFIXES = (".csv", ".tsv", ".arrow", ".json")

_TEXT = ("text", "content", "body", "document", "article", "raw_content", "sentence")
_LANGUAGES = ("language", "lang", "locale", "language_code")

_CODES = frozenset(
    re.findall(
        "[a-z]{2}",
        "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de "
        "dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id "
        "ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu "
        "lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu "
        "rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr "
        "ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu",
    )
)
"""ISO 639-1."""
_WORDS = frozenset(re.findall("[a-z]{2}", "am an as be he id ie ii is it la me my no or so st to tv us"))
"""Codes that are rather words, in a folder's or file's name."""


@dataclass(frozen=True)
class Group:
    """Files of one language and format in one folder, or a data set's folder."""

    language: str
    """Empty where the names do not tell."""
    names: tuple[str, ...]
    """Files, patterns or the folder."""
    is_data_set: bool = False

    @property
    def shown(self) -> str:
        """The names, in short."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} and {len(self.names) - 1} more"


@dataclass(frozen=True)
class Draft:
    """A study's file, and what was found out on the way."""

    text: str
    spec: StudySpec
    found: tuple[str, ...]


class _Named(Config):
    name: StudyName


def require_name(name: str) -> None:
    """Raises InputError if no study can be called so: before its files are read."""
    try:
        validated(_Named, {"name": name})
    except InputError as error:
        raise error.at("--name") from error


def groups_of(given: Sequence[str]) -> list[Group]:
    """What is given: files, patterns, folders, URIs, each also as ``LANGUAGE=...``. Raises InputError if there is no
    such file, or nothing in a folder can be read."""
    found: dict[tuple[str, str, str, bool], list[str]] = {}
    for one in given:
        language, equals, name = one.partition("=")
        if not equals or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", language) is None:
            language, name = "", one
        for own, is_data_set in _files(name):
            place = PurePosixPath(own)
            key = (language or language_of(own), str(place.parent), suffix_of(place.name) or place.suffix, is_data_set)
            found.setdefault(key, []).append(own)
    return [Group(key[0], tuple(dict.fromkeys(names)), key[3]) for key, names in found.items()]


def _files(name: str) -> Iterable[tuple[str, bool]]:
    if "://" in name or any(character in name for character in "*?"):
        return [(name, False)]
    if not is_here(name):
        inside = Path(name).parent.iterdir() if Path(name).parent.is_dir() else ()
        beside = [path.name for path in inside if _is_source(path)]
        raise InputError(f"there is no file or folder '{name}'", where="FILES", remedy=nearest(Path(name).name, beside))
    if not Path(name).is_dir():
        return [(name, False)]
    return _in_folder(Path(name))


def _is_source(path: Path) -> bool:
    return path.is_dir() or suffix_of(path.name) is not None or path.name.lower().endswith(DATA_SET_SUFFIXES)


def _in_folder(folder: Path) -> Iterable[tuple[str, bool]]:
    inside = [file for file in islice(sorted(folder.rglob("[!.]*")), 10 * MOST_FILES) if file.is_file()]
    readable = [file for file in inside if suffix_of(file.name)]
    if not readable and any(file.name.lower().endswith(DATA_SET_SUFFIXES) for file in inside):
        return [(str(folder), True)]
    if not readable:
        raise InputError(
            f"there is no text in {folder}",
            where="FILES",
            why=f"of its {formatting.plural(len(inside), 'file')} none is {', '.join(_suffixes())}, csv, tsv or arrow",
            remedy="name the files themselves, or another folder",
        )
    patterns: dict[str, None] = {}
    for file in readable:
        by_language = language_of(file.name)
        patterns[str(file) if by_language else str(file.parent / f"*{suffix_of(file.name)}")] = None
    return [(pattern, False) for pattern in patterns]


def _suffixes() -> list[str]:
    return sorted(suffix.lstrip(".") for kind in READERS for suffix in kind().suffixes if suffix.count(".") == 1)


def language_of(name: str) -> str:
    """The language that a file's name tells: ``wiki.fr.txt``, ``fr/a.txt``; empty where it tells none."""
    place = PurePosixPath(name.partition("://")[2] or name)
    suffix = suffix_of(place.name) or "".join(place.suffixes[-1:])
    stem = place.name.removesuffix(suffix).lower()
    words = [word for word in re.split(r"[^a-z]+", stem) if word]
    own = [word for word in ([words[0], words[-1]] if words else []) if word in _CODES and word not in _WORDS]
    if own:
        return own[-1]
    folder = place.parent.name.lower()
    return folder if folder in _CODES and folder not in _WORDS else ""


def sources_of(group: Group) -> tuple[list[SourceConfig], str]:
    """A source for each language of a group, and what was seen in it. Raises InputError if it cannot be read."""
    if group.is_data_set:
        source = SourceConfig(language=group.language or "text", dataset=group.names[0])
        return [source], f"{group.shown}: a data set"
    files: str | tuple[str, ...] = group.names[0] if len(group.names) == 1 else group.names
    source = SourceConfig(language=group.language or "text", files=files)
    portions = expand(source, "FILES")
    first = Location(portions[0].name)
    size = sum(portion.size_bytes for portion in portions)
    said = f"{group.shown}: {formatting.plural(len(portions), 'file')}, {formatting.size(size)}"
    if not has_columns(first):
        return [source], said
    records = _head(first)
    if not records:
        raise InputError(
            f"{first.name} holds no records",
            where=str(first),
            why="" if column_names(first) else f"none of its first {LOOKED_AT} lines is a JSON object",
            remedy="a file that does, or text as .txt with blank lines between documents",
        )
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = _text_column(records, columns, str(first))
    settings: dict[str, str] = {} if text == "text" else {"text_column": text}
    said += f", text in the column '{text}'"
    spoken = next((name for name in _LANGUAGES if name in columns and name != text), None)
    if spoken is None or group.language:
        return [source.model_copy(update=settings)], said
    values = Counter(value if isinstance(value := record.get(spoken), str) else "" for record in records)
    known = [value for value, _ in values.most_common() if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", value)]
    said += f", languages in '{spoken}': {', '.join(known)}"
    if others := [f"'{value}' ({number})" for value, number in values.most_common() if value not in known]:
        said += (
            f"; left out, as no languages by their names: {', '.join(others[:MOST_SHOWN])}"
            f"{' and more' if len(others) > MOST_SHOWN else ''}, of its first {len(records)} records"
        )
    if not known:
        raise InputError(
            f"no value of the column '{spoken}' can name a language",
            where=str(first),
            why=f"they are {', '.join(others[:MOST_SHOWN])}; a name has letters, digits, - and _",
            remedy=f"LANGUAGE={group.names[0]} takes all of it as one language",
        )
    settings["language_column"] = spoken
    return [source.model_copy(update={**settings, "language": value}) for value in known], said


def _head(file: Location) -> list[dict[str, object]]:
    """The first records of a file, with all their columns."""
    if names := column_names(file):
        records = (record for record in read_records(file, names) if isinstance(record, Record))
        return [dict(record.columns) for record in islice(records, LOOKED_AT)]
    found = list[dict[str, object]]()
    for line in islice(sound_lines(file), LOOKED_AT):
        with suppress(ValueError):  # the check of the sources says it
            value = json.loads(line.text)
            found += [value] if isinstance(value, dict) else []
    return found


def _text_column(records: Sequence[dict[str, object]], columns: Sequence[str], where: str) -> str:
    """One of a usual name, else that of the longest texts."""
    lengths = {name: sum(len(value) for r in records if isinstance(value := r.get(name), str)) for name in columns}
    usual = next((name for name in _TEXT if lengths.get(name)), None)
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    if usual is None and (longest is None or not lengths[longest]):
        raise InputError(
            "no column holds text",
            where=where,
            why=f"its columns are {', '.join(columns) or 'unknown'}",
            remedy="another file, or write the study by hand: docs/study.md",
        )
    return usual or str(longest)


def draft(sources: Sequence[SourceConfig], name: str, kind: Kind, storage: str, found: Sequence[str] = ()) -> Draft:
    """A study of these sources that ``h2h plan`` accepts. Raises InputError where the text does not do: it is too
    little, or something in it is wrong."""
    size = _text_bytes(sources)
    last: InputError | None = None
    for share in ((SHARE_OF_MUCH,) if size > MUCH_BYTES else ()) + SHARES:
        text = _write(sources, name, kind, storage, size, share)
        spec = make_study(_content(text), where=f"{name}.yaml")
        try:
            check_places(spec, network=False)
        except InputError as error:
            last = error
            if "split" not in error.what:
                raise
            continue
        return Draft(text, spec, (*found, f"in all about {formatting.quantity(size / BYTES_PER_TOKEN, 'tokens')}"))
    assert last is not None
    raise last


def _content(text: str) -> StudyContent:
    content = parse_yaml(text, "the draft")
    assert isinstance(content, dict)
    return dict(content)


def _text_bytes(sources: Sequence[SourceConfig]) -> float:
    """About how much text there is: of files their size, more where they are compressed. A file of several languages
    counts once."""
    sizes: dict[str, float] = {}
    for number, source in enumerate(sources):
        if source.dataset is not None:
            folder = Path(source.dataset)
            files = [(str(file), file.stat().st_size) for file in folder.rglob("*") if file.is_file()]
        else:
            files = [(portion.name, portion.size_bytes) for portion in expand(source, f"corpora.sources[{number}]")]
        for file, size in files:
            compressed = file.endswith((".gz", ".zst", ".parquet"))
            sizes[file] = size * (COMPRESSED if compressed else 1.0)
    return sum(sizes.values())


@dataclass(frozen=True)
class _Scale:
    """What suits so much text."""

    most_bytes: float
    vocabulary_size: int
    shape: str


_SCALES = (
    _Scale(3e6, 2000, "tiny"),
    _Scale(MUCH_BYTES, 4000, "mini"),
    _Scale(1e9, 16000, "small"),
    _Scale(float("inf"), 32000, "base"),
)
_LARGEST_ON_CPUS = 1  # place in the list: larger ones take days there
_PASSES = 4  # over the text, in a trial's budget
_MOST_TOKENS = {"cpu": 3e6, "gpu": 2e9}


def _write(sources: Sequence[SourceConfig], name: str, kind: Kind, storage: str, size: float, share: float) -> str:
    machine = Machine.here()
    place = next(index for index, scale in enumerate(_SCALES) if size <= scale.most_bytes)
    model = _SCALES[place if machine.gpus else min(place, _LARGEST_ON_CPUS)]
    vocabulary = _SCALES[place].vocabulary_size if machine.gpus else model.vocabulary_size
    tokens = size / BYTES_PER_TOKEN
    budget = max(100_000.0, min(_PASSES * tokens, _MOST_TOKENS["gpu" if machine.gpus else "cpu"]))
    budget = float(f"{budget:.1g}")
    one, other = ("headless_mlm", "mlm") if kind == "encoder" else ("headless_clm", "clm")
    where = f"{machine.gpus} GPUs" if machine.gpus else f"{machine.cpus} CPUs"
    languages = list(dict.fromkeys(source.language for source in sources))
    mixed = len(languages) > 1
    recovered = "masked" if kind == "encoder" else "held-out"
    lines = [
        f"# Headless against vanilla {kind}s on your own text. Written by h2h init; every setting may be changed.",
        "#",
        f"#   h2h plan {name}.yaml       what it will train, spend and take",
        f"#   h2h run {name}.yaml        runs it; h2h watch shows it from another terminal",
        "#",
        "# docs/study.md lists every key, with its default.",
        _pair("name", name),
        _pair("question", f"Do headless {kind}s recover {recovered} tokens of my text better, for the same tokens?"),
        "corpora:",
        f"  sources:                       # about {formatting.quantity(tokens, 'tokens')}",
        *(f"    - {_flow(_given(source))}" for source in sources),
        *(
            ["  alpha: 0.3                     # languages in proportion to size ** alpha: 1 as they are, 0 all alike"]
            * mixed
        ),
        "  sequence_length: 128",
        f"  validation_share: {share}         # of the documents, held out to choose settings",
        f"  test_share: {share}               # held out for the answer",
        f"tokenizer: {{train: {{type: byte_bpe, vocabulary_size: {vocabulary}}}}}   # bytes: no alphabet is too large",
        f"model: {{shape: {model.shape}}}          # h2h list shows others; for {where} and this much text",
        "training: {batch_sequences: 32}",
        "arms:",
        f"  headless: {{objective: {one}}}",
        f"  vanilla: {{objective: {other}}}",
        f"budget: {{tokens: {_number(budget)}}}        # of a trial; or flops, device_seconds, usd",
        "search: {budget_per_arm: 4, halving: {reduction: 3, rungs: 3}}    # in trial budgets, the same for every arm",
        "# confirm: {margin: 0.005}       # smaller differences do not matter to you; without it the runs imply one",
        "# Seeds: 6 to 14, until it is answered; a fixed number: confirm: {seeds: 8}",
        "yardsticks: {primary: bits_per_byte, others: [recovery_accuracy, recovery_mrr]}",
        "# resources: {gpus_per_worker: 1, prices: {gpu_hour: 2.5}}        # then spending is told in dollars too",
        _pair("storage", storage) + "                 # where results go: a folder, or s3://, gs://",
    ]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    mantissa, _, power = f"{value:.1e}".partition("e")
    return f"{mantissa}e+{int(power)}"


def _given(source: SourceConfig) -> dict[str, object]:
    """What was chosen, without defaults."""
    return source.model_dump(mode="json", exclude_defaults=True)


def _flow(value: object) -> str:
    dumped = yaml.dump(value, Dumper=Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return str(dumped).strip()


def _pair(key: str, value: str) -> str:
    return _flow({key: value})[1:-1]
