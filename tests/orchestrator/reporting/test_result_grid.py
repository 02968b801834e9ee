"""Results in Ray Tune's words, held against Ray's own: signatures, and its account of the same reports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from ray import tune
from ray.tune.result_grid import ResultGrid as TunesGrid

from orchestrator.ledger.records import EndRecord, MeasureRecord, TrialRecord
from orchestrator.reporting.result_grid import ResultGrid, TrialFailedError
from orchestrator.reporting.results import Results
from tests.helpers.demonstration import TOKENS, records
from tests.helpers.ledgers import write_ledger

PRIMARY = "recovery_accuracy"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    write_ledger(tmp_path / "demonstration", records())
    (tmp_path / "demonstration" / "study.yaml").write_text("name: demonstration")
    return Results(str(tmp_path / "demonstration"))


def measures(trial: str) -> list[MeasureRecord]:
    return [record for record in records() if isinstance(record, MeasureRecord) and record.trial == trial]


def completed(phase: str = "search") -> list[str]:
    return [r.trial for r in records() if isinstance(r, EndRecord) and (r.phase, r.outcome) == (phase, "completed")]


@pytest.mark.parametrize("name", ["get_best_result", "get_dataframe", "__len__", "__getitem__"])
def test_signatures_are_tunes(name: str) -> None:
    """What Tune's takes, ours takes, by place or by name, with the same defaults; what ours takes beside is by name."""
    theirs, ours = (inspect.signature(getattr(grid, name)).parameters for grid in (TunesGrid, ResultGrid))
    assert [(p.name, p.kind, p.default) for p in theirs.values()] == [
        (p.name, p.kind, p.default) for p in list(ours.values())[: len(theirs)]
    ]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in list(ours.values())[len(theirs) :])


def test_all_that_tunes_has_ours_has(results: Results) -> None:
    public = {name for name in dir(TunesGrid) if not name.startswith("_")}
    assert public <= set(dir(ResultGrid))
    fields = {name for name in dir(tune.Result) if not name.startswith("_")} - {"from_path", "get_best_checkpoint"}
    fields |= {"metrics", "checkpoint", "error", "path"}
    assert fields <= set(dir(results[0]))


def test_each_trial_is_a_result(results: Results) -> None:
    begun = [record for record in records() if isinstance(record, TrialRecord)]
    ends = {record.trial: record for record in records() if isinstance(record, EndRecord)}
    assert len(results) == len(begun) == len(list(results))
    for result, record in zip(results, begun, strict=True):
        last = measures(record.trial)[-1]
        assert result.config == result.metrics["config"] == record.configuration
        assert result.metrics["trial_id"] == record.trial
        assert result.metrics["loss"] == last.loss
        assert result.metrics["spent"] == last.spent
        assert len(result.metrics_dataframe) == len(measures(record.trial))
        broke = ends[record.trial].outcome == "diverged"
        assert isinstance(result.error, TrialFailedError) == broke
        if broke:
            assert "the loss is not a number" in str(result.error)
        assert result.path.endswith(f"trials/{record.trial}")
    assert results[-1].metrics["trial_id"] == begun[-1].trial
    with pytest.raises(IndexError):
        results[len(begun)]
    assert (results.num_errors, results.num_terminated) == (1, len(begun) - 1)
    assert results.errors == [result.error for result in results if result.error]


def test_the_best_is_the_searchs_best(results: Results) -> None:
    scores = {trial: measures(trial)[-1].yardsticks[PRIMARY].overall for trial in completed()}
    best = results.get_best_result()
    assert best.metrics["trial_id"] == max(scores, key=lambda trial: scores[trial])
    assert best.metrics[PRIMARY] == max(scores.values())
    worst = results.get_best_result(PRIMARY, "min")
    assert worst.metrics["trial_id"] == min(scores, key=lambda trial: scores[trial])
    own = {trial: score for trial, score in scores.items() if "-vanilla-" in trial}
    vanilla = results.get_best_result(arm="vanilla")
    assert vanilla.metrics["trial_id"] == max(own, key=lambda trial: own[trial])
    confirmed = results.get_best_result(phase="confirm").metrics["trial_id"]
    assert confirmed in completed("confirm")


