"""Training throughput against a bare PyTorch loop and against transformers.Trainer, in tokens a second.

A 4-layer model of hidden size 256 (BERT or GPT-NeoX), vocabulary 32,768, batches of 16 sequences of 128 tokens whose
ids follow Zipf's law; AdamW, a learning rate that changes every step, gradients clipped. The contenders take turns, a
few steps each, so that a ratio is of one stretch of time:

- ours: the loop a trial runs, without Ray: it reads the stream, corrupts, finds candidates, counts FLOPs, trains, keeps
  its books and reports every few steps. The time is that of the wall, data included; evaluations and checkpoints off;
- bare: plain transformers and a loop of four lines. The batches are corrupted and their candidates found beforehand.
  The whole last layer is computed, logits at the target positions alone, stored, then F.cross_entropy; contrastive
  losses are over the same unique targets. Fused AdamW on all parameters, the table's gradient dense;
- trainer: transformers.Trainer on BertForMaskedLM and GPTNeoXForCausalLM with labels made beforehand, no logging, no
  saving. It computes logits at every position. It needs accelerate and is left out without it.

No arguments are needed. The last line is one JSON object, also written to ``benchmarks/results``.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import command_line, publish, versions
from plain import Labelled, contrastive, labelled, plain_model, target_positions
from torch import Tensor, nn

from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.corpora.stream.zipf import LAW, zipf_corpus
from trainables.objectives.learner import MicroBatch
from trainables.training.config import TrialConfig
from trainables.training.loop import Trial
from trainables.training.world import World

OBJECTIVES = ("mlm", "headless_mlm", "clm", "headless_clm")
RATE = 1e-3


class Plan(NamedTuple):
    """How much is measured."""

    shape: str = "mini"
    vocabulary_size: int = 32_768
    sequence_length: int = 128
    batch: int = 16
    steps: int = 5
    """Of a turn."""
    turns: int = 6
    """After one that is not counted."""


QUICK = Plan("tiny", 512, 16, 2, 2, 1)


def make_trial(plan: Plan, objective: str, corpus: PackedCorpus, device: str) -> Trial:
    config = TrialConfig.model_validate(
        {
            "trial": "one",
            "objective": objective,
            "model": {"shape": plan.shape},
            "training": {"learning_rate": RATE, "batch_sequences": plan.batch},
            "budget": {"steps": plan.steps * (plan.turns + 2)},
            "seed": 0,
            "corpus": str(corpus.folder),
            "alpha": 1.0,
            "maximum_repetition": 1.0,
            "evaluation": {"sequences_per_language": 1},
            "split": "validation",
            "yardsticks": [],
            "reports": plan.turns + 2,
        }
    )
    return Trial(config, TokenStream(corpus, 0, 1.0, 1.0), world=World(device=torch.device(device)))


# --- the contenders: each turn gives its seconds --------------------------------------------------------------------


def ours(trial: Trial, device: str) -> Iterator[float]:
    """A turn is the time from one report to the next."""
    reports = trial.run()
    while True:
        start = time.perf_counter()
        next(reports)
        yield time.perf_counter() - start


def prepared(trial: Trial, number: int, device: str) -> tuple[Labelled, MicroBatch, float]:
    """The trial's batch of that number as plain transformers wants it and as the learner does, and the constant."""
    size, stepper = trial.config.training.batch_sequences, trial.stepper
    batch = trial.stream.take(number * size + np.arange(size))
    (part,) = stepper.prepare(batch, number * size).parts
    labels = labelled(stepper.learner.objective.task, trial.stream, batch, trial.config.training.mask_rate, device)
    constant = 0.0 if part.candidates is None else part.candidates.constant / part.num_targets
    return labels, stepper.batches.send(part), constant


def loss_by_hand(model: Any, labels: Labelled, micro_batch: MicroBatch) -> Tensor:
    found = micro_batch.candidates
    if found is None:
        return target_positions(model, labels)
    return contrastive(model, labels, found.token_C, found.bias_C, found.index_K)


def bare(plan: Plan, trial: Trial, model: nn.Module, device: str) -> Iterator[float]:
    """The loop that one writes by hand."""
    training = trial.config.training
    batches = [prepared(trial, number, device) for number in range(plan.steps * (plan.turns + 1))]
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(training.beta1, training.beta2), weight_decay=0.01, fused=True
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=len(batches))
    for first in range(0, len(batches), plan.steps):
        start = time.perf_counter()
        for labels, micro_batch, _ in batches[first : first + plan.steps]:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = loss_by_hand(model, labels, micro_batch)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        yield time.perf_counter() - start


