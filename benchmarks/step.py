"""The whole training step against the vocabulary and against the batch: time and memory, one process, float32 on a CPU.

Encoder (BERT) and decoder (GPT-NeoX) of 4 layers, hidden size 256, 32 sequences of 128 tokens whose ids follow Zipf's
law; on a GPU under bfloat16 autocast. Arms, in turns:

- body: plain transformers without a head, the table's dense gradient included; its loss is a dot product with a fixed
  direction;
- headless, vanilla: this project's objectives. Headless updates the touched rows of the table alone, at every size;
- all_positions: BertForMaskedLM and GPTNeoXForCausalLM with labels, logits at every position;
- target_positions: the same models, logits at the target positions alone, stored; written by hand;
- liger: the same with Liger's fused linear cross-entropy, on a GPU where it is installed.

Passes are forward and backward; a step is passes, gradient clipping and AdamW, and for this project's arms corrupting
the batch and finding candidates too, which the others got beforehand. Peak memory is what the passes need beyond the
weights, gradients included. Baselines that store more than 2 GiB of logits are left out.

No arguments are needed. The last line is one JSON object, also written to ``benchmarks/results`` with two pictures.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from measure import command_line, hardware, interleaved_milliseconds, publish
from plain import all_positions, fused, labelled, plain_model, target_positions
from torch import Tensor, nn

from trainables.corpora.stream.token_stream import TokenStream
from trainables.corpora.stream.zipf import LAW, zipf_corpus
from trainables.errors import InputError
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.objectives.learner import Learner
from trainables.objectives.registry import find_objective
from trainables.training.config import TrainingConfig
from trainables.training.parallel import clip_gradients
from trainables.training.stepper import PreparedStep, Stepper
from trainables.training.world import World

OBJECTIVES = {"encoder": ("headless_mlm", "mlm"), "decoder": ("headless_clm", "clm")}
BASELINES: dict[str, Callable[..., Tensor]] = {
    "all_positions": all_positions,
    "target_positions": target_positions,
    "liger": fused,
}
LARGEST_LOGITS_BYTES = 2 << 30
RATE = 1e-4


class Plan(NamedTuple):
    """How much is measured."""

    shape: str = "mini"
    sequence_length: int = 128
    batch: int = 32
    vocabularies: tuple[int, ...] = (8_192, 32_768, 120_000, 250_000)
    batches: tuple[int, ...] = (8, 16, 32, 64)
    swept: int = 32_768
    """Vocabulary of the sweep over batches."""
    headless_rounds: int = 6
    rounds: tuple[int, ...] = (3, 3, 2, 1)
    """Of the arms with a head, by vocabulary."""
    sweep_rounds: int = 1


QUICK = Plan("tiny", 16, 2, (256, 512, 1024), (1, 2), 512, 1, (1, 1, 1), 1)


class Case(NamedTuple):
    """One thing to measure."""

    side: str
    arm: str
    vocabulary_size: int
    batch: int

    @property
    def name(self) -> str:
        """Unique."""
        return " ".join(map(str, self))


class Arm:
    """A training step in three parts; calling it makes the step and keeps the time of the passes."""

    def __init__(
        self, make: Callable[[], Any], passes: Callable[[Any], object], update: Callable[[], object], device: str
    ) -> None:
        self.make, self.passes, self.update, self.device = make, passes, update, device
        self.milliseconds: list[float] = []

    def __call__(self) -> None:
        """One step."""
        batch = self.make()
        start = self._now()
        self.passes(batch)
        self.milliseconds.append(1e3 * (self._now() - start))
        self.update()

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


# --- the arms -------------------------------------------------------------------------------------------------------


def make_stream(plan: Plan, vocabulary_size: int) -> TokenStream:
    with tempfile.TemporaryDirectory() as folder:
        corpus = zipf_corpus(Path(folder), vocabulary_size, plan.sequence_length, sequences=2048)
        stream = TokenStream(corpus, seed=0, alpha=1.0, maximum_repetition=1.0)
        stream.take(np.arange(1))  # maps the file, which may then go
    return stream


def make_arm(plan: Plan, case: Case, device: str) -> Arm:
    headless, vanilla = OBJECTIVES[case.side]
    objective = find_objective(headless if case.arm in ("headless", "body") else vanilla).of({})
    stream = make_stream(plan, case.vocabulary_size)
    training = TrainingConfig(batch_sequences=case.batch, embedding_update="rows" if case.arm == "headless" else "auto")
    torch.manual_seed(0)
    shape = body_config(
        ModelConfig(shape=plan.shape),
        objective.task,
        vocabulary_size=case.vocabulary_size,
        sequence_length=plan.sequence_length,
    )
    learner = Learner(shape, objective)
    learner.train()
    firsts = (case.batch * number for number in count())
    if case.arm in ("headless", "vanilla"):
        stepper = Stepper(learner.to(device), stream, training, World(device=torch.device(device)))
        return _ours(stepper, firsts, case.batch, device)
    model = plain_model(learner).to(device)
    batches = [
        labelled(objective.task, stream, stream.take(first + np.arange(case.batch)), 0.15, device)
        for first in range(0, 8 * case.batch, case.batch)
    ]
    loss = BASELINES.get(case.arm)
    trained: nn.Module = model
    if loss is None:
        trained = model.base_model
        direction_D = torch.randn(learner.config.hidden_size, device=device)
        loss = partial(_along, direction_D=direction_D)
    return _plain(model, trained, loss, batches, training, device)


def _ours(stepper: Stepper, firsts: Iterator[int], size: int, device: str) -> Arm:
    rows: list[Tensor] = []

    def make() -> PreparedStep:
        first = next(firsts)
        return stepper.prepare(stepper.stream.take(first + np.arange(size)), first)

    def passes(step: PreparedStep) -> None:
        rows[:] = stepper.gradients(step)[1]

    def update() -> None:
        clip_gradients([*stepper.model.parameters(), *rows], stepper.training.clip_norm)
        stepper.optimiser.set_rate(RATE)
        stepper.optimiser.step()
        stepper.optimiser.zero_grad()

    return Arm(make, passes, update, device)


def _plain(
    model: nn.Module,
    trained: nn.Module,
    loss: Callable[..., Tensor],
    batches: Sequence[Any],
    training: TrainingConfig,
    device: str,
) -> Arm:
    parameters = list(trained.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=RATE, betas=(training.beta1, training.beta2), fused=True)
    numbers = count()

    def make() -> Any:
        return batches[next(numbers) % len(batches)]

    def passes(batch: Any) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]

    def update() -> None:
        nn.utils.clip_grad_norm_(parameters, training.clip_norm)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return Arm(make, passes, update, device)


def _along(model: Any, batch: Any, direction_D: Tensor) -> Tensor:
    hidden_NLD: Tensor = model.base_model(input_ids=batch.input_NL).last_hidden_state
    return (hidden_NLD @ direction_D).mean()


def stored_logits_bytes(plan: Plan, case: Case) -> int:
    positions = plan.sequence_length * case.batch
    if case.arm == "target_positions" and case.side == "encoder":
        positions = positions * 15 // 100
    return 4 * positions * case.vocabulary_size if case.arm.endswith("_positions") else 0


# --- measuring ------------------------------------------------------------------------------------------------------


def times(plan: Plan, cases: Sequence[Case], rounds: int, device: str) -> dict[Case, dict[str, float]]:
    """Milliseconds of passes and step of several cases in turns."""
    arms = {case.name: make_arm(plan, case, device) for case in cases}
    steps = interleaved_milliseconds(arms, device, seconds=0, least_rounds=rounds)
    found = {
        case: {
            "passes_milliseconds": round(statistics.median(arms[case.name].milliseconds[1:]), 2),
            "step_milliseconds": round(steps[case.name], 2),
        }
        for case in cases
    }
    for case, row in found.items():
        print(*case, row, flush=True)
    return found


def peaks(plan: Plan, cases: Sequence[Case], device: str) -> dict[Case, float]:
    """Peak memory of the passes of each case, in MB, beyond the weights; an update needs no more."""
    if device == "cuda":
        return {case: measure.peak_bytes(device, make_arm, plan, case, device) / 2**20 for case in cases}
    with _fresh_process() as pool:  # one for all: importing the libraries takes longer than most cases
        pool.apply(_peak_bytes, (plan, cases[0]))  # buffers that libraries make once
        return {case: pool.apply(_peak_bytes, (plan, case)) / 2**20 for case in cases}


def _peak_bytes(plan: Plan, case: Case) -> int:
    gc.collect()
    arm = make_arm(plan, case, "cpu")
    batch, reset = arm.make(), Path("/proc/self/clear_refs")
    if not reset.exists():  # not Linux
        return measure._peak_resident_bytes(make_arm, plan, case, "cpu")
    reset.write_text("5")
    before = measure._status_bytes("VmRSS")
    arm.passes(batch)
    return measure._status_bytes("VmHWM") - before


@contextmanager
def _fresh_process() -> Iterator[Any]:
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # as measure.peak_bytes
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]


def check(plan: Plan) -> None:
    """All ways to the vanilla loss give the same number."""
    for side, (_, vanilla) in OBJECTIVES.items():
        stream, objective = make_stream(plan, 1000), find_objective(vanilla).of({})
        shape = body_config(
            ModelConfig(shape=plan.shape), objective.task, vocabulary_size=1000, sequence_length=plan.sequence_length
        )
        stepper = Stepper(Learner(shape, objective), stream, TrainingConfig(), World())
        batch = stream.take(np.arange(2))
        ours = float(stepper.gradients(stepper.prepare(batch, 0))[0])
        model, labels = plain_model(stepper.learner), labelled(objective.task, stream, batch, 0.15, "cpu")
        for name in ("all_positions", "target_positions"):
            theirs = float(BASELINES[name](model, labels).detach())
            assert math.isclose(ours, theirs, rel_tol=1e-4), (side, name, ours, theirs)


def run(plan: Plan, device: str) -> dict[str, Any]:
    """All figures."""
    check(plan)
    left_out: dict[str, str] = {}
    baselines = [name for name in BASELINES if name != "liger" or _liger(device)]
    if "liger" not in baselines:
        left_out["liger"] = "not available on a CPU" if device == "cpu" else "liger-kernel is not installed"

    def that_fit(cases: Iterable[Case]) -> list[Case]:
        fitting = []
        for case in cases:
            if stored_logits_bytes(plan, case) > LARGEST_LOGITS_BYTES:
                left_out[case.name] = f"{stored_logits_bytes(plan, case) / 1e9:.1f} GB of logits a copy"
            else:
                fitting.append(case)
        return fitting

    timed: dict[Case, dict[str, float]] = {}
    for side in OBJECTIVES:
        headless = [Case(side, arm, V, plan.batch) for V in plan.vocabularies for arm in ("body", "headless")]
        timed |= times(plan, headless, plan.headless_rounds, device)
        for V, rounds in zip(plan.vocabularies, plan.rounds, strict=True):
            vanilla = that_fit(Case(side, arm, V, plan.batch) for arm in ("vanilla", *baselines))
            timed |= times(plan, vanilla, rounds, device)
        for batch in plan.batches:
            sweep = (Case(side, arm, plan.swept, batch) for arm in ("body", "headless", "vanilla", *baselines))
            if missing := [case for case in that_fit(sweep) if case not in timed]:
                timed |= times(plan, missing, plan.sweep_rounds, device)
    memory = peaks(plan, list(timed), device)

    def passes(side: str, arm: str, V: int) -> float:
        return timed[Case(side, arm, V, plan.batch)]["passes_milliseconds"]

    def over_body(side: str) -> float:
        return max(passes(side, "headless", V) / passes(side, "body", V) for V in plan.vocabularies[1:])

    def over_best_baseline(side: str, V: int) -> float:
        found = [passes(side, arm, V) for arm in baselines if Case(side, arm, V, plan.batch) in timed]
        return passes(side, "vanilla", V) / min(found)

    smallest, *middle, largest = plan.vocabularies
    step = {V: timed[Case("encoder", "headless", V, plan.batch)]["step_milliseconds"] for V in plan.vocabularies}
    return {
        "token_ids": LAW,
        "dtype": "bfloat16 autocast" if device == "cuda" else "float32",
        "threads": torch.get_num_threads(),
        "plan": plan._asdict(),
        "encoder_step_over_body_max": round(over_body("encoder"), 4),
        "decoder_step_over_body": round(over_body("decoder"), 4),
        "encoder_250k_over_8k": round(step[largest] / step[smallest], 4),
        "vanilla_over_best_baseline": round(max(over_best_baseline(side, V) for side in OBJECTIVES for V in middle), 4),
        "left_out": left_out,
        "table": [case._asdict() | row | {"peak_memory_mb": round(memory[case], 1)} for case, row in timed.items()],
    }


def _liger(device: str) -> bool:
    return device == "cuda" and find_spec("liger_kernel") is not None


# --- pictures -------------------------------------------------------------------------------------------------------

COLOURS = {
    "body": "0.55",
    "headless": "tab:blue",
    "vanilla": "tab:orange",
    "all_positions": "tab:red",
    "target_positions": "tab:green",
    "liger": "tab:purple",
}
LABELS = {
    "body": "body, no loss head",
    "headless": "headless (this project)",
    "vanilla": "vanilla (this project)",
    "all_positions": "transformers, every position",
    "target_positions": "target positions, by hand",
    "liger": "target positions, Liger",
}


def draw(result: dict[str, Any], file: Path, across: str, title: str, unit: str) -> None:
    """Latency and memory of a step, encoder and decoder beside each other.

    Args:
        result: of :func:`run`.
        file: the picture.
        across: the table's column that is the horizontal axis.
        title: of the picture.
        unit: what the horizontal axis counts.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
    except ImportError:
        raise InputError(
            "the pictures need matplotlib", why="it is not installed", remedy="pip install matplotlib"
        ) from None
    plan = result["plan"]
    other, fixed = ("batch", plan["batch"]) if across == "vocabulary_size" else ("vocabulary_size", plan["swept"])
    rows = [row for row in result["table"] if row[other] == fixed]
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for column, side in enumerate(OBJECTIVES):
        for line, (key, scale, label) in enumerate(
            (("step_milliseconds", 1e-3, "time of a step (s)"), ("peak_memory_mb", 2**-10, "peak memory (GiB)"))
        ):
            axis = axes[line][column]
            for arm, colour in COLOURS.items():
                points = sorted(
                    (row[across], scale * row[key]) for row in rows if (row["side"], row["arm"]) == (side, arm)
                )
                if points:
                    axis.plot(*zip(*points, strict=True), "o-", color=colour, label=LABELS[arm], markersize=4)
            axis.set(xscale="log", yscale="log", xlabel=unit, ylabel=label, title=side)
            ticks = sorted({row[across] for row in rows})
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_minor_locator(NullLocator())
            axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.suptitle(title)
    figure.savefig(file, dpi=120)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    quick = command_line(__doc__, "tiny models, seconds").parse_args(arguments).quick
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = run(QUICK if quick else Plan(), device)
    if not quick:
        draw_all(result, device)
    publish("step", device, result, quick=quick)
    return result


def draw_all(result: dict[str, Any], device: str) -> None:
    slug = re.sub(r"[^a-z0-9]+", "-", hardware(device).lower()).strip("-")
    measure.RESULTS.mkdir(exist_ok=True)
    plan = result["plan"]
    fixed = f"4 layers, hidden size 256, {plan['sequence_length']} tokens a sequence, {hardware(device)}"
    draw(
        result,
        measure.RESULTS / f"step-vocabulary-{slug}.png",
        "vocabulary_size",
        f"A training step by vocabulary: {plan['batch']} sequences, {fixed}",
        "vocabulary (tokens)",
    )
    draw(
        result,
        measure.RESULTS / f"step-batch-{slug}.png",
        "batch",
        f"A training step by batch: vocabulary {plan['swept']:,}, {fixed}",
        "batch (sequences)",
    )


if __name__ == "__main__":
    main()
