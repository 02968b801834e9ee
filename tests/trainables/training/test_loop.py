"""The loop: budgets, schedules, resuming, workers. A resumed run equals an undisturbed one bit for bit."""

from __future__ import annotations

import itertools
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.trials import NO_DROPOUT, comparable, make_config, make_trial, run, stop_after
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream, sequence_digest
from trainables.errors import InputError
from trainables.evaluation.item_scores import from_parquet, items_file
from trainables.evaluation.passes import take
from trainables.hashing import checksum
from trainables.objectives import find_objective
from trainables.storage import Location
from trainables.training import loop, meters
from trainables.training.checkpoint import KEPT, Checkpoints
from trainables.training.checkpoint_record import AttemptOrder, CheckpointFolders, CheckpointRecord
from trainables.training.config import UNITS, Branch, BudgetConfig, learning_rate_share
from trainables.training.loop import Trial
from trainables.training.world import World

torch.set_num_threads(1)

OBJECTIVES = ["mlm", "headless_mlm", "clm", "headless_clm"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60, "sw": 20})


# --- budget -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"tokens": 10, "steps": 2}, dict.fromkeys(UNITS, 5)])
def test_exactly_one_unit_binds(given):
    with pytest.raises(ValueError, match="exactly one"):
        BudgetConfig.model_validate(given)


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_that_binds(unit):
    budget = BudgetConfig.model_validate({unit: 7})
    assert (budget.unit, budget.amount) == (unit, 7.0)
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match=unit):
            BudgetConfig.model_validate({unit: wrong})


def read_exactly(corpus, config, measure):
    """Whether the run read the stream from its start on without a gap, as often as it says."""
    num_sequences, rest = divmod(int(measure.spent["tokens"]), LENGTH)
    stream = TokenStream(corpus, config.seed, config.alpha, config.maximum_repetition)
    batch = stream.take(np.arange(num_sequences))
    mix = dict(zip(corpus.languages, np.bincount(batch.language_N, minlength=3).tolist(), strict=True))
    return rest == 0 and measure.digest == f"{sequence_digest(batch):016x}" and measure.mix == mix