@pytest.mark.parametrize("scope", ["last", "avg", "last-5-avg", "last-10-avg", "all"])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_scopes_are_tunes(results: Results, scope: str, mode: str) -> None:
    """Tune's own bookkeeping of the same reports."""
    from ray.tune.experiment.trial import _TrainingRunMetadata

    scores = {}
    for name in completed():
        account = _TrainingRunMetadata()
        for iteration, measure in enumerate(measures(name), start=1):
            account.update_metric("loss", measure.loss, step=iteration)
        found = account.metric_analysis["loss"]
        scores[name] = found[mode] if scope == "all" else found[scope]
    choose = max if mode == "max" else min
    best = results.get_best_result("loss", mode, scope)  # type: ignore[arg-type]
    assert best.metrics["trial_id"] == choose(scores, key=lambda name: scores[name])


def test_what_cannot_be_answered_is_refused(results: Results) -> None:
    with pytest.raises(ValueError, match="loss is no yardstick"):
        results.get_best_result("loss")
    with pytest.raises(RuntimeError, match="has reported acuracy"):
        results.get_best_result("acuracy", "max")
    with pytest.raises(ValueError, match="did you mean 'vanilla'"):
        results.get_best_result(arm="vanila")
    with pytest.raises(ValueError, match="no scope is called 'first'"):
        results.get_best_result(scope="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'min' or 'max'"):
        results.get_best_result(mode="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without filter_metric"):
        results.get_dataframe(filter_mode="max")


def test_the_frame(results: Results) -> None:
    frame = results.get_dataframe().set_index("trial_id")
    assert list(frame.index) == [record.trial for record in records() if isinstance(record, TrialRecord)]
    row = frame.loc["confirm-vanilla-000"]
    assert row["spent/tokens"] == TOKENS
    assert row["config/learning_rate"] == 6e-4
    assert row["languages/recovery_accuracy/en"] == pytest.approx(row[PRIMARY] + 0.03)
    least = results.get_dataframe(filter_metric="loss", filter_mode="min").set_index("trial_id")
    for trial, row in least.iterrows():
        losses = {m.step: m.loss for m in measures(str(trial))}
        assert (row["loss"], row["step"]) == (min(losses.values()), min(losses, key=lambda step: losses[step]))


def test_checkpoints(results: Results, tmp_path: Path) -> None:
    """Where they lie is tested where they are written; here a folder of that shape."""
    assert results[0].checkpoint is None
    assert results[0].best_checkpoints == []
    name = str(results[0].metrics["trial_id"])
    from trainables.training.checkpoint_record import START_FILE, STATE_FILE, CheckpointFolders

    start = CheckpointFolders(results.folder / "trials" / name).start(1)
    (start / START_FILE).write_json({"step": 0})
    for step in (10, 20):
        (start / f"step-{step:08d}" / STATE_FILE).write_bytes(b"{}")
    again = Results(results.folder)[0]
    assert again.checkpoint is not None
    assert Path(again.checkpoint.path).name == "step-00000020"
    with again.checkpoint.as_directory() as folder:
        assert [file.name for file in Path(folder).iterdir()] == [STATE_FILE]
    copy = again.checkpoint.to_directory(str(tmp_path / "copy"))
    assert (Path(copy) / STATE_FILE).read_bytes() == b"{}"
    assert again.best_checkpoints == [(again.checkpoint, again.metrics)]


def test_a_study_without_trials_is_still_results(tmp_path: Path) -> None:
    write_ledger(tmp_path, records()[:2])
    results = Results(str(tmp_path))
    assert results
    assert len(results) == 0
    assert results.get_dataframe().empty
    with pytest.raises(RuntimeError, match="no trial of the confirm"):
        results.get_best_result()


def test_no_ray_is_needed(results: Results) -> None:
    program = """
import sys
from orchestrator.reporting.results import Results
results = Results(sys.argv[1])
assert results.get_best_result().config and len(results.get_dataframe()) == len(results)
assert results[0].checkpoint is None
assert not any(name in sys.modules for name in ("ray", "torch", "optuna")), sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program, results.folder.uri], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
