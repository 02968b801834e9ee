"""Whole studies, small: what a user does with them, end to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator import Results, Study
from orchestrator.history import History
from orchestrator.ledger import read_ledger
from orchestrator.verification import verify
from trainables.errors import InputError
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints


def small_study(name: str, storage: Path, **changes: Any) -> dict[str, Any]:
    """Two decoder arms on two embedded languages; about a second a trial."""
    return {
        "name": name,
        "corpora": {
            "sources": [
                {"language": language, "grammar": language, "documents": 200}
                for language in ("veldan", "kharto")
            ],
            "sequence_length": 32,
            "validation_share": 0.1,
            "test_share": 0.1,
            "minimal_pairs_per_language": 20,
        },
        "tokenizer": {"train": {"vocabulary_size": 500}},
        "model": {
            "config": {
                "model_type": "gpt_neox",
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 64,
            }
        },
        "training": {"batch_sequences": 8, "learning_rate": 3e-3},
        "arms": {"headless": {"objective": "headless_clm"}, "vanilla": {"objective": "clm"}},
        "budget": {"tokens": 8 * 32 * 40},
        "search": {"budget_per_arm": 2, "halving": {"rungs": 2}},
        "confirm": {"seeds": 2, "evaluations": 2},
        "yardsticks": {
            "others": ["recovery_mrr", "minimal_pair_accuracy"],
            "evaluation": {"sequences_per_language": 8},
        },
        "storage": str(storage),
        **changes,
    }


def h2h(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


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
    digests = {
        seed: {t.measures[-1]["digest"] for t in history.trials_of("confirm") if t.seed == seed}
        for seed in (1, 2)
    }
    assert all(len(values) == 1 for values in digests.values())
    assert digests[1] != digests[2]
    pair = history.comparison["pairs"][0]
    assert (pair["a"], pair["b"]) == ("headless", "vanilla")
    assert pair["yardsticks"]["recovery_accuracy"]["n"] == 2


def test_models_learn_more_than_the_commonest_token(finished):
    scores = finished.results.trials.query("phase == 'confirm' and arm == 'vanilla'").recovery_mrr
    chance = sum(1 / rank for rank in range(1, 501)) / 500
    assert (scores > 3 * chance).all()


def test_a_finished_study_is_not_run_again(finished):
    before = read_ledger(finished.folder / "ledger")
    Study.open(finished.folder).resume()
    assert read_ledger(finished.folder / "ledger") == before
    with pytest.raises(InputError, match="exists already"):
        finished.run()


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


def test_watch_and_compare_show_a_finished_study(finished):
    for command in ("watch", "compare"):
        done = h2h(command, str(finished.folder))
        assert done.returncode == 0, done.stderr
        assert "headless" in done.stdout
        assert "recovery_accuracy" in done.stdout


def test_only_text_and_safetensors_are_written(finished):
    suffixes = {path.suffix for path in Path(finished.folder.uri).rglob("*") if path.is_file()}
    assert suffixes == {".yaml", ".jsonl", ".json", ".safetensors"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into Linux's /proc")
def test_a_study_on_this_machine_listens_on_the_loopback_only():
    """Listening sockets of the processes of a session, by Linux's own tables."""
    script = """
import os, re
from pathlib import Path
from orchestrator.preflight import Machine
from orchestrator.study import _ray_session
with _ray_session(None, Machine(1, 0), dashboard=True):
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    addresses = set(done.stdout.split())
    assert addresses, "no listening socket was found"
    # 127.0.0.1, and the same in IPv6's notation, as the kernel writes them.
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_failing_trial_is_an_outcome(ray_cluster, tmp_path, monkeypatch):
    """Every learning rate diverges: the study says so, with the trials' ends, and exits without a traceback."""
    from orchestrator.study import StudyError

    monkeypatch.setattr("orchestrator.phases.HOPELESS_TRIALS", 3)

    space = tmp_path / "wild.yaml"
    space.write_text("dimensions: {learning_rate: {type: float, low: 1.0e+30, high: 1.0e+31}}\n")
    arms = {"vanilla": {"objective": "clm", "space": str(space)}}
    study = Study(small_study("diverging", tmp_path, arms=arms))
    with pytest.raises(StudyError, match="diverged"):
        study.run()
    outcomes = {t.outcome for t in study.results.history.trials.values()}
    assert outcomes == {"diverged"}