@pytest.mark.parametrize("sequences", [1, 7, 8, 9, 43, 48])
@pytest.mark.parametrize("extra", [0, LENGTH - 1])
def test_tokens_are_spent_to_the_last_whole_sequence(corpus, sequences, extra):
    config = make_config(budget={"tokens": sequences * LENGTH + extra}, rungs=[], evaluations=[], yardsticks=[])
    last = run(corpus, config)[-1]
    assert last.status == "completed"
    assert last.measure.spent["tokens"] == sequences * LENGTH
    assert last.measure.spent["steps"] == -(-sequences // 8)
    assert read_exactly(corpus, config, last.measure)


@pytest.mark.parametrize("steps", [1, 5, 5.5])
def test_steps(corpus, steps):
    config = make_config(budget={"steps": steps}, rungs=[], evaluations=[], yardsticks=[])
    last = run(corpus, config)[-1]
    assert last.measure.spent["steps"] == int(steps)
    assert last.measure.spent["tokens"] == int(steps) * 8 * LENGTH
    assert last.measure.progress == int(steps) / steps


@settings(max_examples=12, deadline=None)
@given(sequences=st.floats(0.5, 40), objective=st.sampled_from(OBJECTIVES), micro=st.sampled_from([None, 3]))
def test_flops_are_never_overshot_and_not_wasted(corpus, sequences, objective, micro):
    config = make_config(objective, training={"micro_batch_sequences": micro})
    learner = make_trial(corpus, config).stepper.learner
    targets = 2 if "mlm" in objective else LENGTH - 1
    dearest = learner.flops(1, LENGTH, targets, VOCABULARY)
    changes = {"rungs": (), "evaluations": (), "yardsticks": ()}
    config = config.model_copy(update={**changes, "budget": BudgetConfig(flops=sequences * dearest)})
    last = run(corpus, config)[-1]
    assert last.status == "completed"
    spent = last.measure.spent
    assert spent["flops"] <= config.budget.amount
    # One more sequence costs its body and its targets' scores, and adds candidates to the step.
    more = dearest + learner.flops(0, LENGTH, 8 * targets, targets)
    assert config.budget.amount - spent["flops"] < more
    assert read_exactly(corpus, config, last.measure)
    if objective in ("mlm", "clm"):
        assert spent["flops"] == spent["tokens"] / LENGTH * dearest


def test_seconds_bind_and_only_training_is_billed(corpus, monkeypatch, tmp_path):
    """By a clock that ticks when it is read: a step takes one tick, whatever else takes how many."""
    ticks = itertools.count()
    monkeypatch.setattr(meters.time, "perf_counter", lambda: float(next(ticks)))
    config = make_config(budget={"device_seconds": 12}, training={"schedule": "linear", "warmup": 0.0})
    reports = run(corpus, config, tmp_path)
    monkeypatch.undo()
    assert reports[-1].status == "completed"
    assert reports[-1].measure.spent["steps"] == 12
    assert reports[-1].measure.spent["device_seconds"] == 12
    assert reports[-1].measure.learning_rate == pytest.approx(3e-3 * 0.5 / 12)
    overhead = reports[-1].measure.overhead
    # A measured stretch is a tick too: start-up is building, the first batch, preparing and rehearsing the first step;
    # then a batch each step, and evaluations with a checkpoint each.
    assert (overhead["startup"], overhead["data_wait"], overhead["compile"]) == (4, 11, 0)
    assert (overhead["evaluation"], overhead["checkpoint"]) == (5, 4), "the last evaluation is also on the others' text"


# --- branches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["headless_mlm", "clm"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_branch_is_the_shorter_run(corpus, tmp_path, objective, cut_off):
    """To the bit: its own schedule differs from the longer run's by its end alone. So too if the trunk was cut off."""
    training = {"schedule": "wsd", "cooldown": 0.25, "warmup": 0.1}
    trunk = make_config(objective, budget={"steps": 40}, training=training, rungs=[], evaluations=[])
    share = trunk.training.stable_share
    trunk = trunk.model_copy(
        update={"branches": tuple(Branch(trial=f"at-{f}", progress=f * share) for f in (0.3, 0.5))}
    )
    if cut_off:  # between the branches, of which the second is then left by another attempt
        *_, last = run(corpus, trunk, tmp_path / "one", should_stop=stop_after(13))
        assert (last.status, last.measure.spent["steps"]) == ("interrupted", 13)
    run(corpus, trunk, tmp_path / "one")
    for fraction, first_step in ((0.3, 9), (0.5, 15)):
        steps = round(40 * fraction)
        assert Checkpoints(Location(tmp_path / f"at-{fraction}")).steps() == [first_step]
        changes = {"budget": {"steps": steps}, "rungs": [], "evaluations": [], "reports": steps}
        branch = run(corpus, make_config(objective, training=training, **changes), tmp_path / f"at-{fraction}")
        training_alone = training | {"warmup": 0.1 / fraction}  # as many steps
        alone = run(corpus, make_config(objective, training=training_alone, **changes), tmp_path / "alone")
        assert comparable(branch) == comparable(alone[first_step:])
        assert branch[-1].status == "completed"
        Location(tmp_path / "alone").delete()


def test_a_branch_that_has_begun_is_left_alone(corpus, tmp_path):
    """By a run that lost its checkpoints, and goes through the point again."""
    training = {"schedule": "wsd", "cooldown": 0.25, "warmup": 0.1}
    trunk = make_config("clm", budget={"steps": 20}, training=training, rungs=[], evaluations=[])
    trunk = trunk.model_copy(update={"branches": (Branch(trial="branch", progress=0.3),)})
    run(corpus, trunk, tmp_path / "trunk")
    branch = Checkpoints(Location(tmp_path / "branch"), AttemptOrder(session=1, number=1))
    found, _ = branch.load_newest(lambda state: {})
    Location(tmp_path / "trunk").delete()
    assert run(corpus, trunk, tmp_path / "trunk")[-1].status == "completed"
    branch.require_newest()
    assert branch.steps() == [found.step]


# --- progress and schedule ----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    progress=st.floats(0, 1),
    warmup=st.floats(0, 0.9),
    floor=st.floats(0, 1),
    schedule=st.sampled_from(["linear", "cosine", "constant", "wsd"]),
    cooldown=st.floats(0.05, 0.1),
)
def test_the_schedule_in_closed_form(progress, warmup, floor, schedule, cooldown):
    share = learning_rate_share(progress, warmup, schedule, floor, cooldown)
    if progress < warmup:
        expected = progress / warmup
    else:
        through = (progress - warmup) / (1 - warmup)
        expected = {
            "linear": 1 + through * (floor - 1),
            "cosine": floor + (1 - floor) * (1 + math.cos(math.pi * through)) / 2,
            "constant": 1.0,
            "wsd": 1 - (1 - floor) * math.sqrt(max(0.0, 1 - (1 - progress) / cooldown)),
        }[schedule]
    assert share == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("budget", [{"steps": 24}, {"tokens": 24 * 8 * LENGTH}])
