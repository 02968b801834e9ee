"""Optimisers: rows updated alone follow dense AdamW; groups of AdamW and Muon; state; the weight average."""

from __future__ import annotations

import copy
import math

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModel, BertConfig, GPT2Config, GPTNeoXConfig

from trainables.errors import InputError
from trainables.training.config import TrainingConfig
from trainables.training.optimiser import Optimiser, WeightAverage
from trainables.training.row_adamw import RowAdamW

torch.set_num_threads(1)


# --- rows alone -------------------------------------------------------------------------------------------------------

V, D = 23, 5


def schedule(steps, peak=1e-2):
    """Linear warm-up over a tenth, then linear decay."""
    return [peak * min((i + 0.5) / (0.1 * steps), (steps - i - 0.5) / (0.9 * steps)) for i in range(steps)]


def touches(steps, seed, scale=1.0):
    """Each step's rows, ascending, and their gradients. Row 0 is touched at the first step alone, row 1 never."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for step in range(steps):
        number = int(torch.randint(0, 7, (), generator=random))
        rows = (torch.randperm(V - 2, generator=random)[:number] + 2).sort().values
        if step == 0:
            rows = torch.cat((torch.zeros(1, dtype=torch.int64), rows))
        gradient = torch.randn(len(rows), D, generator=random, dtype=torch.float64) * scale
        found.append((rows, gradient))
    return found


def table(dtype=torch.float64):
    return torch.randn(V, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)


def dense(touched, rates, start, *, betas, epsilon, weight_decay):
    """torch.optim.AdamW on the whole table; returns the table before each step and after the last."""
    parameter = nn.Parameter(start.clone())
    optimiser = torch.optim.AdamW([parameter], betas=betas, eps=epsilon, weight_decay=weight_decay, foreach=False)
    trajectory = [parameter.detach().clone()]
    for (rows, gradient), rate in zip(touched, rates, strict=True):
        optimiser.param_groups[0]["lr"] = rate
        parameter.grad = torch.zeros_like(parameter).index_copy(0, rows, gradient.to(start.dtype))
        optimiser.step()
        trajectory.append(parameter.detach().clone())
    return trajectory


def advance(optimiser, touched, rates, seen=None):
    for (rows, gradient), rate in zip(touched, rates, strict=True):
        fetched = optimiser.fetch(rows)
        if seen is not None:
            seen.append(fetched.detach().clone())
        (fetched * gradient.to(fetched.dtype)).sum().backward()
        optimiser.step(rate)


DEFAULTS = {"betas": (0.9, 0.98), "epsilon": 1e-60, "weight_decay": 0.1}


@settings(max_examples=40, deadline=None)
@given(
    beta1=st.floats(0, 0.95),
    excess=st.floats(0.02, 0.999),
    weight_decay=st.sampled_from([0.0, 0.1, 3.0]),
    steps=st.integers(1, 150),
    seed=st.integers(0, 1000),
)
def test_rows_follow_dense_adamw(beta1, excess, weight_decay, steps, seed):
    beta2 = beta1**2 + (1 - beta1**2) * excess
    arguments = {"betas": (beta1, beta2), "epsilon": 1e-60, "weight_decay": weight_decay}
    touched, rates = touches(steps, seed), schedule(steps)
    expected = dense(touched, rates, table(), **arguments)
    found, seen = table(), []
    optimiser = RowAdamW(found, **arguments)
    advance(optimiser, touched, rates, seen)
    for (rows, _), fetched, wanted in zip(touched, seen, expected, strict=False):
        torch.testing.assert_close(fetched, wanted[rows], rtol=1e-7, atol=1e-8)
    optimiser.settle()
    torch.testing.assert_close(found, expected[-1], rtol=1e-7, atol=1e-8)
    start = table()[1]
    torch.testing.assert_close(found[1], start * math.prod(1 - rate * weight_decay for rate in rates))


@pytest.mark.parametrize("gap", [1, 2, 300, 5000])
@pytest.mark.parametrize("betas", [(0.9, 0.98), (0.95, 0.95)])
def test_long_gaps(gap, betas):
    """Longer than the window and than the first allocation of the history."""
    nothing = (torch.zeros(0, dtype=torch.int64), torch.zeros(0, D, dtype=torch.float64))
    touched = touches(5, 1) + [nothing] * gap + touches(5, 2)
    arguments = DEFAULTS | {"betas": betas}
    rates = schedule(len(touched))
    expected = dense(touched, rates, table(), **arguments)[-1]
    found = table()
    optimiser = RowAdamW(found, **arguments)
    advance(optimiser, touched, rates)
    optimiser.settle()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_float32_with_the_usual_epsilon(weight_decay):
    arguments = {"betas": (0.9, 0.98), "epsilon": 1e-8, "weight_decay": weight_decay}
    touched, rates = touches(200, 3, scale=1e-3), schedule(200)
    expected = dense(touched, rates, table(), **arguments)[-1]
    found = table(torch.float32)
    optimiser = RowAdamW(found, **arguments)
    advance(optimiser, touched, rates)
    optimiser.settle()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("betas", [(0.9, 0.98), (0.9, 0.999)])
@pytest.mark.parametrize(("step", "tolerance"), [(1, 0.06), (300, 0.01)])
def test_an_epsilon_like_the_gradients(scale, betas, step, tolerance):
    """What dense AdamW adds after one touch is met whatever epsilon's share, if less well in the first steps."""
    nothing = (torch.zeros(0, dtype=torch.int64), torch.zeros(0, D, dtype=torch.float64))
    touched = [nothing] * (step - 1) + touches(1, 4, scale) + [nothing] * 100
    rates = [1e-3] * len(touched)
    arguments = {"betas": betas, "epsilon": 1e-8, "weight_decay": 0.0}
    trajectory = dense(touched, rates, torch.zeros(V, D, dtype=torch.float64), **arguments)
    found = torch.zeros(V, D, dtype=torch.float64)
    optimiser = RowAdamW(found, **arguments)
    advance(optimiser, touched, rates)
    optimiser.settle()
    rows = touched[step - 1][0]
    missed = (trajectory[-1] - trajectory[step])[rows]
    assert bool((missed != 0).all())
    torch.testing.assert_close((found - trajectory[step])[rows], missed, rtol=tolerance, atol=0)


