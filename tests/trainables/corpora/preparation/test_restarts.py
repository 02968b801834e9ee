"""Preparation killed with SIGKILL at random moments goes on to the same bytes: real processes, really killed.

Starting a Ray cluster takes seconds, so most moments are of preparations without one: a process that runs the same
``prepare`` over the same tasks, with two worker processes in the place of Ray Data's; the whole process group is
killed. Some moments are of preparations on a Ray cluster of their own, all processes of which are killed together,
and in the last one of Ray's workers alone is, while the preparation goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.helpers.preparation import files_of, ray_of_this_process
from tests.helpers.ray import start_ray
from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.corpora.preparation import duplicates
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading import portions
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import load_tokenizer
from trainables.storage import Location

pytestmark = pytest.mark.slow

KILLS = 18
"""Of preparations without a cluster."""
KILLS_OF_CLUSTERS = 2


def prepare_here(folder: str, store: str) -> str:
    """Prepare the corpus of ``folder``; returns its name. Every file is a part of its own."""
    portions.PART_BYTES = 1
    corpora = CorporaConfig.model_validate_json((Path(folder) / "corpora.json").read_text())
    return prepare(corpora, load_tokenizer(f"{folder}/tokenizer"), Location(store)).fingerprint


def prepare_without_a_cluster(folder: str, store: str) -> None:
    """In a process group of its own, with two workers."""
    os.setpgrp()
    sys.modules["ray"] = ray_of_this_process()

    def run_job(task, items):
        with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
            yield from pool.map(task, items)

    preparation.run_job = duplicates.run_job = run_job
    prepare_here(folder, store)


def prepare_on_a_cluster(folder: str, store: str, ray_folder: str) -> None:
    """On a private Ray cluster that ends with this process; says when it is there."""
    import ray

    start_ray(ray_folder)
    print("ready", flush=True)
    prepare_here(folder, store)
    ray.shutdown()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two languages in six files each, some texts of which come again, and a tokenizer."""
    folder = tmp_path_factory.mktemp("text")
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefgé日本हि", k=4)) for _ in range(300)]
    for language in ("en", "fr"):
        for number in range(6):
            texts = [" ".join(generator.choices(words, k=generator.randint(5, 60))) for _ in range(150)]
            texts += generator.choices(texts, k=20)
            lines = [json.dumps({"text": one}) + "\n" for one in texts]
            (folder / f"{language}-{number}.jsonl").write_text("".join(lines))
    sources = [{"language": one, "files": f"{folder}/{one}-*.jsonl"} for one in ("en", "fr")]
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16, "deduplicate": True}
    corpora = CorporaConfig.model_validate({"sources": sources, **shares})
    (folder / "corpora.json").write_text(corpora.model_dump_json())
    size = {"type": "byte_bpe", "vocabulary_size": 320}
    make_tokenizer(corpora, TokenizerConfig.model_validate({"train": size})).save_pretrained(folder / "tokenizer")
    return folder


def start(text: Path, store: Path) -> multiprocessing.Process:
    context = multiprocessing.get_context("forkserver")  # imports once, not at every start
    context.set_forkserver_preload([__name__])
    process = context.Process(target=prepare_without_a_cluster, args=(str(text), str(store)))
    process.start()
    return process


@pytest.fixture(scope="module")
def undisturbed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """What a preparation leaves that nobody disturbs, and how long it takes once everything is imported."""
    start(text, tmp_path_factory.mktemp("first")).join()
    store = tmp_path_factory.mktemp("undisturbed")
    began = time.perf_counter()
    process = start(text, store)
    process.join()
    assert process.exitcode == 0
    return files_of(store), time.perf_counter() - began


def assert_whole_as_far_as_it_goes(store: Path, expected: dict[str, bytes]) -> None:
    """What has a file's own name is that file, to the last byte: no torn one."""
    for name, content in files_of(store).items():
        assert content == expected[name], name


@pytest.mark.timeout(300)
def test_killed_at_random_moments(text: Path, undisturbed, tmp_path: Path) -> None:
    expected, seconds = undisturbed
    assert sum(name.endswith(".npy") for name in expected) >= 36
    generator = random.Random(1)
    kills = rounds = 0
    while kills < KILLS:
        store, ended = tmp_path / str(rounds), False
        store.mkdir()
        rounds += 1
        while not ended:
            process = start(text, store)
            # Of the preparations that go on the last ones are let be, so that there is an end.
            process.join(generator.uniform(0.0, 0.6 * seconds) if kills < KILLS else None)
            if process.exitcode is None:
                kill_group(process)
                kills += 1
                assert_whole_as_far_as_it_goes(store, expected)
            else:
                assert process.exitcode == 0
                ended = True
        assert files_of(store) == expected
        (folder,) = store.iterdir()
        corpus = PackedCorpus(Location(folder))
        assert all(corpus.sequences(split, "en") > 0 for split in ("train", "validation", "test"))


def kill_group(process: multiprocessing.Process) -> None:
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has no group yet
        process.kill()
    process.join()


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="h2h-", dir="/tmp"))  # short: the names of unix sockets are limited
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start_on_a_cluster(text: Path, store: Path, ray_folder: Path) -> subprocess.Popen[str]:
    """A preparation whose cluster is up."""
    call = f"prepare_on_a_cluster({str(text)!r}, {str(store)!r}, {str(ray_folder)!r})"
    command = [sys.executable, "-c", f"from {__name__} import *; {call}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill_with_descendants(process: subprocess.Popen[str]) -> None:
    own = psutil.Process(process.pid)
    family = [own, *own.children(recursive=True)]
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:  # it ended with its parent
            continue
    process.wait()
    assert not psutil.wait_procs(family[1:], timeout=30)[1]


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Ray's worker processes that run a task."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.name().startswith("ray::Map"):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.timeout(300)
def test_killed_with_its_cluster(text: Path, undisturbed, tmp_path: Path, ray_folder: Path) -> None:
    expected, _ = undisturbed
    generator = random.Random(2)
    for kill in range(KILLS_OF_CLUSTERS):
        process = start_on_a_cluster(text, tmp_path, ray_folder)
        # A share of the files, each time a larger one, and a moment: a start of Ray takes too differently long.
        there = (kill + generator.random()) / KILLS_OF_CLUSTERS * 0.9 * len(expected)
        while len(files_of(tmp_path)) < there:
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(generator.uniform(0.0, 0.1))
        kill_with_descendants(process)
        assert_whole_as_far_as_it_goes(tmp_path, expected)
        assert len(files_of(tmp_path)) < len(expected)
    process = start_on_a_cluster(text, tmp_path, ray_folder)
    killed = 0  # of Ray's workers: it does their tasks again, and the preparation itself goes on
    while process.poll() is None and killed < 1:
        for worker in workers_of(process)[:1]:
            worker.kill()
            killed += 1
        time.sleep(0.02)
    assert process.wait() == 0
    assert killed
    assert files_of(tmp_path) == expected