def test_learning_rate_and_progress_follow_the_budget(corpus, schedule, budget):
    assert learning_rate_share(1.0, 0.25, schedule, 0.2) == pytest.approx(0.2)
    training = {"schedule": schedule, "warmup": 0.25, "learning_rate_floor": 0.2}
    reports = run(corpus, make_config(budget=budget, training=training, yardsticks=["recovery_mrr"]))
    assert [report.measure.step for report in reports] == [4, 8, 12, 16, 20, 24]
    for report in reports:
        step = report.measure.step
        assert report.measure.progress == pytest.approx(step / 24)
        middle_of_the_step = (step - 0.5) / 24
        expected = 3e-3 * learning_rate_share(middle_of_the_step, 0.25, schedule, 0.2)
        assert report.measure.learning_rate == pytest.approx(expected)


def test_reports_rungs_and_evaluations(corpus, tmp_path):
    reports = run(corpus, make_config(evaluations=[0.3, 0.5]), tmp_path)
    # 0.3 lies between the steps 7 and 8: its report comes with the last step before it.
    assert [report.measure.step for report in reports] == [4, 7, 8, 12, 16, 20, 24]
    assert [report.measure.rung for report in reports] == [None, None, 0, None, 1, None, None]
    # Before the end only the primary is taken; 0.5 is a report's point too.
    primary, everything = ["recovery_mrr"], ["recovery_mrr", "recovery_accuracy"]
    assert [list(r.measure.yardsticks) for r in reports] == [[], *[primary] * 4, [], everything]
    assert [report.status for report in reports] == ["running"] * 6 + ["completed"]
    json.dumps([report.record() for report in reports], allow_nan=False)


def test_what_stops_at_a_rung_has_its_checkpoint_there(corpus, tmp_path, monkeypatch):
    """Also where the storage takes its time: what is stopped by the report may be killed at once."""
    write = CheckpointRecord.to_json
    monkeypatch.setattr(CheckpointRecord, "to_json", lambda record: (time.sleep(0.2), write(record))[1])
    rungs = 0
    for report in make_trial(corpus, make_config(evaluations=[]), tmp_path).run():
        if report.measure.rung is not None:
            rungs += 1
            assert report.measure.step in CheckpointFolders(Location(tmp_path)).steps()
    assert rungs == 2


@pytest.mark.parametrize("budget", [{"tokens": 30 * 8 * LENGTH + 5}, {"steps": 31}, {"flops": 5e7}])
def test_what_stops_at_a_rung_has_spent_no_more(corpus, budget):
    """And could not have made another step."""
    config = make_config(budget=budget, rungs=[0.1, 1 / 3, 0.77], evaluations=[], reports=1, yardsticks=[])
    reports = run(corpus, config)
    assert [report.measure.rung for report in reports] == [0, 1, 2, None]
    for report, rung in zip(reports, config.rungs, strict=False):
        step = report.measure.progress / report.measure.step
        assert report.measure.progress <= rung + 1e-12 < report.measure.progress + step + 1e-9


