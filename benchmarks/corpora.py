"""The data path on real text: preparation against the bare tokenizer, the stream against ``numpy.memmap``, memory.

The folder named by ``H2H_TEST_DATA`` holds ``corpus/LANGUAGE.jsonl.gz`` with a ``text`` and a ``doc_id`` column. Its
files are repeated, under new names, until they hold so much text.

- prepare: ``prepare`` on a local Ray cluster that runs already, from files to checked shards, against
  ``tokenizers.encode_batch`` in all its threads over the same texts in a list, once before the preparation and once
  after it: the mean of the two. The worse of a unigram and a byte-level BPE tokenizer;
- memory: the most that all processes of a preparation hold together while it runs, Ray's among them, shared pages
  counted once (the sum of their proportional set sizes), for a small and a large input;
- stream: ``local_batches`` on one core into a loop that does nothing, against slices of one memory-mapped array of the
  same shapes, each copied; the same through Ray Data, with a digest of every sequence, and of made-up tokens in
  thousands of small shards;
- first batch: from asking a new process for the stream at a place, both ways, to the first batch: the slowest;
- sharing: eight processes that read the same shards at once: the memory of the shards in all of them;
- data wait: share of a real training step's time, from a trial's own meter.

The last line is one JSON object, also written to ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import logging
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from measure import command_line, publish

from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig, TrainTokenizer
from trainables.corpora.preparation.packing import Packer
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.stream.manifest import FORMAT_VERSION, SPLITS, Manifest
from trainables.corpora.stream.packed import MANIFEST_NAME, PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream, local_batches, ray_data_batches, sequence_digest
from trainables.storage import Location

LENGTH = 128
BATCH = 32
FAR = 10_000_000
"""A place in the stream: of the sequence of this number."""


class Plan(NamedTuple):
    """How much is measured."""

    prepared_bytes: int = 500_000_000
    small_bytes: int = 100_000_000
    large_bytes: int = 1_000_000_000
    vocabulary_size: int = 32_000
    sample_bytes: int = 4_000_000
    seconds: float = 6.0
    """Of each measurement of the stream."""
    shape: str = "mini"
    steps: int = 60
    shards: int = 3000
    """Of the corpus of many small ones."""
    readers: int = 8
    """Processes that read the same shards at once."""


QUICK = Plan(1_500_000, 700_000, 1_500_000, 2_000, 400_000, 0.3, "tiny", 4, 60, 2)


# --- text -----------------------------------------------------------------------------------------------------------


def repeated(corpus: Path, folder: Path, size_bytes: int) -> CorporaConfig:
    """The corpus's files, linked again and again until they hold so many bytes of text."""
    files = sorted(corpus.glob("*.jsonl.gz"))
    total_bytes = copy = 0
    while total_bytes < size_bytes:
        for file in files:
            if total_bytes < size_bytes:
                link = folder / file.name.split(".")[0] / f"{copy:03d}.jsonl.gz"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.hardlink_to(file) if _same_device(file, folder) else link.write_bytes(file.read_bytes())
                total_bytes += text_bytes(file)
        copy += 1
    sources = tuple(
        SourceConfig(language=place.name, files=f"{place}/*.jsonl.gz", id_column="doc_id")
        for place in sorted(folder.iterdir())
    )
    return CorporaConfig(sources=sources, sequence_length=LENGTH)


def _same_device(file: Path, folder: Path) -> bool:
    return file.stat().st_dev == folder.stat().st_dev


@functools.cache
def text_bytes(file: Path) -> int:
    return sum(len(text.encode()) for text in texts(file))


def texts(file: Path) -> Iterator[str]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def tokenizer_config(plan: Plan, kind: str) -> TokenizerConfig:
    train = {"type": kind, "vocabulary_size": plan.vocabulary_size, "sample_bytes": plan.sample_bytes}
    return TokenizerConfig(train=TrainTokenizer.model_validate(train))


# --- processes and memory -------------------------------------------------------------------------------------------