def test_resuming_in_a_gap_is_exact():
    touched, rates = touches(1100, 6), schedule(1100)
    whole = table(torch.float32)
    undisturbed = RowAdamW(whole, **DEFAULTS)
    advance(undisturbed, touched, rates)

    first = table(torch.float32)
    before = RowAdamW(first, **DEFAULTS)
    advance(before, touched[:777], rates[:777])
    saved = safetensors.torch.load(safetensors.torch.save({"table": first, **before.state()}))
    second = saved.pop("table")
    after = RowAdamW(second, **DEFAULTS)
    after.load_state(saved)
    advance(before, touched[:50], rates[:50])  # the saved state is its own
    advance(after, touched[777:], rates[777:])
    assert torch.equal(second, whole)
    for name, value in undisturbed.state().items():
        assert torch.equal(after.state()[name], value), name


def test_settling_changes_nothing():
    touched, rates = touches(120, 7), schedule(120)
    tables = table(), table()
    for found, every in zip(tables, (1000, 7), strict=True):
        optimiser = RowAdamW(found, **DEFAULTS)
        for step in range(0, 120, every):
            advance(optimiser, touched[step : step + every], rates[step : step + every])
            optimiser.settle()
    torch.testing.assert_close(tables[1], tables[0], rtol=1e-7, atol=1e-8)


def test_a_fetch_without_a_step_leaves_no_trace():
    touched, rates = touches(20, 8), schedule(20)
    expected, found = table(), table()
    optimiser = RowAdamW(expected, **DEFAULTS)
    advance(optimiser, touched, rates)
    optimiser = RowAdamW(found, **DEFAULTS)
    for touch, rate in zip(touched, rates, strict=True):
        optimiser.fetch(torch.arange(V)).sum().backward()
        advance(optimiser, [touch], [rate])
    assert torch.equal(found, expected)


def test_fetched_rows_without_a_gradient_are_missed_rows():
    found, expected = table(), table()
    for tensor, fetch in ((found, True), (expected, False)):
        optimiser = RowAdamW(tensor, **DEFAULTS)
        advance(optimiser, touches(3, 9), [1e-2] * 3)
        if fetch:
            optimiser.fetch(torch.arange(V))
        optimiser.step(1e-2)
        optimiser.settle()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("betas", [(0.9, 0.81), (0.95, 0.9), (0.0, 0.0), (0.9, 0.0)])