def test_the_loss_falls_and_is_the_mean_since_the_last_report(corpus):
    fine = run(corpus, make_config(reports=24, budget={"steps": 24}))
    coarse = run(corpus, make_config(reports=2, rungs=[], evaluations=[], budget={"steps": 24}))
    losses = [report.measure.loss for report in fine]
    assert len(losses) == 24
    assert coarse[0].measure.loss == pytest.approx(np.mean(losses[:12]), rel=1e-5)
    assert coarse[1].measure.loss == pytest.approx(np.mean(losses[12:]), rel=1e-5)
    assert losses[0] == pytest.approx(math.log(VOCABULARY), rel=0.05)  # per target, before anything is learned
    longer = run(corpus, make_config("clm", budget={"steps": 150}, training={"learning_rate": 1e-2}))
    assert longer[-1].measure.loss < longer[0].measure.loss - 0.2


@pytest.mark.parametrize(
    ("objective", "restored", "scorers"),
    [
        ("headless_mlm", False, ["embedding+unigram", "embedding"]),
        ("headless_clm", False, ["embedding+unigram", "embedding"]),
        ("headless_clm", True, ["head"]),
        ("clm", False, ["head"]),
    ],
)
def test_scores_by_every_scorer_and_item(corpus, tmp_path, objective, restored, scorers):
    """Beside that which the objective implies, at the end; item by item in a file, also of a run that was cut off."""
    training = {"restoration": {"share": 0.25}} if restored else {}
    config, folder = make_config(objective, training=training), Location(tmp_path)
    file = items_file(folder, config.trial)
    run(corpus, config, tmp_path / "trial", should_stop=stop_after(13), study_folder=folder)
    assert not file.exists()
    reports = run(corpus, config, tmp_path / "trial", study_folder=folder)
    measures = [report.measure for report in reports if report.measure.yardsticks]
    implied = find_objective(objective).of({}).scorers[0]
    assert [m.scorer for m in measures] == [implied] * (len(measures) - 1) + scorers[:1]
    assert not any(m.other_scorers or m.items for m in measures[:-1])
    last = measures[-1]
    assert list(last.other_scorers) == scorers[1:]
    found = from_parquet(file.read_bytes(), "here")
    assert checksum(file.read_bytes()) == last.items
    for scorer, scores in {last.scorer: last.yardsticks, **last.other_scorers}.items():
        assert list(scores) == ["recovery_mrr", "recovery_accuracy"]
        for name, score in scores.items():
            assert found[name, scorer].overall == pytest.approx(score.overall)
    assert all(scores != last.yardsticks for scores in last.other_scorers.values())
    again = run(corpus, config, study_folder=Location(tmp_path / "again"))
    assert comparable(again) == comparable(reports)
    assert run(corpus, config, tmp_path / "trial")[-1].measure.items == last.items, "as it was reported"


@pytest.mark.parametrize(("objective", "special"), [("headless_mlm", (0, 1, 2, 3, 4)), ("headless_clm", ())])
def test_the_prior_is_that_of_the_stream_s_targets(corpus, objective, special):
    trial = make_trial(corpus, make_config(objective))
    expected = trial.stream.log_unigram(special)
    np.testing.assert_allclose(trial.stepper.learner.log_unigram_V.numpy(), expected, rtol=1e-6)
    assert "log_unigram_V" not in trial.stepper.tensors(finished=True)["model"], "the corpus has it"


# --- the same again -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_configuration_gives_the_same_measures(corpus, tmp_path, objective):
    config = make_config(objective)
    one, other = run(corpus, config), run(corpus, config, tmp_path)
    assert comparable(one) == comparable(other)
    another_seed = run(corpus, config.model_copy(update={"seed": 12}))
    assert another_seed[-1].measure.digest != one[-1].measure.digest
    assert another_seed[-1].measure.loss != one[-1].measure.loss


def test_arms_with_one_seed_have_one_digest(corpus):
    digests = {run(corpus, make_config(objective))[-1].measure.digest for objective in OBJECTIVES}
    assert len(digests) == 1


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("calls", [0, 3, 8, 23])
def test_an_interrupted_run_goes_on_as_if_undisturbed(corpus, tmp_path, objective, calls):
    """Interrupted between reports, and right after a rung."""
    options = {"negatives": 8} if objective == "headless_mlm" else {}
    config = make_config(objective, options=options)
    undisturbed = run(corpus, config)
    first = run(corpus, config, tmp_path, should_stop=stop_after(calls))
    assert first[-1].status == "interrupted"
    assert first[-1].measure.step == calls
    trial = make_trial(corpus, config, tmp_path)
    assert trial.start_step == calls
    assert comparable(trial.run()) == comparable(undisturbed), "what was reported comes again, then the rest"