@contextmanager
def ray_cluster() -> Iterator[None]:
    """A private cluster on this machine's cores."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on the loopback interface alone
    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="h2h-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(
            address="local",
            num_cpus=len(os.sched_getaffinity(0)),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        try:
            yield
        finally:
            ray.shutdown()


def proportional_bytes() -> int:
    """Memory of this process and all that it started; a page that several of them map is shared out among them."""
    total, own = 0, psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            total += process.memory_full_info().pss
    return total


@contextmanager
def peak_proportional_bytes() -> Iterator[list[int]]:
    """Looks at all own processes twice a second while inside; the list then holds the most that was seen."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            peak[0] = max(peak[0], proportional_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


# --- preparation ----------------------------------------------------------------------------------------------------


def preparation_speed(plan: Plan, kind: str, data: Path, scratch: Path) -> dict[str, Any]:
    """Tokens a second of the preparation and of the bare tokenizer, and the packed corpus."""
    corpora = repeated(data, scratch / f"text-{kind}", plan.prepared_bytes)
    tokenizer = make_tokenizer(corpora, tokenizer_config(plan, kind))
    files = sorted((scratch / f"text-{kind}").rglob("*.jsonl.gz"))
    backend = tokenizer.backend_tokenizer
    in_memory = [text for file in files for text in texts(file)]

    def bare() -> tuple[float, int]:
        start, num_tokens = time.perf_counter(), 0
        for first in range(0, len(in_memory), 4096):
            encodings = backend.encode_batch(in_memory[first : first + 4096], add_special_tokens=False)
            num_tokens += sum(len(encoding) for encoding in encodings)
        return time.perf_counter() - start, num_tokens

    before, num_tokens = bare()
    start = time.perf_counter()
    manifest = prepare(corpora, tokenizer, Location(str(scratch / f"prepared-{kind}")))
    prepare_seconds = time.perf_counter() - start
    after, _ = bare()
    counts = [one for split in manifest.splits.values() for one in split.values()]
    packed = sum(one.tokens - one.documents for one in counts)
    assert packed == num_tokens, (packed, num_tokens)
    bare_seconds = (before + after) / 2
    return {
        "tokenizer": kind,
        "tokens": num_tokens,
        "text_bytes": sum(len(text.encode()) for text in in_memory),
        "bare_seconds": [round(before, 2), round(after, 2)],
        "prepare_seconds": round(prepare_seconds, 2),
        "prepare_over_bare": round(bare_seconds / prepare_seconds, 4),
        "corpus": str(scratch / f"prepared-{kind}" / manifest.fingerprint),
    }