def trainer(plan: Plan, trial: Trial, model: Any, device: str) -> Iterator[float]:
    """A turn is a ``train()`` of one step more than is measured: from the end of the first to the end of the last."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    examples = []
    for number in range(plan.steps + 1):
        labels, *_ = prepared(trial, number, "cpu")
        examples += [
            {"input_ids": input_L, "labels": label_L}
            for input_L, label_L in zip(labels.input_NL, labels.label_NL, strict=True)
        ]
    training = trial.config.training
    with tempfile.TemporaryDirectory() as folder:
        contender = Trainer(
            model,
            TrainingArguments(
                folder,
                per_device_train_batch_size=plan.batch,
                max_steps=plan.steps + 1,
                learning_rate=RATE,
                adam_beta1=training.beta1,
                adam_beta2=training.beta2,
                weight_decay=training.weight_decay,
                max_grad_norm=training.clip_norm,
                lr_scheduler_type="linear",
                optim="adamw_torch_fused",
                bf16=device == "cuda",
                use_cpu=device == "cpu",
                dataloader_pin_memory=device == "cuda",
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=examples,
            callbacks=[Clock()],
        )
        contender.remove_callback(PrinterCallback)
        while True:
            ends.clear()
            contender.train()
            yield ends[-1] - ends[0]


# --- measuring ------------------------------------------------------------------------------------------------------


def check(trial: Trial, model: nn.Module, device: str) -> None:
    """By hand the loss of the first batch is the learner's."""
    labels, micro_batch, constant = prepared(trial, 0, device)
    with torch.no_grad():
        theirs = float(loss_by_hand(model, labels, micro_batch)) + constant
        mine = float(trial.stepper.learner(micro_batch)) / len(micro_batch.target_K)
    assert math.isclose(mine, theirs, rel_tol=1e-4), (mine, theirs)


def compare(plan: Plan, objective: str, corpus: PackedCorpus, device: str) -> dict[str, Any]:
    """Tokens a second of all contenders for one objective."""
    make: dict[str, Callable[[Trial, Any], Iterator[float]]] = {"bare": partial(bare, plan, device=device)}
    if "headless" not in objective and find_spec("accelerate"):
        make["trainer"] = partial(trainer, plan, device=device)
    trial = make_trial(plan, objective, corpus, device)
    turns = {"ours": ours(trial, device)}
    for name, contender in make.items():
        model = plain_model(trial.stepper.learner).to(device)
        check(trial, model, device)
        turns[name] = contender(trial, model)
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    order = list(turns)
    for _ in range(plan.turns + 1):
        for name in order:
            seconds[name].append(next(turns[name]))
        order.reverse()
    tokens = plan.steps * plan.batch * plan.sequence_length
    rates = {name: tokens / statistics.median(values[1:]) for name, values in seconds.items()}
    row = {
        "objective": objective,
        "tokens_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "over_bare_loop": round(rates["ours"] / rates["bare"], 4),
    }
    if "trainer" in rates:
        row["over_trainer"] = round(rates["ours"] / rates["trainer"], 4)
    print(row, flush=True)
    return row


def run(plan: Plan, device: str) -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = zipf_corpus(Path(folder), plan.vocabulary_size, plan.sequence_length, sequences=2048)
        table = [compare(plan, objective, corpus, device) for objective in OBJECTIVES]
    over_trainer = [row["over_trainer"] for row in table if "over_trainer" in row]
    return {
        "token_ids": LAW,
        "dtype": "bfloat16 autocast" if device == "cuda" else "float32",
        "threads": torch.get_num_threads(),
        "accelerate": versions("accelerate").get("accelerate", "not installed: Trainer left out"),
        "plan": plan._asdict(),
        "tokens_per_second_over_bare_loop": min(row["over_bare_loop"] for row in table),
        "tokens_per_second_over_trainer": min(over_trainer, default=None),
        "table": table,
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    quick = command_line(__doc__, "tiny models, seconds").parse_args(arguments).quick
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = run(QUICK if quick else Plan(), device)
    publish("trainer", device, result, quick=quick)
    return result


if __name__ == "__main__":
    main()