def test_many_interruptions(corpus, tmp_path):
    config = make_config("clm", budget={"flops": 3e7})
    undisturbed = run(corpus, config)
    reports = []
    while not reports or reports[-1].status != "completed":
        reports = run(corpus, config, tmp_path, should_stop=stop_after(5))
    assert comparable(reports) == comparable(undisturbed)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("rung", [0, 1])
def test_a_killed_run_goes_on_from_its_last_evaluation(corpus, tmp_path, objective, rung):
    config = make_config(objective, budget={"tokens": 24 * 8 * LENGTH})
    undisturbed = run(corpus, config)
    generator = make_trial(corpus, config, tmp_path).run()
    seen = []
    while not seen or seen[-1].measure.rung != rung:
        seen.append(next(generator))
    seen.append(next(generator))
    generator.close()
    evaluated = [report.measure.step for report in seen if report.measure.yardsticks]

    trial = make_trial(corpus, config, tmp_path)
    assert 0 < trial.start_step == evaluated[-1], "what it did since is lost"
    assert comparable(trial.run()) == comparable(undisturbed), "what was reported comes again, then the rest"


@pytest.mark.parametrize("steps", [1, 5, 13])
def test_a_run_is_saved_between_its_reports_too(corpus, tmp_path, steps):
    """Where its last checkpoint is longer ago than it may be; after a kill it goes on from there."""
    config = make_config("headless_clm")
    undisturbed = run(corpus, config)
    calls = itertools.count()

    def killed():
        if next(calls) == steps:
            raise KeyboardInterrupt
        return False

    trial = make_trial(corpus, config, tmp_path, should_stop=killed)
    trial.checkpoint_seconds = 0.0
    seen = []
    with pytest.raises(KeyboardInterrupt):
        seen.extend(trial.run())
    again = make_trial(corpus, config, tmp_path)
    assert again.start_step == steps
    assert comparable(again.run()) == comparable(undisturbed)


def test_how_often_a_run_is_saved(corpus, tmp_path, monkeypatch):
    """After five minutes in which nothing else saved it. A minute goes by each time that the clock is asked: after
    every step, and when it is saved. Evaluations and rungs are at steps 12, 16 and 18."""
    minutes = itertools.count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 60.0 * next(minutes)))
    steps, save = [], Checkpoints.save

    def saved(self, step, *arguments):
        steps.append(step)
        save(self, step, *arguments)

    monkeypatch.setattr(Checkpoints, "save", saved)
    trial = make_trial(corpus, make_config(rungs=[0.75]), tmp_path)
    trial.checkpoint_seconds = 300.0
    list(trial.run())
    assert steps == [5, 10, 12, 16, 18, 22, 24]


@pytest.mark.parametrize("known_step", [4, 8, 12, 24])
def test_what_reached_its_reader_is_not_repeated(corpus, tmp_path, known_step):
    config = make_config("headless_clm")
    undisturbed = run(corpus, config)
    *_, last = run(corpus, config, tmp_path, should_stop=stop_after(14))
    assert last.measure.step == 14
    again = list(make_trial(corpus, config, tmp_path).run(known_step))
    expected = [report for report in undisturbed if report.measure.step >= min(known_step, 14)]
    assert comparable(again) == comparable(expected)


