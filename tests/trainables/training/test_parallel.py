"""Replicated and sharded workers against one process with the whole batch."""

from __future__ import annotations

import copy

import pytest
import safetensors.torch
import torch
from torch.distributed.tensor import DTensor

from tests.helpers.workers import LENGTH, SEQUENCES, full, join, make_model, tokens
from trainables.training.parallel import accumulating, clip_gradients, gathered, wrap
from trainables.training.world import World

STEPS = 3
SIZES = {"bert": (16, 32), "gpt_neox": (16, 32), "gpt2": (16, 32)}


def train(model, module, world, micro_batches):
    """Three steps; the losses, the gradient norms and the parameters. The clipping binds."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(STEPS):
        parts = tokens(step)[world.rank :: world.size].chunk(micro_batches)
        total = 0.0
        for number, part in enumerate(parts):
            with accumulating(model, more=number < len(parts) - 1):
                loss = model(part) / (SEQUENCES * LENGTH)
                (loss * world.size).backward()
            total += loss.item()
        norms.append(float(clip_gradients(module.parameters(), 0.05)))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(world.sum_float(total))
    return {
        "losses": torch.tensor(losses),
        "norms": torch.tensor(norms),
        **{name: full(parameter).detach().clone() for name, parameter in module.named_parameters()},
    }


def _train_both(rank, folder):
    world = join(rank, folder)
    found = {}
    for family in SIZES:
        for parallelism in ("ddp", "fsdp"):
            for micro_batches in (1, 2):
                module = make_model(family)
                model = wrap(module, world, parallelism)
                values = train(model, module, world, micro_batches)
                found |= {f"{family} {parallelism} {micro_batches} {name}": values[name] for name in values}
    safetensors.torch.save_file(found, f"{folder}/{rank}.safetensors")
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.timeout(180)
def test_workers_learn_what_one_process_learns(tmp_path):
    torch.multiprocessing.spawn(_train_both, (str(tmp_path),), nprocs=2)
    alone = {}
    for family in SIZES:
        module = make_model(family)
        alone[family] = train(module, module, World(), 1)
        assert alone[family]["norms"].min() > 0.05, "clipping binds"
    for rank in (0, 1):
        found = safetensors.torch.load_file(tmp_path / f"{rank}.safetensors")
        assert len(found) == 4 * sum(map(len, alone.values()))
        for where, value in found.items():
            family, _, _, name = where.split(" ")
            # AdamW divides by the gradient's size: rounding of gradients near 0 shows in the parameters.
            absolute = 2e-5 if name in ("losses", "norms") else 2e-4
            torch.testing.assert_close(
                value, alone[family][name], rtol=1e-4, atol=absolute, msg=lambda text, where=where: f"{where}: {text}"
            )


def _evaluate(rank, folder):
    world = join(rank, folder)
    for family in SIZES:
        module = make_model(family)
        expected = copy.deepcopy(module)
        model = wrap(module, world, "fsdp")
        local = sum(parameter.to_local().numel() for parameter in module.parameters())
        assert local < 0.6 * sum(parameter.numel() for parameter in expected.parameters())
        tied = module.weight_VD is module.body.get_input_embeddings().weight
        assert tied == (family != "gpt_neox")
        # Before any training step, in the middle, and again: an evaluation calls methods, and layers before the whole.
        for _ in range(2):
            with torch.no_grad(), gathered(module):
                assert not isinstance(module.weight_VD, DTensor)
                torch.testing.assert_close(
                    module.logits(module.hidden(tokens(0))), expected.logits(expected.hidden(tokens(0)))
                )
            assert isinstance(module.weight_VD, DTensor)
            model(tokens(rank)).backward()
        module.zero_grad()
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_evaluation_finds_whole_parameters(tmp_path):
    torch.multiprocessing.spawn(_evaluate, (str(tmp_path),), nprocs=2)


def _lose_a_number(rank, folder):
    """One worker's one micro-batch is not finite: all workers' norms and all parameters' gradients show it."""
    world = join(rank, folder)
    for parallelism in ("ddp", "fsdp"):
        module = make_model("bert")
        model = wrap(module, world, parallelism)
        for number in range(2):
            bad = rank == 1 and number == 0
            with accumulating(model, more=number == 0):
                (model(tokens(rank)) * (float("nan") if bad else 1.0)).backward()
        assert not torch.isfinite(clip_gradients(module.parameters(), 1.0))
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_bad_micro_batch_of_one_worker_shows_everywhere(tmp_path):
    torch.multiprocessing.spawn(_lose_a_number, (str(tmp_path),), nprocs=2)


def test_one_worker_needs_no_process_group():
    module = make_model("bert")
    for parallelism in ("ddp", "fsdp"):
        assert wrap(module, World(), parallelism) is module
    with accumulating(module, more=True), gathered(module):
        module(tokens(0)).backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    assert float(clip_gradients(module.parameters(), 1e9)) == pytest.approx(float(gradients.double().norm()), rel=1e-5)
