"""Signal and noise of the yardsticks: which of them tells two models apart with the fewest seeds and the least text.

Small models are trained on real text, without Ray: of each task a headless arm (scored with its unigram prior, as the
product does) and a vanilla one, at some learning rates, at a budget and at its double, all with the same seeds. A model
here is an arm, a rate and a budget; a pair is two of one arm, or one of each arm at the same budget. Every yardstick
of the registry that ordinary text allows is taken on the same runs and the same held-out text.

- signal: root mean square, over pairs, of the difference of the two models' means over seeds;
- noise: root mean square, over the same pairs, of that difference's standard error over seeds and held-out text, as
  the product's comparison has it (``orchestrator/analysis/held_out_text.py``), for so many seeds and so much text;
- snr: their ratio, after arXiv 2508.13144, whose noise is that of a run's last checkpoints. It has no unit, so that
  yardsticks compare as they are; chance alone gives about 1. A yardstick of k times the snr needs about a k^2-th of the
  seeds and the text to be as sure;
- decision accuracy: the share of pairs that a single seed orders as the mean of all other seeds does on the same
  yardstick (``as_other_seeds``: all pairs; ``as_twice_the_budget``: pairs of the smaller budget, against the same arms
  and rates at its double), and its standard error over seeds.

A yardstick that is an exponential (perplexity) is taken as the product compares it, and as ``log``, in logarithms:
that of perplexity is bits per byte but for the weights of languages. Intervals are 95%: Student's, of logarithms,
by the jackknife over seeds and over blocks of documents, whose variances are added. They say what other seeds and
other text would give, not other models or sizes. Those here are tiny. The decoders lie between the tables of single
tokens and of neighbours; the encoders leave the former's level between the two budgets, so that much of what differs
among them is when, and of their pairs that are ordered as at twice the budget there are few.

    python benchmarks/yardsticks.py            # 12 minutes on one core
    python benchmarks/yardsticks.py --quick    # tiny, to see that it runs

``--data`` (or ``H2H_TEST_DATA``) is a folder that holds ``corpus/LANGUAGE.jsonl.gz`` with the columns ``text`` and
``doc_id``. The last line is a JSON object, also written to results/:

- best: the yardstick of the highest snr, in the geometric mean over all groups of pairs
- best_over: by other yardstick, the ratio of the best one's snr to its, with the interval
- over_recovery_accuracy: likewise of each yardstick's snr to that of recovery accuracy
- tasks: for each the same, the table by group of pairs, and the values of models and of tables of counts
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import command_line, publish
from numpy.typing import NDArray
from scipy import stats

from orchestrator.analysis.held_out_text import evidence_of_items
from orchestrator.config.confirmation import EMBEDDING_BAG, TASKS
from orchestrator.execution.ray_session import ray_session
from orchestrator.planning.machine import Machine
from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.errors import InputError
from trainables.evaluation import YARDSTICKS, EvaluationConfig, find_yardstick
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.item_scores import ItemScores, from_parquet, items_file
from trainables.evaluation.tables import take_of_tables
from trainables.objectives import find_objective
from trainables.storage import Location
from trainables.training.config import TrialConfig
from trainables.training.loop import Trial

Floats = NDArray[np.float64]
Scores = Mapping[str, ItemScores]
"""Of one run, by yardstick; those of exponentials also in logarithms."""

LANGUAGES = ("sw", "tr")
BASELINE = "recovery_accuracy"
BLOCKS = 10
"""Of documents; the jackknife leaves out one at a time."""


class Plan(NamedTuple):
    """One task's models, and what they are trained and scored on."""

    arms: tuple[str, str]
    """A headless one and a vanilla one."""
    body: dict[str, Any]
    tokenizer: dict[str, Any]
    sequence_length: int
    training: dict[str, Any]
    rates: tuple[float, ...]
    tokens: int
    """Of the smaller budget."""
    sequences: int
    """Held out, of each language."""
    seeds: int = 6