def test_a_finished_run_says_so_again_and_trains_nothing(corpus, tmp_path, monkeypatch):
    config = make_config("headless_clm")
    reports = run(corpus, config, tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(Trial, "_step", None)
    monkeypatch.setattr(Trial, "_start_up", None)
    again = run(corpus, config, tmp_path, should_stop=lambda: True)
    assert comparable(again) == comparable(reports)
    assert again[-1].measure.spent == reports[-1].measure.spent
    only_the_last = list(make_trial(corpus, config, tmp_path).run(reports[-1].measure.step))
    assert comparable(only_the_last) == comparable(reports[-1:])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files


# --- micro-batches and workers ------------------------------------------------------------------------------


def test_the_last_report_has_the_digest_of_the_model_that_was_scored(corpus, tmp_path):
    """The same of a run that was interrupted, and told again by one that had ended."""
    config, folders = make_config("clm", training={"ema_decay": 0.9}), [tmp_path / "one", tmp_path / "other"]
    *before, last = make_trial(corpus, config, folders[0]).run()
    assert [report.measure.checkpoint for report in before] == [None] * len(before)
    record = CheckpointRecord.read(Checkpoints(Location(folders[0])).whole()[-1].folder)
    assert last.measure.checkpoint == record.model_digest is not None
    list(make_trial(corpus, config, folders[1], should_stop=stop_after(9)).run())
    again = [list(make_trial(corpus, config, folder).run())[-1] for folder in folders[::-1]]
    assert [report.measure.checkpoint for report in again] == [record.model_digest] * 2
    longer = make_config("clm", training={"ema_decay": 0.9}, budget={"steps": 25})
    assert list(make_trial(corpus, longer, tmp_path / "longer").run())[-1].measure.checkpoint != record.model_digest


def test_a_file_of_floors_is_written_once(corpus, tmp_path):
    """What the ledger has of it is the first attempt's."""
    config = make_config("clm", floors=True)
    first = make_trial(corpus, config, study_folder=Location(tmp_path)).measure_floors()
    file = items_file(Location(tmp_path), config.trial, floors=True)
    other = make_config("clm", floors=True, seed=12)
    again = make_trial(corpus, other, study_folder=Location(tmp_path)).measure_floors()
    assert again.untrained != first.untrained
    assert again.items == first.items == checksum(file.read_bytes())


def gradients_of(corpus, config):
    trial = make_trial(corpus, config)
    batch = trial.stream.take(np.arange(config.training.batch_sequences))
    loss, _ = trial.stepper.gradients(trial.stepper.prepare(batch, 0))
    learner = trial.stepper.learner
    return float(loss), {name: parameter.grad for name, parameter in learner.named_parameters()}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("micro", [1, 3, 8])
def test_micro_batches_add_up_to_the_batch(corpus, objective, micro):
    whole_loss, whole = gradients_of(corpus, make_config(objective, model=NO_DROPOUT[objective]))
    training = {"micro_batch_sequences": micro}
    loss, parts = gradients_of(corpus, make_config(objective, model=NO_DROPOUT[objective], training=training))
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_a_headless_micro_batch_may_have_its_own_negatives(corpus):
    model, options = NO_DROPOUT["headless_mlm"], {"gathered": False}
    whole, _ = gradients_of(corpus, make_config("headless_mlm", model=model, options=options))
    training = {"micro_batch_sequences": 2}
    parts, _ = gradients_of(corpus, make_config("headless_mlm", model=model, options=options, training=training))
    assert parts < 0.8 * whole


def _work(rank, folder, objectives):
    """One of two gloo workers: a whole run of each objective, then one that is interrupted and resumed."""
    torch.set_num_threads(1)
    folder = Path(folder)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    corpus, world = PackedCorpus(Location(folder / "corpus")), World(rank, 2)
    found = {}
    for objective in objectives:
        config = make_config(objective, model=NO_DROPOUT[objective])
        found[objective] = comparable(run(corpus, config, world=world))
        run(corpus, config, folder / objective, world=world, should_stop=stop_after(7))
        found[f"{objective} resumed"] = comparable(run(corpus, config, folder / objective, world=world))
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_workers_train_as_one_does(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"en": 300, "fr": 60, "sw": 20})
    torch.multiprocessing.spawn(_work, (str(tmp_path), ["mlm", "clm"]), nprocs=2)
    zero, one = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for objective in ("mlm", "clm"):
        alone = comparable(run(corpus, make_config(objective, model=NO_DROPOUT[objective])))
        for found in (zero[objective], zero[f"{objective} resumed"]):
            assert len(found) == len(alone)
            for (status, measure), (expected_status, expected) in zip(found, alone, strict=True):
                assert status == expected_status
                for key in ("step", "progress", "spent", "digest", "mix", "rung", "learning_rate"):
                    assert measure[key] == expected[key], key
                assert measure["loss"] == pytest.approx(expected["loss"], rel=1e-4)
                for name, score in expected["yardsticks"].items():
                    assert measure["yardsticks"][name]["overall"] == pytest.approx(score["overall"], abs=0.02)
        # The other worker agrees on everything, but takes no yardsticks.
        for (_, measure), (_, other) in zip(zero[objective], one[objective], strict=True):
            own = ("yardsticks", "scorer", "other_scorers", "course")
            assert other | {key: measure[key] for key in own} == measure
            assert not other["yardsticks"]


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_diverged_run_says_so(corpus, tmp_path, objective):
    config = make_config(objective, training={"learning_rate": 1e30, "warmup": 0.0})
    reports = run(corpus, config, tmp_path)
    assert [report.status for report in reports].count("diverged") == 1
    assert reports[-1].status == "diverged"
    assert reports[-1].measure.loss is None
    assert reports[-1].measure.yardsticks == {}
    assert reports[-1].measure.progress < 1.0
    json.dumps(reports[-1].record(), allow_nan=False)