def test_paused_trials_go_on_from_their_checkpoints(ray_cluster, tmp_path):
    """Halving by promotion: of two trials one comes to its end, without a step done twice; Optuna's file agrees."""
    import optuna

    search = {"budget_per_arm": 2, "halving": {"kind": "promotion", "reduction": 2, "rungs": 2}}
    spec = small_study("promoting", tmp_path, search=search, confirm={"seeds": 1})
    history = Study(spec).run().history
    records = [
        r for r in read_ledger(Location(tmp_path / "promoting" / "ledger")) if r.get("phase") == "search"
    ]
    for arm in ("headless", "vanilla"):
        trials = history.trials_of("search", arm)
        assert [t.outcome for t in trials].count("completed") == 1
        assert {t.outcome for t in trials} == {"completed", "pruned"}
        for trial in trials:
            own = [r for r in records if r.get("trial") == trial.trial]
            begun = [r["start_step"] for r in own if r["kind"] == "trial"]
            steps = [r["step"] for r in own if r["kind"] == "measure"]
            assert len(steps) == len(set(steps)), "work was done twice"
            assert begun == ([0, 20] if trial.outcome == "completed" else [0])
            assert [r["outcome"] for r in own if r["kind"] == "end"] == ["paused", trial.outcome]
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "promoting" / "optuna.jsonl"))
        )
        known = optuna.load_study(study_name=f"promoting/{arm}", storage=storage).trials
        states = {"completed": "COMPLETE", "pruned": "PRUNED"}
        assert [t.state.name for t in known] == [states[str(t.outcome)] for t in trials]


def test_failures_have_their_outcome_and_reason(ray_cluster, tmp_path):
    """Out of memory; a checkpoint of another shape; one that was cut short, alone, and with a whole one before it."""
    huge = small_study("", tmp_path)["model"]["config"] | {"intermediate_size": 10**10}
    arms = {
        "huge": {"objective": "clm", "model": {"config": huge}},
        "other": {"objective": "clm"},
        "torn": {"objective": "clm"},
        "fine": {"objective": "clm"},
    }
    spec = small_study("failing", tmp_path, arms=arms, search={"budget_per_arm": 0}, confirm={"seeds": 1})
    study = Study(spec)
    trials = tmp_path / "failing" / "trials"
    state = {"restored": False, "measure": {"yardsticks": {}}}
    for arm in ("other", "torn"):
        checkpoints = Checkpoints(Location(trials / f"confirm-{arm}-000"))
        tensors = {"model": {"body.weight": torch.ones(2, 2)}, "optimiser": {"x": torch.ones(1)}}
        checkpoints.save(7, tensors, state)
        checkpoints.wait()
    torn = trials / "confirm-torn-000" / "step-00000007" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-3])
    history = study.run().history
    outcomes = {name: (trial.outcome, trial.attempts) for name, trial in history.trials.items()}
    assert outcomes == {
        "confirm-huge-000": ("failed", 2),
        "confirm-other-000": ("failed", 1),
        "confirm-torn-000": ("failed", 1),
        "confirm-fine-000": ("completed", 1),
    }
    records = read_ledger(Location(tmp_path / "failing" / "ledger"))
    reasons = {r["arm"]: r["reason"] for r in records if r["kind"] == "end"}
    assert "out of memory" in reasons["huge"]
    assert "micro_batch_sequences" in reasons["huge"]
    assert "of another model" in reasons["other"]
    assert "parameters differ" in reasons["other"]
    assert "checksum differs" in reasons["torn"]
    assert "remove that folder" in reasons["torn"]