ONE_LAYER = {"num_hidden_layers": 1, "initializer_range": 0.1}
PLANS = {
    "causal": Plan(
        arms=("headless_clm", "clm"),
        body=ONE_LAYER
        | {"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 256},
        tokenizer={"type": "unigram", "vocabulary_size": 1000, "sample_bytes": 1_000_000},
        sequence_length=32,
        training={"batch_sequences": 16},
        rates=(5e-3, 1e-2, 2e-2),
        tokens=64_000,
        sequences=1024,
    ),
    # An encoder stays at the unigram's level for long: tokens of few letters and many masks end that soonest.
    "masked": Plan(
        arms=("headless_mlm", "mlm"),
        body=ONE_LAYER
        | {"model_type": "bert", "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
        | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        tokenizer={"type": "byte_bpe", "vocabulary_size": 320, "sample_bytes": 1_000_000},
        sequence_length=16,
        training={"batch_sequences": 32, "mask_rate": 0.3},
        rates=(1e-3, 2e-3),
        tokens=160_000,
        sequences=4096,
    ),
}
QUICK = {
    task: plan._replace(rates=plan.rates[:2], tokens=2_000, sequences=128, seeds=3) for task, plan in PLANS.items()
}


class Model(NamedTuple):
    """What is trained with every seed."""

    arm: str
    rate: float
    times: int
    """How many times the smaller budget."""


Runs = Mapping[Model, Sequence[Scores]]
"""By model, the runs of the seeds in their order."""

Groups = Mapping[str, Sequence[tuple[Model, Model]]]


# --- training -------------------------------------------------------------------------------------------------------


def prepared(data: Path, plan: Plan, store: Path) -> PackedCorpus:
    """The text in the task's tokens. Needs a Ray cluster."""
    corpora = corpora_of(data, plan)
    tokenizer = make_tokenizer(corpora, TokenizerConfig.model_validate({"train": plan.tokenizer}))
    manifest = prepare(corpora, tokenizer, Location(str(store)))
    return PackedCorpus(Location(str(store / manifest.fingerprint)))


def corpora_of(data: Path, plan: Plan) -> CorporaConfig:
    sources = [
        {"language": name, "files": str(data / "corpus" / f"{name}.jsonl.gz"), "id_column": "doc_id"}
        for name in LANGUAGES
    ]
    return CorporaConfig.model_validate(
        {"sources": sources, "sequence_length": plan.sequence_length, "alpha": 0.0, "test_share": 0.1}
    )


def yardsticks_for(corpora: CorporaConfig) -> list[str]:
    """Those of the registry that need no more than this text: no downstream tasks."""
    found = []
    for yardstick in YARDSTICKS:
        if yardstick.name in (TASKS, EMBEDDING_BAG):
            continue
        try:
            yardstick().require(corpora)
        except InputError:
            continue
        if yardstick.has_items():
            found.append(yardstick.name)
    return found


def trained(plan: Plan, model: Model, seed: int, corpus: PackedCorpus, names: Sequence[str], folder: Path) -> Scores:
    """A run's scores by document, by the scorer that its objective implies."""
    config = TrialConfig.model_validate(
        {
            "trial": "one",
            "objective": model.arm,
            "model": {"config": plan.body},
            "training": plan.training | {"learning_rate": model.rate},
            "budget": {"tokens": plan.tokens * model.times},
            "seed": seed,
            "corpus": corpus.folder.uri,
            "alpha": 0.0,
            "maximum_repetition": 8.0,
            "evaluation": evaluation_of(plan),
            "split": "test",
            "yardsticks": names,
            "reports": 1,
        }
    )
    stream, place = TokenStream(corpus, seed, config.alpha, config.maximum_repetition), Location(str(folder))
    *_, last = Trial(config, stream, study_folder=place).run()
    assert last.status == "completed", f"{model} with seed {seed}: {last.status}"
    file = items_file(place, config.trial)
    items = from_parquet(file.read_bytes(), str(file))
    own = {name: items[name, str(last.measure.scorer)] for name in names}
    return own | {
        f"log {name}": scores._replace(transform="identity")
        for name, scores in own.items()
        if scores.transform == "exp"
    }


def evaluation_of(plan: Plan) -> dict[str, Any]:
    return {"sequences_per_language": plan.sequences, "mask_rate": plan.training.get("mask_rate", 0.15)}


def all_trained(plan: Plan, corpus: PackedCorpus, names: Sequence[str]) -> dict[Model, list[Scores]]:
    """A seed of all models before the next seed."""
    runs: dict[Model, list[Scores]] = {Model(*own): [] for own in product(plan.arms, plan.rates, (1, 2))}
    for seed in range(1, plan.seeds + 1):
        start = time.perf_counter()
        for model, own in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                own.append(trained(plan, model, seed, corpus, names, Path(folder)))
        print(f"seed {seed}: {len(runs)} models in {time.perf_counter() - start:.0f} s", flush=True)
    return runs


# --- signal and noise -----------------------------------------------------------------------------------------------


def groups_of(plan: Plan) -> Groups:
    """The pairs of each arm, and those of one model of each arm at the same budget."""
    rates = list(product(plan.rates, (1, 2)))
    within = {arm: list(combinations([Model(arm, *own) for own in rates], 2)) for arm in plan.arms}
    a, b = plan.arms
    between = [
        (Model(a, one, times), Model(b, other, times)) for one, other, times in product(plan.rates, plan.rates, (1, 2))
    ]
    return within | {f"{a} against {b}": between}


class Spread(NamedTuple):
    """Mean squares over pairs, in the yardstick's unit squared."""

    signal: float
    seeds: float
    """Of the standard error, by seeds, and what these share with text."""
    text: float
    """By text alone."""

    @property
    def log_snr(self) -> float:
        """Of the root mean squares."""
        return float(np.log(self.signal / (self.seeds + self.text)) / 2)


def spread_of(runs: Runs, pairs: Sequence[tuple[Model, Model]], name: str) -> Spread:
    found = [
        evidence_of_items([(one[name], other[name]) for one, other in zip(runs[a], runs[b], strict=True)])
        for a, b in pairs
    ]
    squares = np.array([[float(e.mean) ** 2, float(e.seed_variance), float(e.text_variance)] for e in found])
    return Spread(*squares.mean(0).tolist())


def log_snr_of(runs: Runs, groups: Groups, names: Sequence[str]) -> Floats:
    """By group and yardstick."""
    return np.array([[spread_of(runs, pairs, name).log_snr for name in names] for pairs in groups.values()])


def without_seed(runs: Runs, number: int) -> Runs:
    return {model: [*own[:number], *own[number + 1 :]] for model, own in runs.items()}


def without_block(runs: Runs, number: int) -> Runs:
    return {
        model: [{name: thinned(items, number) for name, items in run.items()} for run in own]
        for model, own in runs.items()
    }


def thinned(items: ItemScores, block: int) -> ItemScores:
    """Without one block of each language's documents."""
    place_I = np.concatenate([np.arange(len(own.item_I)) for own in items.languages.values()])
    kept_I = place_I % BLOCKS != block
    columns = {key: getattr(items, key)[kept_I] for key in ("language_I", "item_I", "value_I", "weight_I")}
    return items._replace(**columns)


class Measured(NamedTuple):
    """Logarithms of the snr of one task's groups and yardsticks. Letters: G groups, Y yardsticks, J left out."""

    log_GY: Floats
    left_out_JGY: tuple[Floats, Floats]
    """Without each seed, and without each block of documents."""
    degrees: int
    """Of freedom: the seeds' less one, though text adds some."""


def measured(runs: Runs, groups: Groups, names: Sequence[str], seeds: int) -> Measured:
    left_out = (
        np.array([log_snr_of(without_seed(runs, s), groups, names) for s in range(seeds)]),
        np.array([log_snr_of(without_block(runs, block), groups, names) for block in range(BLOCKS)]),
    )
    return Measured(log_snr_of(runs, groups, names), left_out, seeds - 1)


def interval_of(tasks: Sequence[Measured], weight_GY: Floats) -> list[float]:
    """Exponential of a weighted sum of logarithms, in the mean over tasks, and the ends of its interval."""
    value, variance = 0.0, 0.0
    for task in tasks:
        value += float((task.log_GY * weight_GY).sum()) / len(tasks)
        for left_out_JGY in task.left_out_JGY:
            sum_J = (left_out_JGY * weight_GY).sum((1, 2))
            variance += (len(sum_J) - 1) * float(sum_J.var()) / len(tasks) ** 2
    reach = float(stats.t.ppf(0.975, min(task.degrees for task in tasks))) * variance**0.5
    return [round(float(np.exp(end)), 3) for end in (value, value - reach, value + reach)]


def ratio_of(tasks: Sequence[Measured], above: int, below: int | None, group: int | None = None) -> list[float]:
    """Of one yardstick's snr to another's (or to 1), by number, with its interval: of a group, or in the geometric mean
    over all."""
    weight_GY = np.zeros_like(tasks[0].log_GY)
    rows = slice(None) if group is None else slice(group, group + 1)
    weight_GY[rows, above] += 1 / len(weight_GY[rows])
    if below is not None:
        weight_GY[rows, below] -= 1 / len(weight_GY[rows])
    return interval_of(tasks, weight_GY)


def best_of(tasks: Sequence[Measured], names: Sequence[str]) -> dict[str, Any]:
    """The yardstick of the highest snr, by how much, and how all stand to recovery accuracy."""
    best = int(np.mean([task.log_GY.mean(0) for task in tasks], axis=0).argmax())
    others = [number for number in range(len(names)) if number != best]
    return {
        "best": names[best],
        "best_over": {names[number]: ratio_of(tasks, best, number) for number in others},
        f"over_{BASELINE}": {
            name: ratio_of(tasks, number, names.index(BASELINE))
            for number, name in enumerate(names)
            if name != BASELINE
        },
    }


# --- decisions ------------------------------------------------------------------------------------------------------


def differences(runs: Runs, pair: tuple[Model, Model], name: str) -> Floats:
    """By seed."""
    a, b = ([run[name].overall for run in runs[model]] for model in pair)
    return np.subtract(a, b)


def share_right(said_PS: Floats, truth_PS: Floats) -> list[float]:
    """Share of pairs and seeds whose sign is that of the mean of the other seeds' truths, a tie counting half, and its
    standard error over seeds."""
    others_PS = truth_PS.sum(1, keepdims=True) - truth_PS
    right_S = ((1 + np.sign(said_PS) * np.sign(others_PS)) / 2).mean(0)
    return [round(float(right_S.mean()), 4), round(float(right_S.std(ddof=1)) / len(right_S) ** 0.5, 4)]


def decisions(runs: Runs, pairs: Sequence[tuple[Model, Model]], name: str) -> dict[str, list[float]]:
    every_PS = np.array([differences(runs, pair, name) for pair in pairs])
    small = [pair for pair in pairs if pair[0].times == pair[1].times == 1]
    small_PS = np.array([differences(runs, pair, name) for pair in small])
    doubled = [(a._replace(times=2), b._replace(times=2)) for a, b in small]
    doubled_PS = np.array([differences(runs, pair, name) for pair in doubled])
    return {"as_other_seeds": share_right(every_PS, every_PS), "as_twice_the_budget": share_right(small_PS, doubled_PS)}


# --- reporting ------------------------------------------------------------------------------------------------------


def table_of(runs: Runs, groups: Groups, names: Sequence[str], found: Measured) -> list[dict[str, Any]]:
    rows = []
    for (g, (group, pairs)), (y, name) in product(enumerate(groups.items()), enumerate(names)):
        spread = spread_of(runs, pairs, name)
        snr, *interval = ratio_of([found], y, None, g)
        row = {
            "pairs_of": group,
            "yardstick": name,
            "snr": snr,
            "interval": interval,
            f"over_{BASELINE}": ratio_of([found], y, names.index(BASELINE), g),
            "signal": float(f"{spread.signal**0.5:.4g}"),
            "noise": float(f"{(spread.seeds + spread.text) ** 0.5:.4g}"),
            "text_share_of_variance": round(spread.text / (spread.seeds + spread.text), 3),
            **decisions(runs, pairs, name),
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def values_of(plan: Plan, runs: Runs, corpus: PackedCorpus, names: Sequence[str]) -> dict[str, Any]:
    """By yardstick the values of tables of counts, and of each arm's best rate at both budgets, in the mean over seeds;
    which arm is ahead at the larger budget, and the difference in standard errors."""
    held_out = HeldOut(corpus, EvaluationConfig.model_validate(evaluation_of(plan)), "test")
    tables = take_of_tables(held_out, find_objective(plan.arms[0]).task, names)
    found: dict[str, Any] = {}
    for name in names:
        yardstick = find_yardstick(name)
        sign = 1 if yardstick.higher_is_better else -1
        mean = {model: float(np.mean([run[name].overall for run in own])) for model, own in runs.items()}
        best = {
            (arm, times): max((Model(arm, rate, times) for rate in plan.rates), key=lambda model: sign * mean[model])
            for arm, times in product(plan.arms, (1, 2))
        }
        a, b = (best[arm, 2] for arm in plan.arms)
        evidence = evidence_of_items([(one[name], other[name]) for one, other in zip(runs[a], runs[b], strict=True)])
        values = {kind: own.scores[name].overall for kind, own in tables.items()}
        values |= {f"{arm} x{times}": mean[model] for (arm, times), model in best.items()}
        found[name] = {key: round(value, 4) for key, value in values.items()} | {
            "ahead": plan.arms[sign * float(evidence.mean) < 0],
            "by_standard_errors": round(abs(float(evidence.mean)) / float(evidence.variance) ** 0.5, 2),
        }
        print(name, found[name], flush=True)
    return found


def run(data: Path, plans: Mapping[str, Plan]) -> dict[str, Any]:
    """All figures."""
    tasks, every, names = {}, [], yardsticks_for(corpora_of(data, plans["causal"]))
    with tempfile.TemporaryDirectory() as store:
        with ray_session(None, Machine(cpus=1, gpus=0), dashboard=False):
            corpora = {task: prepared(data, plan, Path(store)) for task, plan in plans.items()}
        for task, plan in plans.items():
            groups, runs = groups_of(plan), all_trained(plan, corpora[task], names)
            yardsticks = list(next(iter(runs.values()))[0])
            found = measured(runs, groups, yardsticks, plan.seeds)
            tasks[task] = best_of([found], yardsticks) | {
                "table": table_of(runs, groups, yardsticks, found),
                "values": values_of(plan, runs, corpora[task], names),
                "plan": plan._asdict(),
            }
            every.append(found)
    return {
        **best_of(every, yardsticks),
        "languages": LANGUAGES,
        "processor_seconds": round(time.process_time()),
        "tasks": tasks,
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "few and short runs")
    parser.add_argument("--data", default=os.environ.get("H2H_TEST_DATA"), help="folder that holds corpus/")
    options = parser.parse_args(arguments)
    if not options.data:
        sys.exit("set H2H_TEST_DATA, or give --data: the folder that holds corpus/LANGUAGE.jsonl.gz")
    torch.set_num_threads(1)
    result = run(Path(options.data), QUICK if options.quick else PLANS)
    publish("yardsticks", "cpu", result, quick=options.quick)
    return result


if __name__ == "__main__":
    main()
