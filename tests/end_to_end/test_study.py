"""Whole studies, small: what a user does with them, end to end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import Study
from orchestrator.cli import main
from orchestrator.ledger.segments import read_ledger
from orchestrator.session import Session
from tests.helpers.study import patient, small_study
from trainables.errors import InputError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def finished(ray_cluster, tmp_path_factory) -> Study:
    study = Study(small_study("first", tmp_path_factory.mktemp("studies")))
    study.run()
    return study


def test_a_study_comes_to_a_comparison(finished):
    history = finished.results.history
    assert list(history.phases.items()) == [(p, "end") for p in ("prepare", "search", "confirm", "compare")]
    for arm in ("headless", "vanilla"):
        searched = history.trials_of("search", arm)
        assert len(searched) >= 2
        assert history.spent("search", arm, "tokens") <= 2 * 8 * 32 * 40
        confirmed = history.trials_of("confirm", arm)
        assert [t.seed for t in confirmed] == [1, 2]
        assert all(t.outcome == "completed" and t.spent["tokens"] == 8 * 32 * 40 for t in confirmed)
    # Paired seeds: both arms saw the same tokens in the same order.
    digests = {seed: {t.measures[-1].digest for t in history.trials_of("confirm") if t.seed == seed} for seed in (1, 2)}
    assert all(len(values) == 1 for values in digests.values())
    assert digests[1] != digests[2]
    pair = history.comparison.comparison["pairs"][0]
    assert (pair["a"], pair["b"]) == ("headless", "vanilla")
    assert pair["yardsticks"]["recovery_accuracy"]["n"] == 2


def test_models_learn_more_than_the_commonest_token(finished):
    scores = finished.results.trials.query("phase == 'confirm' and arm == 'vanilla'").recovery_mrr
    chance = sum(1 / rank for rank in range(1, 501)) / 500
    assert (scores > 3 * chance).all()


def test_a_finished_study_is_not_run_again(finished):
    before = read_ledger(finished.folder / "ledger")
    Study.open(finished.folder).resume()
    assert Study.open(finished.folder).run(resume=True).verdict == finished.results.verdict
    assert read_ledger(finished.folder / "ledger") == before
    with pytest.raises(InputError, match="exists already"):
        finished.run()


def test_a_study_does_not_go_on_in_another_text(ray_cluster, tmp_path, monkeypatch):
    file = tmp_path / "en.txt"
    texts = [f"document {n}, one of the {n % 7} kinds of text that there are here" for n in range(600)]
    file.write_text("\n\n".join(texts))
    corpora = {"sources": [{"language": "en", "files": str(file)}], "sequence_length": 32}
    tokenizer = {"train": {"type": "byte_bpe", "vocabulary_size": 270}}
    study = Study(small_study("gone", tmp_path / "studies", corpora=corpora, tokenizer=tokenizer, yardsticks={}))

    def no_training(*_):
        raise RuntimeError("prepared")
        yield

    monkeypatch.setattr(Session, "_training_phases", no_training)
    with pytest.raises(RuntimeError, match="prepared"):
        study.run()
    before = study.corpus()
    shutil.rmtree(before.folder.local)
    file.write_text("\n\n".join([*texts, "one document more, written while the study was away"]))
    with pytest.raises(InputError, match=f"corpus {before.manifest.fingerprint} is gone, and its sources now"):
        study.resume()
    file.write_text("\n\n".join(texts))
    with pytest.raises(RuntimeError, match="prepared"):
        study.resume()
    assert study.corpus().manifest == before.manifest


def test_a_ray_that_starts_too_slowly_takes_no_name(tmp_path, monkeypatch):
    import ray

    def slow(**_):
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", slow)
    study = Study(small_study("slow", tmp_path))
    for _ in range(2):  # nothing is in the way of the second one
        with pytest.raises(InputError, match="Ray did not start in time"):
            study.run()

    def broken(**_):
        raise Exception("something else")

    monkeypatch.setattr(ray, "init", broken)
    with pytest.raises(Exception, match="something else"):
        study.run()


def test_results_in_a_new_process_without_ray_or_pickles(finished):
    script = f"""
import pickle, sys
def refuse(*_, **__): raise AssertionError("unpickled")
pickle.load = pickle.loads = pickle.Unpickler = refuse
from orchestrator import Results
results = Results({str(finished.folder)!r})
assert "ray" not in sys.modules and "torch" not in sys.modules
print(len(results.trials), len(results.ledger), len(results.comparison))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    trials, measures, rows = map(int, done.stdout.split())
    assert trials == len(finished.results.trials)
    assert measures >= 20 * 4
    assert rows == 3


def test_watch_and_compare_show_a_finished_study(finished, capsys):
    for command in ("watch", "compare"):
        assert main([command, str(finished.folder)]) == 0
        shown = capsys.readouterr().out
        assert "headless" in shown
        assert "recovery_accuracy" in shown


def test_only_text_and_safetensors_are_written(finished):
    files = [path for path in Path(finished.folder.uri).rglob("*") if path.is_file()]
    # What begins with a dot a process left half-written that was ended.
    suffixes = {path.suffix for path in files if not path.name.startswith(".")}
    assert suffixes == {".yaml", ".jsonl", ".json", ".safetensors", ".parquet"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into Linux's /proc")
def test_a_study_on_this_machine_listens_on_the_loopback_only():
    """Listening sockets of the processes of a session, by Linux's own tables."""
    script = """
import os, re
from pathlib import Path
from orchestrator.planning.machine import Machine
from orchestrator.execution.ray_session import ray_session
with ray_session(None, Machine(1, 0), dashboard=True):
    import ray
    ray.get(ray.remote(lambda: None).remote())
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[pid] = int(rest[1])
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    sockets = set()
    for pid in own:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets |= set(re.findall(r"socket:\\[(\\d+)\\]", os.readlink(link)))
            except OSError:
                continue
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in sockets:
                print(fields[1].split(":")[0])
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = patient([sys.executable, "-c", script], env=environment)
    assert done.returncode == 0, done.stderr
    addresses = set(done.stdout.split())
    assert addresses, "no listening socket was found"
    # 127.0.0.1, and the same in IPv6's notation, as the kernel writes them.
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