def preparation_memory(plan: Plan, data: Path, scratch: Path, size_bytes: int) -> int:
    """Peak memory of a preparation of so much text, in bytes, in a process of its own."""
    arguments = [str(data), str(scratch / f"memory-{size_bytes}"), json.dumps([size_bytes, plan])]
    command = [sys.executable, __file__, "--memory", *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def measure_memory(data: Path, scratch: Path, size_bytes: int, plan: Plan) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    corpora = repeated(data, scratch / "text", size_bytes)
    tokenizer = make_tokenizer(corpora, tokenizer_config(plan, "byte_bpe"))
    with ray_cluster(), peak_proportional_bytes() as peak:
        prepare(corpora, tokenizer, Location(str(scratch / "prepared")))
    print(peak[0])


# --- the stream -----------------------------------------------------------------------------------------------------


def rates(
    runs: dict[str, Callable[[], Generator[Any, None, None]]], seconds: float, rounds: int = 3
) -> dict[str, float]:
    """Tokens a second of each, median of some turns on the first core this process may use."""
    cores = os.sched_getaffinity(0)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            # Ray Data's tasks are processes of their own: this one's core is the trainer's.
            os.sched_setaffinity(0, {min(cores)})
            try:
                with closing(run()) as batches:
                    next(batches)
                    count, start = 0, time.perf_counter()
                    while time.perf_counter() - start < seconds / rounds:
                        for _ in range(16):
                            next(batches)
                        count += 16
                    found[name].append(count * BATCH * LENGTH / (time.perf_counter() - start))
            finally:
                os.sched_setaffinity(0, cores)
    return {name: statistics.median(values) for name, values in found.items()}


def memmap_slices(corpus: PackedCorpus, scratch: Path) -> Generator[Any, None, None]:
    """The training sequences of all languages in one memory-mapped array, slice by slice, each copied."""
    file = scratch / "flat.bin"
    if not file.exists():
        with file.open("wb") as stream:
            for language in corpus.languages:
                rows = np.arange(corpus.sequences("train", language))
                stream.write(corpus.take("train", language, rows).tobytes())
    tokens = np.memmap(file, dtype=corpus.manifest.dtype, mode="r").reshape(-1, LENGTH)
    while True:
        for first in range(0, len(tokens) - BATCH, BATCH):
            yield np.array(tokens[first : first + BATCH])


def many_shards(num_shards: int, folder: Location) -> PackedCorpus:
    """A corpus of made-up tokens in shards of half a batch's sequences: every block of the stream is from most."""
    languages, rng = ("a", "b", "c"), np.random.default_rng(0)
    packers = {one: Packer(folder, f"shards/train/{one}", LENGTH, np.dtype(np.uint16), 3) for one in languages}
    for packer in packers.values():
        for _ in range(num_shards // len(languages)):
            packer.add(rng.integers(0, 1 << 16, LENGTH * BATCH // 2, dtype=np.uint16))
            packer.flush()
    counts = {language: packer.finish() for language, packer in packers.items()}
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="many-shards",
        vocabulary_size=1 << 16,
        sequence_length=LENGTH,
        dtype="uint16",
        pad_token=0,
        mask_token=1,
        separator_token=2,
        special_tokens=(0, 1, 2),
        languages=languages,
        splits=dict.fromkeys(SPLITS, counts),
    )
    (folder / MANIFEST_NAME).write_json(manifest.model_dump(mode="json"))
    return PackedCorpus(folder)


def stream_speed(plan: Plan, corpus: PackedCorpus, scratch: Path) -> dict[str, float]:
    stream = TokenStream(corpus, 0, 0.3, 8.0)
    scattered = TokenStream(many_shards(plan.shards, Location(str(scratch / "many-shards"))), 0, 0.3, 8.0)

    def with_digest() -> Generator[int, None, None]:
        for batch in local_batches(stream, 0, BATCH):
            yield sequence_digest(batch)

    runs: dict[str, Callable[[], Generator[Any, None, None]]] = {
        "memmap": lambda: memmap_slices(corpus, scratch),
        "local": lambda: local_batches(stream, 0, BATCH),
        "local_with_digest": with_digest,
        "many_shards": lambda: local_batches(scattered, 0, BATCH),
    }
    found = rates(runs, plan.seconds)
    found |= rates({"ray_data": lambda: ray_data_batches(stream, 0, BATCH)}, plan.seconds)
    return {name: round(rate) for name, rate in found.items()}


def first_batch_seconds(folder: str, start: int) -> float:
    """From asking for the stream to its first batch, in this process."""
    before = time.perf_counter()
    stream = TokenStream(PackedCorpus(Location(folder)), 0, 0.3, 8.0)
    next(local_batches(stream, start, BATCH))
    return time.perf_counter() - before


def first_batches(corpus: str) -> dict[str, float]:
    found = {}
    for place in (0, FAR):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[f"local_at_{place}"] = round(pool.apply(first_batch_seconds, (corpus, place)), 4)
    for place in (0, FAR):
        start = time.perf_counter()
        stream = TokenStream(PackedCorpus(Location(corpus)), 0, 0.3, 8.0)
        with closing(ray_data_batches(stream, place, BATCH)) as batches:
            next(batches)
            found[f"ray_data_at_{place}"] = round(time.perf_counter() - start, 4)
    return found


# --- sharing --------------------------------------------------------------------------------------------------------


def read_all(folder: str, seed: int, ready: Any, done: Any) -> None:
    """Touch every training sequence once, and wait."""
    corpus = PackedCorpus(Location(folder))
    for language in corpus.languages:
        rows = np.random.default_rng(seed).permutation(corpus.sequences("train", language))
        for first in range(0, len(rows), 2048):
            corpus.take("train", language, rows[first : first + 2048])
    ready.release()
    done.wait()


def shared_bytes(corpus: str, num_readers: int) -> dict[str, float]:
    """Memory that the shards take in so many readers, each of which has read them all."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Semaphore(0), context.Event()
    readers = [context.Process(target=read_all, args=(corpus, n, ready, done)) for n in range(num_readers)]
    for reader in readers:
        reader.start()
    for _ in readers:
        ready.acquire()
    resident = proportional = 0
    for reader in readers:
        shown = False
        for line in Path(f"/proc/{reader.pid}/smaps").read_text().splitlines():
            first = line.split()[0]
            if not first.endswith(":"):
                shown = "/shards/train/" in line
            elif shown and first in ("Rss:", "Pss:"):
                size = 1024 * int(line.split()[1])
                resident, proportional = (resident + size * (first == "Rss:"), proportional + size * (first == "Pss:"))
    done.set()
    for reader in readers:
        reader.join()
    size = sum(file.stat().st_size for file in Path(corpus).glob("shards/train/*"))
    return {
        "readers": num_readers,
        "shard_bytes": size,
        "mapped_by_all_bytes": resident,
        "memory_bytes": proportional,
        "copies": round(proportional / size, 4),
    }


# --- the trainer ----------------------------------------------------------------------------------------------------


def data_wait(plan: Plan, corpus: str) -> dict[str, float]:
    """Share of a trial's steps that it waits for data, for a small encoder."""
    from trainables.training.config import TrialConfig
    from trainables.training.loop import Trial

    packed = PackedCorpus(Location(corpus))
    config = TrialConfig.model_validate(
        {
            "trial": "one",
            "objective": "headless_mlm",
            "model": {"shape": plan.shape},
            "training": {"learning_rate": 1e-3, "batch_sequences": BATCH},
            "budget": {"steps": plan.steps},
            "seed": 0,
            "corpus": corpus,
            "alpha": 0.3,
            "maximum_repetition": 8.0,
            "evaluation": {"sequences_per_language": 1},
            "split": "validation",
            "yardsticks": [],
        }
    )
    shares = {}
    for name, feed in (("local", local_batches), ("ray_data", ray_data_batches)):
        *_, last = Trial(config, TokenStream(packed, 0, 0.3, 8.0), feed=feed).run()
        measure = last.measure
        shares[name] = round(measure.overhead["data_wait"] / measure.spent["device_seconds"], 5)
    return shares


# --- all of it ------------------------------------------------------------------------------------------------------


def run(plan: Plan, data: Path) -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="h2h-corpora-") as folder, ray_cluster():
        scratch = Path(folder)
        speeds = []
        for kind in ("byte_bpe", "unigram"):
            speeds.append(preparation_speed(plan, kind, data, scratch))
            print(speeds[-1], flush=True)
        packed = speeds[-1]["corpus"]
        first = first_batches(packed)
        print(first, flush=True)
        stream = stream_speed(plan, PackedCorpus(Location(packed)), scratch)
        print(stream, flush=True)
        shared = shared_bytes(packed, plan.readers)
        print(shared, flush=True)
        waits = data_wait(plan, packed)
        print(waits, flush=True)
        memory = {
            size: preparation_memory(plan, data, scratch, getattr(plan, f"{size}_bytes")) for size in ("small", "large")
        }
    return {
        "plan": plan._asdict(),
        "prepare_over_bare_tokenizer": min(speed["prepare_over_bare"] for speed in speeds),
        "stream_over_memmap": round(stream["local"] / stream["memmap"], 4),
        "stream_tokens_per_second": min(stream["local"], stream["ray_data"]),
        "first_batch_seconds": max(first.values()),
        "many_shards_tokens_per_second": stream["many_shards"],
        "peak_memory_bytes_small": memory["small"],
        "peak_memory_bytes_large": memory["large"],
        "data_wait_share": max(waits.values()),
        "copies_of_the_tokens": shared["copies"],
        "preparation": [{key: speed[key] for key in speed if key != "corpus"} for speed in speeds],
        "tokens_per_second": stream,
        "first_batches": first,
        "sharing": shared,
        "data_wait": waits,
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "little text, a minute")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory:
        data, scratch, (size_bytes, plan) = *map(Path, options.memory[:2]), json.loads(options.memory[2])
        measure_memory(data, scratch, size_bytes, Plan(*plan))
        return {}
    data_folder = os.environ.get("H2H_TEST_DATA")
    if not data_folder:
        sys.exit("set H2H_TEST_DATA to the folder that holds corpus/LANGUAGE.jsonl.gz")
    result = run(QUICK if options.quick else Plan(), Path(data_folder) / "corpus")
    publish("corpora", "cpu", result, quick=options.quick)
    return result


if __name__ == "__main__":
    main()
