"""A training step under every setting: it must stay the same step, or differ as stated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.learners import CASES, make_learner
from tests.helpers.trials import NO_DROPOUT, comparable, make_config, make_trial, newest_model, run, stop_after
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.models.config import ModelConfig
from trainables.objectives import OBJECTIVES
from trainables.storage import Location
from trainables.training import micro_batch
from trainables.training.config import TrainingConfig
from trainables.training.micro_batch import largest_micro_batch
from trainables.training.stepper import Stepper
from trainables.training.world import World

torch.set_num_threads(1)

NUM_SEQUENCES = 8


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60, "sw": 20})


def train(corpus, name, family="bert", options=None, world=None, steps=3, **training):
    """Losses over all workers and weights after some steps, of float64 models."""
    world = world or World()
    stream = TokenStream(corpus, 3, 0.3, 4.0)
    learner = make_learner(name, family, options or {})
    training = TrainingConfig.model_validate({"mask_rate": 0.3, "clip_norm": 0.5, "epsilon": 1e-14, **training})
    stepper = Stepper(learner, stream, training, world)
    share = NUM_SEQUENCES // world.size
    losses = []
    for step in range(steps):
        first = 100 + step * NUM_SEQUENCES
        batch = stream.take(first + world.rank + world.size * np.arange(share))
        loss = stepper.step(stepper.prepare(batch, first), 0.01 * (step + 1))
        losses.append(world.sum_float(float(loss)))
    stepper.settle()
    return losses, {name: value.detach().clone() for name, value in learner.named_parameters()}


def assert_same(one, other, tolerance=1e-6):
    assert one[0] == pytest.approx(other[0], rel=tolerance)
    for name, value in one[1].items():
        torch.testing.assert_close(value, other[1][name], rtol=tolerance, atol=tolerance, msg=name)


# --- one step, in other ways ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("headless_mlm", "bert"),
        ("headless_clm", "gpt2"),
        ("clm", "gpt_neox"),
        ("nce_untied", "bert"),
        ("sampled_softmax", "bert"),
        ("sampled_softmax_clm", "gpt_neox"),
        ("clm+cwt", "gpt_neox"),
    ],
)
@pytest.mark.parametrize("micro", [None, 3])
def test_rows_are_updated_as_the_whole_table_is(corpus, name, family, micro):
    options = {"samples": 20} if "sampled" in name else {}
    ways = [
        train(corpus, name, family, options, embedding_update=update, micro_batch_sequences=micro, steps=5)
        for update in ("rows", "dense")
    ]
    assert_same(*ways, tolerance=1e-6)


@pytest.mark.parametrize("setting", [{"activation_checkpointing": True}, {"micro_batch_sequences": 3}])
@pytest.mark.parametrize(("name", "family"), [("mlm", "bert"), ("headless_clm", "gpt_neox"), ("clm", "gpt2")])
def test_what_saves_memory_changes_nothing(corpus, name, family, setting):
    assert_same(train(corpus, name, family), train(corpus, name, family, **setting))


def test_activation_checkpointing_stores_less(corpus):
    def stored(**training):
        config = make_config("clm", model={"num_hidden_layers": 4}, training=training)
        trial = make_trial(corpus, config)
        batch = trial.stream.take(np.arange(8))
        return micro_batch._stored_bytes(lambda: trial.stepper.rehearse(trial.stepper.prepare(batch, 0)))

    assert stored(activation_checkpointing=True) < 0.6 * stored()


@pytest.mark.slow
def test_compiling_changes_nothing_or_says_why(corpus, monkeypatch):
    config = make_config("headless_mlm", model=NO_DROPOUT["headless_mlm"], training={"compile": True})
    plain = run(corpus, make_config("headless_mlm", model=NO_DROPOUT["headless_mlm"]))
    compiled = run(corpus, config)
    assert compiled[-1].measure.loss == pytest.approx(plain[-1].measure.loss, rel=1e-3)

    monkeypatch.setenv("CXX", "/nowhere/c++")
    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/nowhere/c++",))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    reports = run(corpus, config)
    messages = [message for report in reports for message in report.messages]
    assert any("not compiled" in message for message in messages)
    assert comparable(reports) == comparable(plain)
    torch._dynamo.reset()


# --- micro-batches that fit ---------------------------------------------------------------------------------------


def test_the_largest_micro_batch_that_fits(corpus, monkeypatch):
    config = make_config("headless_clm", training={"micro_batch_sequences": "auto"})
    plain = run(corpus, make_config("headless_clm"))
    whole = run(corpus, config)
    assert whole[0].messages == ("micro-batches of 8 of 8 sequences",)
    assert comparable(whole) == comparable(plain)

    stored = []
    original = micro_batch._stored_bytes
    monkeypatch.setattr(micro_batch, "_stored_bytes", lambda rehearse: stored.append(original(rehearse)) or stored[-1])
    monkeypatch.setattr(micro_batch, "free_bytes", lambda: 3.9 * stored[-1] / micro_batch.SHARE_OF_FREE_MEMORY)
    parts = run(corpus, config)
    assert parts[0].messages == ("micro-batches of 2 of 8 sequences",)
    assert stored[0] > 1000
    assert parts[-1].measure.digest == plain[-1].measure.digest


def test_the_micro_batch_stays_what_it_was_when_resumed(corpus, tmp_path, monkeypatch):
    config = make_config("clm", training={"micro_batch_sequences": "auto"})
    run(corpus, config, tmp_path, should_stop=stop_after(5))
    monkeypatch.setattr(micro_batch, "free_bytes", lambda: 0)
    trial = make_trial(corpus, config, tmp_path)
    assert trial.stepper.micro_batch_sequences == 8
    assert next(iter(trial.run())).messages == ()


def test_memory_that_is_not_enough_for_one_sequence(monkeypatch):
    from trainables.errors import InputError

    monkeypatch.setattr(micro_batch, "free_bytes", lambda: 0)
    with pytest.raises(InputError, match="not even one sequence") as error:
        largest_micro_batch(lambda rows: torch.ones(4, requires_grad=True).exp().sin().sum().backward(), 8, World())
    assert "activation_checkpointing" in error.value.remedy


# --- head restoration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["headless_mlm", "headless_clm"])
@pytest.mark.parametrize("stop", [None, 7, 20])
def test_a_head_is_restored_at_the_end(corpus, tmp_path, name, stop):
    training = {"restoration": {"share": 0.25, "learning_rate": 0.004, "warmup": 0.5}}
    config = make_config(name, training=training, evaluations=[0.76])
    reports = run(corpus, config)
    if stop is not None:
        first = run(corpus, config, tmp_path, should_stop=stop_after(stop))
        again = run(corpus, config, tmp_path)
        assert comparable(first[:-1] + again)[-1] == comparable(reports)[-1]
    rates = {report.measure.step: report.measure.learning_rate for report in reports}
    # 18 of 24 steps; the schedule ends there, and the rate rises again over half of what is left.
    assert rates[16] == pytest.approx(3e-3 * (1 - (15.5 / 18 - 0.05) / 0.95))
    assert rates[20] == pytest.approx(0.004 * 1.5 / 3)
    assert rates[24] == pytest.approx(0.004)
    folder = tmp_path / "whole"
    last = run(corpus, config, folder)[-1]
    weights = newest_model(folder)
    assert any(key.startswith("head.") for key in weights)
    # Its cost is the arm's: the vocabulary's FLOPs in a quarter of the steps.
    without = run(corpus, make_config(name))[-1]
    assert last.measure.spent["flops"] > without.measure.spent["flops"]
    assert last.measure.spent["tokens"] == without.measure.spent["tokens"]


@pytest.mark.parametrize(
    ("name", "family"), [("headless_mlm", "bert"), ("headless_clm", "gpt2"), ("nce_untied", "bert")]
)
def test_a_restored_head_begins_where_the_embedding_was(name, family):
    learner = make_learner(name, family, {"temperature": 0.4})
    hidden = learner.hidden(torch.arange(5, 5 + LENGTH)[None])[0]
    before = learner.logits(hidden)
    learner.restore_head()
    torch.testing.assert_close(learner.logits(hidden), before, rtol=1e-6, atol=1e-6)
    assert learner.objective.name == ("mlm" if learner.objective.task == "masked" else "clm")
    assert learner.objective.candidates(None) is None


@pytest.mark.parametrize(
    ("name", "family"), [("headless_mlm", "bert"), ("headless_clm", "gpt2"), ("nce_untied_clm", "gpt_neox")]
)
@pytest.mark.parametrize("log_q", [False, True])
def test_a_restored_head_begins_with_the_unigram_where_the_loss_left_it_out(name, family, log_q):
    """Whether a decoder's head has a bias does not depend on what was learned: a checkpoint's layout is known."""
    learner = make_learner(name, family, {"log_q": log_q})
    learner.restore_head()
    bias = learner.head.bias
    if log_q:
        assert bias is None if family != "bert" else not bias.any()
        return
    assert torch.equal(bias, learner.log_unigram_V)
    assert isinstance(bias, torch.nn.Parameter)
    assert bias.data_ptr() != learner.log_unigram_V.data_ptr(), "training it leaves the unigram alone"


# --- the average ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [3, 12])
def test_the_average_is_evaluated_saved_and_resumed(corpus, tmp_path, stop):
    config = make_config("headless_clm", training={"ema_decay": 0.9})
    undisturbed = run(corpus, config, tmp_path / "one")
    plain = run(corpus, make_config("headless_clm"), tmp_path / "plain")
    assert undisturbed[-1].measure.loss == plain[-1].measure.loss, "the average does not train"
    assert undisturbed[-1].measure.yardsticks != plain[-1].measure.yardsticks
    run(corpus, config, tmp_path / "two", should_stop=stop_after(stop))
    resumed = run(corpus, config, tmp_path / "two")
    assert comparable(resumed)[-1] == comparable(undisturbed)[-1]
    saved = [newest_model(tmp_path / f) for f in ("one", "two", "plain")]
    for name, value in saved[0].items():
        assert torch.equal(value, saved[1][name])
    assert any(not torch.equal(value, saved[2][name]) for name, value in saved[0].items())


@pytest.mark.parametrize("training", [{"optimiser": "muon"}, {"embedding_update": "rows"}], ids=str)
@pytest.mark.parametrize("stop", [4, 13])
def test_every_optimiser_goes_on_as_if_undisturbed(corpus, tmp_path, training, stop):
    config = make_config("headless_mlm", training=training)
    undisturbed = run(corpus, config)
    first = run(corpus, config, tmp_path, should_stop=stop_after(stop))
    again = run(corpus, config, tmp_path)
    assert (
        comparable(first[:-1]) + comparable(again)[-1:]
        == comparable(undisturbed)[: len(first) - 1] + comparable(undisturbed)[-1:]
    )


@pytest.mark.parametrize("name", ["headless_mlm", "headless_clm"])
def test_a_finished_run_in_rows_is_read_again(corpus, tmp_path, name):
    config = make_config(name, training={"embedding_update": "rows"})
    reports = run(corpus, config, tmp_path)
    assert comparable(run(corpus, config, tmp_path)) == comparable(reports)


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}


@pytest.mark.parametrize("stop", [18, 21])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_restoration_with_a_learned_temperature_and_rows_is_resumed(corpus, tmp_path, family, stop):
    config = make_config(
        "headless_clm" if family == "gpt2" else "headless_mlm",
        options={"learn_temperature": True},
        training={"restoration": {"share": 0.25}, "embedding_update": "rows"},
    )
    if family == "gpt2":
        config = config.model_copy(update={"model": ModelConfig(config=GPT2)})
    undisturbed = run(corpus, config)
    run(corpus, config, tmp_path, should_stop=stop_after(stop))
    assert comparable(run(corpus, config, tmp_path))[-1] == comparable(undisturbed)[-1]


def test_a_learned_temperature_comes_back_from_its_lowest(corpus):
    config = make_config("headless_clm", options={"learn_temperature": True, "temperature": 0.005})
    learner = make_trial(corpus, config).stepper.learner
    assert float(learner.log_temperature.exp()) == pytest.approx(0.01)
    trial = make_trial(corpus, config)
    list(trial.run())
    assert float(trial.stepper.learner.log_temperature.exp()) >= 0.01 - 1e-7
    assert trial.stepper.learner.log_temperature.shape == (1,)


# --- workers --------------------------------------------------------------------------------------------------------


def _work(rank, folder):
    torch.set_num_threads(1)
    folder = Path(folder)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    corpus, world = PackedCorpus(Location(folder / "corpus")), World(rank, 2)
    found = {}
    for number, (name, family, options) in enumerate(CASES):
        found[number] = train(corpus, name, family, options, world=world, steps=2)
    found["rows"] = train(corpus, "headless_mlm", world=world, embedding_update="rows")
    found["fsdp"] = train(corpus, "headless_clm", "gpt2", world=world, parallel="fsdp")
    if rank == 0:
        losses = {key: losses for key, (losses, _) in found.items()}
        (folder / "losses.json").write_text(json.dumps(losses))
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_make_the_step_of_one(tmp_path):
    """Every objective, with every option: losses after updates are those of one process with the whole batch."""
    corpus = write_corpus(tmp_path / "corpus", {"en": 300, "fr": 60, "sw": 20})
    torch.multiprocessing.spawn(_work, (str(tmp_path),), nprocs=2)
    found = json.loads((tmp_path / "losses.json").read_text())
    assert {name for name, _, _ in CASES} == set(OBJECTIVES.names())
    for number, (name, family, options) in enumerate(CASES):
        # Negatives of each worker's share are those of as many micro-batches of one process.
        local = options.get("gathered") is False
        alone = train(corpus, name, family, options, steps=2, micro_batch_sequences=4 if local else None)
        assert found[str(number)] == pytest.approx(alone[0], rel=1e-6), (name, family, options)
    assert found["rows"] == pytest.approx(train(corpus, "headless_mlm")[0], rel=1e-6)
    assert found["fsdp"] == pytest.approx(train(corpus, "headless_clm", "gpt2")[0], rel=1e-6)
    assert VOCABULARY > 100