def test_betas_whose_missed_steps_do_not_die_out(betas):
    with pytest.raises(AssertionError, match="die out"):
        RowAdamW(table(), betas=betas, epsilon=1e-8, weight_decay=0.0)
    training = TrainingConfig(beta1=betas[0], beta2=betas[1])
    assert not training.updates_rows(only_looked_up=True, num_rows=50_000)


def test_small_tables_are_updated_whole():
    assert not TrainingConfig().updates_rows(only_looked_up=True, num_rows=8000)
    assert TrainingConfig(embedding_update="rows").updates_rows(only_looked_up=True, num_rows=8000)


def test_which_tables_are_updated_by_rows():
    assert TrainingConfig().updates_rows(only_looked_up=True, num_rows=50_000)
    assert not TrainingConfig().updates_rows(only_looked_up=False, num_rows=50_000)
    assert not TrainingConfig(embedding_update="dense").updates_rows(only_looked_up=True, num_rows=50_000)
    assert not TrainingConfig(ema_decay=0.99).updates_rows(only_looked_up=True, num_rows=50_000)
    rows = TrainingConfig(embedding_update="rows")
    assert rows.updates_rows(only_looked_up=True, num_rows=50_000)
    with pytest.raises(InputError, match="vocabulary head"):
        rows.updates_rows(only_looked_up=False, num_rows=50_000)
    with pytest.raises(ValueError, match="ema_decay"):
        TrainingConfig(embedding_update="rows", ema_decay=0.99)
    with pytest.raises(ValueError, match="sqrt"):
        TrainingConfig(embedding_update="rows", beta1=0.95, beta2=0.9)


def test_a_weight_decay_of_everything():
    optimiser = RowAdamW(table(), betas=(0.9, 0.98), epsilon=1e-8, weight_decay=10.0)
    with pytest.raises(InputError, match="leaves nothing"):
        optimiser.step(0.1)


@pytest.mark.parametrize("sequences", [0, -3, "all"])
def test_micro_batches_that_cannot_be(sequences):
    with pytest.raises(ValueError, match="micro_batch_sequences"):
        TrainingConfig(micro_batch_sequences=sequences)


# --- groups -----------------------------------------------------------------------------------------------------------

SIZES = {
    "bert": BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    "gpt_neox": GPTNeoXConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    ),
    "gpt2": GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0),
}
MATRICES_A_LAYER = {"bert": 6, "gpt_neox": 4, "gpt2": 4}


class Model(nn.Module):
    """A body and a head of its own."""

    def __init__(self, family):
        super().__init__()
        torch.manual_seed(0)
        extra = {"add_pooling_layer": False} if family == "bert" else {}
        self.body = AutoModel.from_config(SIZES[family], **extra)
        self.head = nn.Linear(16, 40)

    def forward(self, token_NL):
        return self.head(self.body(token_NL).last_hidden_state)


def backward(model, step):
    token_NL = torch.randint(0, 40, (4, 12), generator=torch.Generator().manual_seed(step))
    logits = model(token_NL)
    nn.functional.cross_entropy(logits.flatten(0, 1), token_NL.flatten()).backward()


def names_of(model, parameters):
    wanted = {id(p) for p in parameters}
    return {name for name, p in model.named_parameters() if id(p) in wanted}


