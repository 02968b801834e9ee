"""The results API over ledgers on disk."""

import subprocess
import sys

import pytest

from orchestrator.analysis.compare import compare
from orchestrator.ledger.history import History
from orchestrator.ledger.records import MeasureRecord, StopRecord, TrialRecord, to_line
from orchestrator.ledger.segments import LedgerWriter
from orchestrator.reporting.results import Results
from tests.helpers.demonstration import REPORTS, TOKENS, records
from tests.helpers.ledgers import NOISE, changed, run_with_branches, study, write_ledger
from trainables.errors import InputError
from trainables.storage import Location


@pytest.fixture
def folder(tmp_path):
    write_ledger(tmp_path / "demonstration", records())
    (tmp_path / "demonstration" / "study.yaml").write_text("name: demonstration")
    return tmp_path / "demonstration"


def test_its_name_has_the_folder_and_the_state(folder, tmp_path):
    assert repr(Results(folder)) == f"Results('{folder}', finished)"
    begun = records()[0]
    for name, state in (("begin", "not finished"), ("end", "stopped")):
        write_ledger(tmp_path / name, [begun, StopRecord(status=name, time=begun.time)])
        assert repr(Results(tmp_path / name)) == f"Results('{tmp_path / name}', {state})"


def test_trials_say_what_the_records_say(folder):
    trials = Results(str(folder)).trials
    begun = [record for record in records() if isinstance(record, TrialRecord)]
    assert list(trials.trial) == [record.trial for record in begun]
    assert list(trials["configuration.learning_rate"]) == [r.configuration["learning_rate"] for r in begun]
    assert trials[trials.arm == "vanilla"]["configuration.temperature"].isna().all()
    confirm = trials[trials.phase == "confirm"]
    assert (confirm.outcome == "completed").all()
    assert (confirm["spent.tokens"] == TOKENS).all()
    assert (confirm.recovery_mrr - confirm.recovery_accuracy).to_numpy() == pytest.approx(0.09)


def test_ledger_has_a_row_a_measure(folder):
    results = Results(str(folder))
    ledger = results.ledger
    measures = [record for record in records() if isinstance(record, MeasureRecord)]
    assert len(ledger) == len(measures)
    assert ledger.counts.all()
    assert dict(zip(ledger.trial, ledger.seed, strict=True)) == dict(
        zip(results.trials.trial, results.trials.seed, strict=True)
    )
    last = ledger[(ledger.trial == "confirm-vanilla-000") & (ledger.step == 10 * REPORTS)].iloc[0]
    assert last["spent.tokens"] == TOKENS
    assert ledger.data_wait_seconds.tolist() == [record.overhead["data_wait"] for record in measures]
    assert last["yardsticks.recovery_accuracy.languages.sw"] < last["yardsticks.recovery_accuracy.overall"]


def test_spending_has_a_row_an_attempt(folder):
    results = Results(str(folder))
    spending = results.spending
    assert len(spending) == len(results.trials)
    useful = spending.groupby("trial")["useful.tokens"].sum()
    assert useful.to_dict() == pytest.approx(results.trials.set_index("trial")["spent.tokens"].to_dict())
    assert (spending["lost.tokens"] == 0).all()
    assert spending["overhead.startup"].unique() == pytest.approx([1.5])
    holding = spending.drop(columns="overhead.placement")  # which holds no device
    whole = spending["useful.device_seconds"] + holding.filter(like="overhead.").sum(axis=1)
    assert (whole + spending.unreported_seconds).to_numpy() == pytest.approx(spending.device_seconds.to_numpy())


def test_comparison_languages_best_and_verdict(folder):
    results = Results(str(folder))
    means = results.trials.query("phase == 'confirm'").groupby("arm").recovery_accuracy.mean()
    row = results.comparison.query("yardstick == 'recovery_accuracy'").iloc[0]
    assert (row.a, row.b, row.n, row.verdict) == ("headless", "vanilla", 6, "headless")
    assert row.difference == pytest.approx(means["headless"] - means["vanilla"])
    assert row.interval_low < row.difference < row.interval_high
    deviations = results.trials.query("phase == 'confirm'").groupby("arm").recovery_accuracy.std()
    (own,) = results.languages.query(
        "arm == 'vanilla' and yardstick == 'recovery_accuracy' and language == 'en'"
    ).itertuples()
    assert (own.n, own.mean, own.deviation) == (
        6,
        pytest.approx(means["vanilla"] + 0.03),
        pytest.approx(deviations["vanilla"]),
    )
    assert list(results.language_differences.language) == ["en", "fr", "sw"]
    for own in results.language_differences.itertuples():
        assert (own.a, own.b, own.n) == ("headless", "vanilla", 6)
        assert own.difference == pytest.approx(row.difference)  # each language is as far from the whole in either arm
        assert own.interval_low < own.difference < own.interval_high
    assert results.best("headless") == {"learning_rate": 6e-4, "warmup_share": 0.06, "temperature": 0.07}
    assert results.verdict.startswith("headless is ahead of vanilla on recovery_accuracy at 2.0M tokens")