@pytest.mark.slow
def test_stopped_and_resumed(finished, tmp_path):
    """Ctrl-C amid the search and amid the confirmation: the undisturbed run's results, and nothing is done twice."""
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(small_study("broken", tmp_path)))
    folder = tmp_path / "broken"
    command = [sys.executable, "-m", "orchestrator", "run", str(file)]
    for wanted in ("search", "confirm"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_measures(folder, wanted, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert f"h2h resume {folder}" in out
        assert "Traceback" not in err
        command = [sys.executable, "-m", "orchestrator", "resume", str(folder)]
    done = h2h("resume", str(folder))
    assert done.returncode == 0, done.stderr

    assert verify(Location(folder)).mismatches == []
    records = read_ledger(Location(folder / "ledger"))
    undisturbed, broken = finished.results.history, History.of(records)
    assert set(broken.trials) == set(undisturbed.trials)
    assert any(trial.attempts > 1 for trial in broken.trials.values())
    for name, trial in undisturbed.trials.items():
        other = broken.trials[name]
        assert (trial.outcome, trial.configuration, trial.seed) == (
            other.outcome,
            other.configuration,
            other.seed,
        )
        for key in ("step", "loss", "digest", "yardsticks", "mix"):
            assert [m[key] for m in trial.measures] == [m[key] for m in other.measures], (name, key)
    steps = [(r["trial"], r["step"]) for r in records if r["kind"] == "measure"]
    assert len(steps) == len(set(steps)), "work was done twice"
    for key in ("pairs", "not_compared"):
        kept = [without_seconds(history.comparison[key]) for history in (undisturbed, broken)]
        assert kept[0] == kept[1]


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: without_seconds(v) for k, v in value.items() if k not in ("device_seconds", "wall_seconds")
        }
    if isinstance(value, list):
        return [without_seconds(v) for v in value]
    return value


def wait_for_measures(folder: Path, phase: str, process: subprocess.Popen[str]) -> None:
    """Until a trial of the phase is under way."""
    deadline = time.time() + 180
    while time.time() < deadline:
        assert process.poll() is None, process.communicate()
        records = read_ledger(Location(folder / "ledger"))
        if any(r["kind"] == "measure" and r["phase"] == phase for r in records):
            return
        time.sleep(0.05)
    raise AssertionError(f"no report from {phase}")


@pytest.mark.slow
def test_two_workers_train_on_the_batches_of_one(ray_cluster, tmp_path):
    """Under Ray Train, where one worker gives the same to the bit (test_chaos), two give the same but for rounding."""
    common = {
        "arms": {"vanilla": {"objective": "clm"}},
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 1},
    }
    alone = Study(small_study("alone", tmp_path, **common)).run()
    file = tmp_path / "pair.yaml"
    file.write_text(json.dumps(small_study("pair", tmp_path, **common, resources={"workers": 2})))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stderr
    ((name, trial),) = Results(str(tmp_path / "pair")).history.trials.items()
    assert trial.outcome == "completed"
    last, other = trial.measures[-1], alone.history.trials[name].measures[-1]
    assert (last["digest"], last["mix"], last["step"]) == (other["digest"], other["mix"], other["step"])
    assert last["loss"] == pytest.approx(other["loss"], rel=1e-3)


@pytest.mark.slow
def test_submit_a_study_to_a_local_head_node(tmp_path):
    """The whole study as a job: followed to its end, results read from the storage."""
    from cluster.local import LocalCluster

    file = tmp_path / "study.yaml"
    file.write_text(
        json.dumps(small_study("job", tmp_path, search={"budget_per_arm": 1}, confirm={"seeds": 1}))
    )
    with LocalCluster(autoscaling=False, head_cpus=2) as cluster:
        done = h2h("submit", str(file), "--address", cluster.dashboard_url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "phase    compare ends" in done.stdout  # the job's own lines
    assert str(tmp_path / "job") in done.stdout
    assert len(Results(str(tmp_path / "job")).comparison) == 3
