"""The benchmarks run, and their baselines compute the same losses, or as many tokens (they check it themselves)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
import yaml

from tests.helpers.repository import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the process that measures memory
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in ("calibration", "corpora", "measure", "plain", "search", "serve", "step", "trainer", "yardsticks"):
        sys.modules.pop(name, None)


def result_of(name, *options):
    """Of a benchmark's quick run, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_step(benchmarks, capsys):
    import step

    result = step.main(["--quick"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["table"] == result["table"]
    for side in ("encoder", "decoder"):
        for arm in ("body", "headless", "vanilla", "all_positions", "target_positions"):
            rows = [row for row in result["table"] if (row["side"], row["arm"]) == (side, arm)]
            assert {row["vocabulary_size"] for row in rows} == set(step.QUICK.vocabularies)
            assert {row["batch"] for row in rows} == set(step.QUICK.batches)
            assert all(0 < row["passes_milliseconds"] < row["step_milliseconds"] for row in rows)
            # Zero of what is as small: the second run finds the memory that the first one left.
            assert all(row["peak_memory_mb"] >= 0 for row in rows)


def test_peak_memory(benchmarks):
    """Of what takes 64 MiB and gives them back, in a fresh process."""
    import measure

    assert measure.peak_bytes("cpu", partial, torch.ones, 1 << 24) == pytest.approx(1 << 26, rel=0.1)


def test_baselines_whose_logits_are_too_large_are_left_out(benchmarks):
    import step

    plan = step.Plan()
    left_out = {
        (side, arm, vocabulary)
        for side in ("encoder", "decoder")
        for arm in ("vanilla", "all_positions", "target_positions")
        for vocabulary in plan.vocabularies
        if step.stored_logits_bytes(plan, step.Case(side, arm, vocabulary, plan.batch)) > step.LARGEST_LOGITS_BYTES
    }
    assert left_out == {
        ("encoder", "all_positions", 250_000),
        ("decoder", "all_positions", 250_000),
        ("decoder", "target_positions", 250_000),
    }


@pytest.mark.slow
def test_trainer(benchmarks, capsys):
    import trainer

    result = trainer.main(["--quick"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert [row["objective"] for row in result["table"]] == list(trainer.OBJECTIVES)
    ratios = [row["tokens_per_second"]["ours"] / row["tokens_per_second"]["bare"] for row in result["table"]]
    assert result["tokens_per_second_over_bare_loop"] == pytest.approx(min(ratios), rel=1e-3)


@pytest.mark.slow
def test_calibration(benchmarks):
    import calibration

    result = calibration.main(["--quick"])  # it asserts that its verdicts are those of compare_scores
    for key in ("false_verdict_rate", "false_equivalence_rate", "two_valued_false_verdict_rate", "power_gap"):
        assert 0 <= result[key]["value"] < 0.3
    assert 0.7 < result["coverage"]["value"] <= 1
    noises = {case.noise for case in calibration.FIXED}
    assert noises == {case.noise for case in calibration.ADAPTIVE} == calibration.NOISES.keys()
    rng = np.random.default_rng(0)
    for noise, spread in calibration.SPREAD.items():  # nulls, of the deviation that they are divided by
        drawn = np.nan_to_num(calibration.NOISES[noise](rng, (200_000,)), nan=calibration.WORST)
        differences = np.subtract(*drawn)
        assert abs(differences.mean()) < 0.02 * spread
        assert differences.std() == pytest.approx(spread, rel=0.02)
    case = calibration.Case(6, 6, text=1.0)  # the text's error is the seeds'
    means = calibration.simulate(case, 0.0, 4000, rng)[0, 1][0].mean((1, 2))
    assert np.var(means) == pytest.approx(1 / 6 + 1 / 6, rel=0.1)


def test_search(benchmarks, capsys):
    import search

    result = search.main(["--quick"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    medians = result["searching"]["median_trial_budgets"]
    assert result["search_over_random"] == pytest.approx(medians["halving"] / medians["random"])
    assert not any(result["searching"]["not_found"].values())
    assert all(found["least_share_spent"] >= 0.95 for found in result["shares"].values())
    # A record of the beginning and the end of every attempt, and of each of its reports.
    assert result["records_read_while_written"] > 4 * result["trials"]
    assert set(result["file_bytes"]) == {"optuna.jsonl", "000001.jsonl"}


def test_cluster():
    """The more steps run side by side, the busier the places. In a process of its own: one of our packages has the
    same name."""
    result = result_of("cluster", "--simulated")
    one, _, eight = (row["search"] for row in result["table"])
    assert 0 < 4 * one < eight < 1
    assert set(result["busy_share_16_slots"]) == {"search", "confirmation", "both"}


@pytest.mark.slow
def test_cluster_with_trial_processes():
    result = result_of("cluster")
    assert result["bookkeeping_10000_seconds"] > 0
    assert result["result_throughput_seconds"] > 0
    assert {"driver_growth_mb", "driver_growth_at_the_end_mb"} <= result.keys()


def test_the_surrogates_optimum_is_that_of_its_curves(benchmarks):
    import search

    from search_spaces import Space, space_path

    curves = search.Surrogate({"learning_rate": 1e-3, "temperature": 1.0}, 256)
    slow = {"learning_rate": 2e-3, "temperature": 1.0, "negatives": 256}
    fast = {**slow, "learning_rate": 5e-3}
    assert curves.accuracy(fast, 1 / 9) > curves.accuracy(slow, 1 / 9) + 0.02  # curves cross
    assert curves.accuracy(fast, 1.0) < curves.accuracy(slow, 1.0) - 0.01
    space = Space.model_validate(yaml.safe_load(space_path("headless_mlm").read_text()))
    best = curves.best(space)
    assert best == pytest.approx(curves.accuracy(slow, 1.0), abs=2e-3)
    for rate, temperature, negatives in ((2e-3, 1.0, 64), (5e-4, 1.0, 256), (2e-3, 3.0, 256)):
        configuration = {"learning_rate": rate, "temperature": temperature, "negatives": negatives}
        assert curves.accuracy(configuration, 1.0) < best - 0.005


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("H2H_TEST_DATA" not in os.environ, reason="needs H2H_TEST_DATA, a folder of real text")
def test_corpora():
    """In a process of its own: it starts a Ray cluster of its own."""
    result = result_of("corpora")
    ratios = [row["prepare_over_bare"] for row in result["preparation"]]
    assert [row["tokenizer"] for row in result["preparation"]] == ["byte_bpe", "unigram"]
    assert result["prepare_over_bare_tokenizer"] == min(ratios) > 0
    speeds = result["tokens_per_second"]
    assert set(speeds) == {"memmap", "local", "local_with_digest", "many_shards", "ray_data"}
    assert result["many_shards_tokens_per_second"] == speeds["many_shards"] > 0
    assert result["stream_over_memmap"] == pytest.approx(speeds["local"] / speeds["memmap"], abs=1e-3)
    assert len(result["first_batches"]) == 4
    assert result["first_batch_seconds"] == max(result["first_batches"].values()) > 0
    assert 0 <= result["data_wait_share"] < 1
    assert result["copies_of_the_tokens"] > 0
    assert min(result["peak_memory_bytes_small"], result["peak_memory_bytes_large"]) > 1 << 26


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("H2H_TEST_DATA" not in os.environ, reason="needs H2H_TEST_DATA, a folder of real text")
def test_yardsticks():
    """In a process of its own: it starts a Ray cluster of its own."""
    result = result_of("yardsticks")
    names = {"recovery_accuracy", "recovery_mrr", "perplexity", "log perplexity", "bits_per_byte"}
    assert result["best_over"].keys() == names - {result["best"]}
    for task in result["tasks"].values():
        assert len(task["table"]) == 3 * len(names)
        for row in task["table"]:
            assert row["interval"][0] < row["snr"] < row["interval"][1]
            assert row["snr"] == pytest.approx(row["signal"] / row["noise"], rel=2e-3)
            assert all(0 <= row[key][0] <= 1 for key in ("as_other_seeds", "as_twice_the_budget"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("H2H_TEST_DATA" not in os.environ, reason="needs H2H_TEST_DATA, a folder of real text")
def test_tasks():
    """In a process of its own: one of our modules has the same name. What is compared depends on what is installed."""
    result = result_of("tasks")
    assert result["tier_a_pairs"] == 2000
    assert min(result["tier_a_seconds"], result["tier_a_encoder_seconds"], result["probes_seconds"]) > 0
    assert result["probes"] == {"udpos": 2, "sib200": 2}
    assert result["transformers_loss_difference"] < 1e-5
    assert result["minicons_max_difference"] is None or result["minicons_max_difference"] < 1e-4
    assert result["lm_eval_disagreements"] in (None, 0)


def made_up_scores(rng, name, level, noise, num_documents):
    """Of one run: tokens that are right with the chance ``level``, plus the seed's own share."""
    from trainables.evaluation.item_scores import ItemScores

    weight_I = np.full(num_documents, 100.0)
    value_I = 100.0 * (level + noise * rng.standard_normal() + 0.02 * rng.standard_normal(num_documents))
    language_I = np.repeat(["a", "b"], num_documents // 2)
    return {name: ItemScores("identity", language_I, np.arange(num_documents), value_I, weight_I, True)}


def test_signal_and_noise_of_made_up_runs(benchmarks):
    """As they were drawn; the interval of a ratio of two has the truth."""
    import yardsticks

    rng, seeds, num_documents = np.random.default_rng(0), 20, 60
    levels = {yardsticks.Model("arm", rate, 1): level for rate, level in ((1.0, 0.10), (2.0, 0.14), (3.0, 0.18))}
    runs = {
        model: [
            made_up_scores(rng, "one", level, 0.01, num_documents)
            | made_up_scores(rng, yardsticks.BASELINE, level, 0.03, num_documents)
            for _ in range(seeds)
        ]
        for model, level in levels.items()
    }
    a, b, c = levels
    groups = {"arm": [(a, b), (b, c), (a, c)]}
    spread = yardsticks.spread_of(runs, groups["arm"], "one")
    assert spread.signal == pytest.approx((0.04**2 + 0.04**2 + 0.08**2) / 3, rel=0.2)
    assert spread.seeds == pytest.approx(2 * (0.01**2 + 0.02**2 / num_documents) / seeds, rel=0.4)
    assert spread.text < 0.3 * spread.seeds  # each run drew its own
    found = yardsticks.measured(runs, groups, ["one", yardsticks.BASELINE], seeds)
    said = yardsticks.best_of([found], ["one", yardsticks.BASELINE])
    assert said["best"] == "one"
    ratio, low, high = said["best_over"][yardsticks.BASELINE]
    assert 1 < low < 3 < high < 9
    assert low < ratio < high
    assert said[f"over_{yardsticks.BASELINE}"] == {"one": [ratio, low, high]}


def test_decisions_leave_out_the_seed_itself(benchmarks):
    import yardsticks

    said_PS = np.array([[1.0, 1.0, -5.0], [1.0, 0.0, 1.0]])
    # Without itself each seed of the first pair meets a mean of the other sign; a tie is half right.
    assert yardsticks.share_right(said_PS, said_PS) == [
        pytest.approx(2.5 / 6, abs=1e-4),
        pytest.approx(0.0833, abs=1e-4),
    ]


@pytest.mark.slow
def test_serve():
    result = result_of("serve")
    told, begun = result["told_of"].split(" of ")
    assert told == begun
    assert result["records_per_second"] > 10
    assert 0 < result["core_share"] < 1


@pytest.mark.slow
def test_dashboard():
    result = result_of("dashboard")
    assert result["records_per_second"] > 10
    assert result["frames_per_second"] > 0
    assert 0 < result["core_share"] < 1


@pytest.mark.slow
def test_scale(benchmarks):
    """The workloads go through a study and through Tune alone; the memory of few trials tells nothing."""
    pytest.importorskip("moto")
    result = result_of("scale")
    for part in ("bookkeeping", "result_throughput", "fast_reports", "store"):
        assert result[part]["seconds"] >= result[part]["floor_seconds"]
        assert result[part]["ledger_reads"] > 0
    assert result["bookkeeping"]["bare_tune"]["seconds"] > 0
    assert 0 < result["ledger_writes_per_second"] < 2
    assert result["checkpoint_mb_per_second"] > 0


def test_report():
    result = result_of("report")
    assert result["trials"] == 200
    assert 0 < result["report_mb"] < 3
    assert result["report_seconds"] > 0