def test_time_to_target_is_a_frame(tmp_path):
    found = [study()]
    for seed, noise in enumerate(NOISE):
        found += run_with_branches("headless", seed, 0.8 + noise)
        found += run_with_branches("vanilla", seed, 0.4)
    write_ledger(tmp_path, found)
    results = Results(str(tmp_path))
    rows = results.time_to_target.set_index("unit")
    own = compare(History.of(found)).pairs[0].time_to_target["tokens"]
    assert (rows.loc["tokens", "ratio"], rows.loc["tokens", "n"]) == (own.ratio, own.n)
    assert (rows.loc["tokens", "interval_low"], rows.loc["tokens", "interval_high"]) == own.interval
    assert 0.3 < own.ratio < 0.7, "the curve is a straight line, and twice as high"


def test_before_confirm_the_best_is_that_of_search(tmp_path):
    later = [r for r in records() if r.kind == "comparison" or getattr(r, "phase", "") in ("confirm", "compare")]
    write_ledger(tmp_path, [r for r in records() if r not in later])
    results = Results(str(tmp_path))
    search = results.trials.query("arm == 'vanilla' and outcome == 'completed'")
    best = search.loc[search.recovery_accuracy.idxmax()]
    assert results.best("vanilla")["learning_rate"] == best["configuration.learning_rate"]
    assert results.comparison.n.tolist() == [0, 0]
    assert results.languages.empty


def test_a_torn_line_is_passed_over_and_a_resumed_trial_is_counted_once(tmp_path):
    all_records = list(records())
    begin = next(i for i, r in enumerate(all_records) if isinstance(r, TrialRecord))
    trial = all_records[begin]
    measures = [r for r in all_records if isinstance(r, MeasureRecord) and r.trial == trial.trial]
    file = write_ledger(tmp_path, [*all_records[: begin + 1], *measures[:3]])
    with file.open("ab") as lines:
        lines.write(to_line(measures[3])[:40])
    again = [changed(trial, attempt=2, start_step=10), changed(measures[1], attempt=2)]
    write_ledger(tmp_path, again, segment=2)
    results = Results(str(tmp_path))
    assert results.trials.attempts.tolist() == [2]
    assert results.trials["spent.tokens"].tolist() == [2 * TOKENS / REPORTS]
    assert results.trials.outcome.isna().all()
    assert list(zip(results.ledger.attempt, results.ledger.step, results.ledger.counts, strict=True)) == [
        (1, 10, True), (1, 20, False), (1, 30, False), (2, 20, True)]  # fmt: skip


def test_no_study_names_the_nearest(folder):
    with pytest.raises(InputError, match="did you mean 'demonstration'"):
        Results(str(folder.parent / "demonstratoin"))
    with pytest.raises(InputError, match=rf"one of those in it: {folder}$"):
        Results(str(folder.parent))
    with pytest.raises(InputError, match="no study lies in") as caught:
        Results(str(folder / "study.yaml"))
    assert "h2h list" in caught.value.remedy
    with pytest.raises(InputError, match="did you mean 'vanilla'"):
        Results(str(folder)).best("vanila")


def test_reading_a_strangers_study_loads_no_pickle_and_no_ray(folder):
    (folder / "searcher.pkl").write_bytes(b"cposix\nsystem\n(S'exit 9'\ntR.")
    program = """
import builtins, pickle, sys
def refuse(*args, **kwargs):
    raise AssertionError("a pickle was loaded")
pickle.load = pickle.loads = pickle.Unpickler = refuse
from orchestrator.reporting.results import Results
results = Results(sys.argv[1])
frames = results.trials, results.ledger, results.comparison, results.languages
assert all(len(frame) for frame in frames) and results.verdict and results.best("vanilla")
assert not any(name in sys.modules for name in ("ray", "torch", "optuna"))
"""
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_ledger_has_one_writer(tmp_path):
    writer = LedgerWriter(Location(tmp_path))
    with pytest.raises(InputError, match="another process runs this study"):
        LedgerWriter(Location(tmp_path))
    writer.close()
    LedgerWriter(Location(tmp_path)).close()