@pytest.mark.parametrize("family", SIZES)
def test_groups(family):
    model = Model(family)
    optimiser = Optimiser(model, TrainingConfig(optimiser="muon", weight_decay=0.3))
    (muon,) = optimiser.parts["muon"].param_groups
    decayed, undecayed = optimiser.parts["adamw"].param_groups
    by_muon = names_of(model, muon["params"])
    assert len(by_muon) == MATRICES_A_LAYER[family] * 2
    assert all("layer" in name or ".h." in name for name in by_muon)
    embeddings = {
        "bert": {f"body.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")},
        "gpt_neox": {"body.embed_in.weight"},
        "gpt2": {"body.wte.weight", "body.wpe.weight"},
    }
    assert names_of(model, decayed["params"]) == embeddings[family] | {"head.weight"}
    others = names_of(model, undecayed["params"])
    assert all("bias" in name or "norm" in name.lower() or ".ln_" in name for name in others)
    everything = [*muon["params"], *decayed["params"], *undecayed["params"]]
    assert len(everything) == len({id(p) for p in everything}) == len(list(model.parameters()))
    assert [g["weight_decay"] for g in (muon, decayed, undecayed)] == [0.3, 0.3, 0.0]

    plain = Optimiser(model, TrainingConfig(weight_decay=0.3))
    assert list(plain.parts) == ["adamw"]
    decayed, undecayed = plain.parts["adamw"].param_groups
    assert names_of(model, decayed["params"]) == by_muon | embeddings[family] | {"head.weight"}
    assert names_of(model, undecayed["params"]) == others


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_muon_against_both_by_hand(family):
    training = TrainingConfig(optimiser="muon", weight_decay=0.3, beta1=0.8, beta2=0.9, epsilon=1e-6)
    model = Model(family)
    other = copy.deepcopy(model)
    optimiser = Optimiser(model, training)
    matrices = [p for n, p in other.named_parameters() if p.ndim == 2 and (".layer." in n or ".h." in n)]
    tables = [
        p
        for n, p in other.named_parameters()
        if p.ndim == 2 and ("embeddings" in n or "wte" in n or "wpe" in n or "head" in n)
    ]
    vectors = [p for p in other.parameters() if p.ndim < 2]
    adamw = {"betas": (0.8, 0.9), "eps": 1e-6, "foreach": False}
    by_hand = [
        torch.optim.Muon(matrices, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(tables, **adamw, weight_decay=0.3),
        torch.optim.AdamW(vectors, **adamw, weight_decay=0.0),
    ]
    for step, rate in enumerate([1e-2, 3e-3, 7e-3]):
        backward(model, step)
        optimiser.set_rate(rate)
        optimiser.step()
        optimiser.zero_grad()
        backward(other, step)
        for part in by_hand:
            part.param_groups[0]["lr"] = rate
            part.step()
        other.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    for (name, found), expected in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=name)


# --- state ------------------------------------------------------------------------------------------------------------


class Looked(nn.Module):
    """A model whose table is updated by rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(V, 8), requires_grad=False)
        self.body = nn.Linear(8, 8)

    def loss(self, optimiser, step):
        rows = torch.randperm(V, generator=torch.Generator().manual_seed(step))[:6].sort().values
        return self.body(optimiser.rows["words"].fetch(rows)).pow(2).sum()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("rows", [False, True])
def test_state_in_mid_run_is_exact(kind, rows):
    training = TrainingConfig(optimiser=kind, weight_decay=0.1)

    def build():
        model = Looked() if rows else Model("bert")
        return model, Optimiser(model, training, {"words": model.table} if rows else None)

    def train(model, optimiser, steps):
        for step in steps:
            optimiser.set_rate(1e-2 / (step + 1))
            model.loss(optimiser, step).backward() if rows else backward(model, step)
            optimiser.step()
            optimiser.zero_grad()

    model, optimiser = build()
    train(model, optimiser, range(3))
    saved = safetensors.torch.load(safetensors.torch.save(optimiser.tensors()))
    weights = copy.deepcopy(model.state_dict())
    train(model, optimiser, range(3, 6))

    again, resumed = build()
    again.load_state_dict(weights)
    resumed.load_tensors(saved)
    train(again, resumed, range(3, 6))
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert resumed.tensors().keys() == optimiser.tensors().keys()
    for name, value in optimiser.tensors().items():
        assert torch.equal(resumed.tensors()[name], value), name
    assert any(not torch.equal(value, weights[name]) for name, value in model.state_dict().items())


# --- the weight average -----------------------------------------------------------------------------------------------


def test_the_average_of_the_weights():
    model = nn.Linear(3, 2)
    average = WeightAverage(model, decay=0.75)
    history = []
    for step in range(1, 9):
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(step))
        history.append(model.weight.detach().clone())
        average.update(model)
        if step <= 4:  # 1 / (1 - 0.75): the plain mean
            torch.testing.assert_close(average.model.weight, torch.stack(history).mean(0))
    expected = torch.stack(history[:4]).mean(0)
    for weight in history[4:]:
        expected = 0.75 * expected + 0.25 * weight
    torch.testing.assert_close(average.model.weight, expected)
    assert torch.equal(model.weight, history[-1])