def newest(folder):
    return max(folder.glob("start-*/step-*"))


@pytest.mark.parametrize("model", [{"hidden_size": 32}, {"num_hidden_layers": 2}, {"intermediate_size": 48}], ids=str)
@pytest.mark.parametrize("finished", [True, False])
def test_a_checkpoint_of_another_model_is_refused(corpus, tmp_path, model, finished):
    run(corpus, make_config(), tmp_path, should_stop=stop_after(100 if finished else 3))
    with pytest.raises(InputError, match="another model") as error:
        make_trial(corpus, make_config(model=model), tmp_path)
    assert str(newest(tmp_path)) in error.value.where
    assert "parameters differ: body." in error.value.why
    assert "configuration that made it" in error.value.remedy


@pytest.mark.parametrize("file", ["model.safetensors", "optimiser.safetensors"])
@pytest.mark.parametrize("left", [0, 5, 0.5, None], ids=["empty", "few bytes", "half", "gone"])
def test_after_a_damaged_checkpoint_the_one_before_goes_on(corpus, tmp_path, file, left):
    config = make_config()
    undisturbed = run(corpus, config)
    generator = make_trial(corpus, config, tmp_path).run()
    for report in generator:
        if report.measure.rung == 1:
            break
    generator.close()
    damaged = newest(tmp_path) / file
    content = damaged.read_bytes()
    damaged.unlink()
    if left is not None:
        damaged.write_bytes(content[: int(left if left >= 1 else left * len(content))])
    trial = make_trial(corpus, config, tmp_path)
    assert trial.start_step == 12
    reports = list(trial.run())
    assert any("step 16 was damaged" in message for report in reports for message in report.messages)
    assert comparable(reports)[-1] == comparable(undisturbed)[-1]


def test_two_checkpoints_are_kept_without_pickles(corpus, tmp_path):
    config = make_config(rungs=[0.25, 0.5, 0.75])
    generator = make_trial(corpus, config, tmp_path).run()
    kept = []
    for report in generator:
        if report.measure.rung is not None:
            kept.append(sorted(int(path.name[5:]) for path in tmp_path.glob("start-*/step-*")))
    assert all(len(steps) <= KEPT + 1 for steps in kept), "one may be being written"
    assert Checkpoints(Location(tmp_path)).steps() == [18, 24]
    assert KEPT == 2
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"model.safetensors", "optimiser.safetensors", "start.json", "state.json"}
    assert not (newest(tmp_path) / "optimiser.safetensors").exists(), "a finished run needs no optimiser"


def test_a_checkpoint_without_its_state_does_not_count(corpus, tmp_path):
    """As a kill amid its writing leaves it."""
    config = make_config()
    undisturbed = run(corpus, config)
    run(corpus, config, tmp_path, should_stop=stop_after(20))
    (newest(tmp_path) / "state.json").unlink()
    trial = make_trial(corpus, config, tmp_path)
    assert trial.start_step == 16
    assert comparable(trial.run()) == comparable(undisturbed)


# --- documents ----------------------------------------------------------------------------------------------


class Documents(TokenStream):
    """The same sequences with separators, in each at other places."""

    def take(self, number_N):
        batch = super().take(number_N)
        batch.token_NL[(batch.number_N[:, None] + np.arange(LENGTH)) % 6 == 0] = 3
        return batch


def loss_of_separate_documents(trial, first):
    """Of the trial's weights as they are, on its next sequences: each document is run by itself, without packing."""
    trial.stepper.settle()
    learner, batch = trial.stepper.learner, trial.stream.take(first + np.arange(8))
    corrupted, total = trial.stepper.batches.corrupt(batch), 0.0
    with torch.no_grad():
        for clean_L, input_L, position_T, target_T in zip(batch.token_NL, *corrupted, strict=True):
            pieces = [piece for piece in np.split(input_L, np.flatnonzero(clean_L == 3) + 1) if piece.size]
            assert len(pieces) >= 2
            hidden_LD = torch.cat(
                [
                    # All of it may be attended to: nothing is left to find documents in.
                    learner.hidden(torch.from_numpy(piece[None]), torch.ones(1, len(piece)))[0]
                    for piece in pieces
                ]
            )
            log_p_TV = learner.logits(hidden_LD[torch.from_numpy(position_T)]).log_softmax(1).numpy()
            total -= log_p_TV[np.arange(len(target_T)), target_T].sum(dtype=np.float64)
    return total / corrupted.target_NT.size


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_a_trial_trains_on_documents_one_by_one_where_it_is_to(corpus, objective):
    """Its loss at every step is that of separate documents; without the key it is another."""
    dropout = "hidden_dropout_prob" if objective == "mlm" else "hidden_dropout"
    once = {"budget": {"steps": 4}, "reports": 4, "rungs": [], "evaluations": [], "yardsticks": []}
    losses = {}
    for inside in (True, False):
        config = make_config(objective, model={dropout: 0.0}, document_attention=inside, **once)
        trial = Trial(config, Documents(corpus, config.seed, config.alpha, config.maximum_repetition))
        reports, separate = trial.run(), []
        losses[inside] = []
        for step in range(4):
            separate.append(loss_of_separate_documents(trial, 8 * step))
            losses[inside].append(next(reports).measure.loss)
        difference = np.abs(np.array(losses[inside]) - separate)
        assert (difference < 1e-5).all() if inside else (difference > 1e-4).all()
    assert (np.abs(np.subtract(*losses.values())) > 1e-4).all()


@pytest.mark.parametrize("objective", ["headless_clm", "mlm"])
def test_floors_are_measured_before_the_first_step_and_change_nothing(corpus, tmp_path, objective):
    yardsticks = ("recovery_accuracy", "recovery_mrr", "perplexity")
    plain = make_config(objective, yardsticks=yardsticks)
    config = plain.model_copy(update={"floors": True})
    trial = make_trial(corpus, config, tmp_path / "trial", study_folder=Location(tmp_path))
    floors = trial.measure_floors()
    fresh = make_trial(corpus, plain)
    untrained = next(iter(take(fresh.stepper.learner, fresh.evaluator.held_out[True], yardsticks).values()))
    assert floors.untrained == untrained.scores
    assert list(floors.tables) == ["unigram", "bigram"]
    content = items_file(Location(tmp_path), config.trial, floors=True).read_bytes()
    assert checksum(content) == floors.items
    found = from_parquet(content, "here")
    for name, scores in {"untrained": floors.untrained, **floors.tables}.items():
        assert list(scores) == list(yardsticks)
        for yardstick, score in scores.items():
            assert found[yardstick, name].overall == pytest.approx(score.overall)
    nats = [math.log(floors.tables[name]["perplexity"].overall) for name in ("unigram", "bigram")]
    assert max(nats) < math.log(corpus.manifest.vocabulary_size) * 1.05
    other = Location(tmp_path / "other")
    assert comparable(list(trial.run())) == comparable(run(corpus, plain, study_folder=other))
    again = make_trial(corpus, config, tmp_path / "trial")
    assert again.start_step > 0
    assert again.measure_floors() == floors, "of before, as their report may have been lost"
    assert fresh.measure_floors() is None, "it was not asked for"
