"""Downstream tasks: what they take, and whether scores are those of other libraries, on models trained here.

A tiny decoder and a tiny encoder are trained on text, most of it English, a minute each.

- ``tier_a_seconds``: all 67,000 pairs of BLiMP by the decoder, from text to answers;
- ``tier_a_encoder_seconds``: 200 pairs of each of its 67 paradigms by the encoder;
- ``probes_seconds``: probes of a model for parts of speech in 14 languages and topics in 16, from text to answers, 500
  test examples of each; the longer of the decoder's and the encoder's;
- ``minicons_max_difference``: of pseudo-log-likelihoods of BLiMP's sentences, in nats, from those of minicons
  (``within_word_l2r``), by the encoder as it is exported;
- ``lm_eval_disagreements``: items of BLiMP, LAMBADA and XCOPA that the exported decoder gets right here and wrong in
  lm-evaluation-harness, or the other way round; ``lm_eval_items`` were compared, and ties, which are half right here,
  are no disagreement;
- ``transformers_loss_difference``: of the losses of 50 steps of fine-tuning the encoder to RTE, in nats, from those of
  a plain transformers loop on the exported model.

    pip install minicons 'lm_eval[hf]'
    python benchmarks/tasks.py

The last line is one JSON object, also written to ``benchmarks/results``. What a missing library would be compared with
is null.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from measure import command_line, publish
from numpy.typing import NDArray
from plain_fine_tuning import transformers_loss_difference
from transformers import PreTrainedTokenizerFast

from orchestrator.config.task_files import load_task
from trainables.corpora.config import TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.tokenizers import separator_token
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.models.export import export_model
from trainables.objectives import find_objective
from trainables.objectives.corruption import masked_positions
from trainables.objectives.learner import Learner
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig
from trainables.tasks.examples import Example, evenly
from trainables.tasks.kinds import KINDS
from trainables.tasks.model import LanguageModel, Passage
from trainables.tasks.prepared import Tasks, prepare_tasks
from trainables.tasks.probes import probe_task

LENGTH = 128
XCOPA_LANGUAGES = (
    "sw",
    "tr",
    "vi",
    "zh",
)  # the harness cuts the last letter off a Thai premise, which has no full stop


class Plan(NamedTuple):
    """How much of everything."""

    vocabulary_size: int = 8000
    documents: int = 3000
    training_seconds: float = 60.0
    paradigms: int = 67
    encoder_pairs: int = 200
    """Of each paradigm."""
    compared: int = 1000
    """Items of each task, and sentences."""
    probed_languages: int = 16
    fine_tuning_steps: int = 50


QUICK = Plan(3000, 100, 2, paradigms=2, encoder_pairs=5, compared=12, probed_languages=2, fine_tuning_steps=3)
PROBED = ("udpos", "sib200")
PROBED_ITEMS = 500


def texts_of(data: Path, documents: int) -> list[str]:
    """English, and a tenth as much of each other language that is compared."""
    found: list[str] = []
    for language, most in {"en": documents, **dict.fromkeys(XCOPA_LANGUAGES, documents // 10)}.items():
        with gzip.open(data / "corpus" / f"{language}.jsonl.gz", "rt", encoding="utf-8") as lines:
            found += [json.loads(line)["text"] for line in islice(lines, most)]
    return found


def packed(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> NDArray[np.int64]:
    """Documents one behind the other, a separator behind each, (N, L)."""
    separator = separator_token(tokenizer)
    ids = [token for own in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in (*own, separator)]
    return np.array(ids[: len(ids) // LENGTH * LENGTH]).reshape(-1, LENGTH)


def losses(learner: Learner, tokenizer: PreTrainedTokenizerFast, token_NL: NDArray[np.int64]) -> Iterator[torch.Tensor]:
    """Without end, of batches of 16 drawn sequences."""
    rng = np.random.default_rng(0)
    special = tuple(tokenizer.all_special_ids)
    while True:
        drawn_NL = token_NL[rng.integers(len(token_NL), size=16)]
        target_NL = torch.from_numpy(drawn_NL)
        if learner.objective.task == "causal":
            hidden_KD = learner.hidden(target_NL)[:, :-1].flatten(0, 1)
            yield F.cross_entropy(learner.logits(hidden_KD), target_NL[:, 1:].flatten())
        else:
            position_NT = torch.from_numpy(masked_positions(drawn_NL, rng.integers(1 << 40, size=16), 0, 0.15, special))
            input_NL = target_NL.scatter(1, position_NT, tokenizer.mask_token_id)
            row_N1 = torch.arange(16)[:, None]
            hidden_KD = learner.hidden(input_NL)[row_N1, position_NT].flatten(0, 1)
            yield F.cross_entropy(learner.logits(hidden_KD), target_NL.gather(1, position_NT).flatten())


def trained(objective: str, tokenizer: PreTrainedTokenizerFast, token_NL: NDArray[np.int64], plan: Plan) -> Learner:
    found = find_objective(objective)
    config = body_config(ModelConfig(shape="tiny"), found.task, vocabulary_size=len(tokenizer), sequence_length=LENGTH)
    torch.manual_seed(0)
    learner = Learner(config, found.of({}))
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-3)
    end = time.perf_counter() + plan.training_seconds
    for step, loss in enumerate(losses(learner, tokenizer, token_NL), 1):
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if time.perf_counter() > end:
            print(f"{objective}: {step} steps, {loss.item():.2f} nats a token")
            return learner.eval()
    raise AssertionError("losses have no end")


def exported(learner: Learner, tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    head = learner.objective.scoring_head(learner)
    export_model(learner.body, head, learner.config, tokenizer, Location(folder), "")
    return str(folder)


def prepared(names: Sequence[str], languages: Sequence[str], data: Path, store: Path) -> Tasks:
    return Tasks(
        prepare_tasks([load_task(name, "") for name in names], Location(store), str(data / "eval"), languages, None)
    )


def read(task: str, language: str, data: Path, store: Path) -> list[Example]:
    """All examples of the dev and test splits that have no part in training."""
    tasks = prepared([task], [language], data, store)
    return [*tasks.examples(task, "dev", language), *tasks.examples(task, "test", language)]


def answers(task: str, model: LanguageModel, examples: Sequence[Example]) -> NDArray[np.float64]:
    return KINDS.find(load_task(task, "").kind)().answers(model, examples)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def probe_all(model: LanguageModel, tasks: Tasks) -> None:
    for name in PROBED:
        examples = {own: tasks.first(name, "test", own, PROBED_ITEMS) for own in tasks.languages(name)}
        found = probe_task(model, tasks, name, "test", examples)
        print(f"{name}: {np.mean([own.right_I.mean() for own in found.values()]):.3f} in {len(found)} languages")


def loss_difference(model: LanguageModel, folder: str, data: Path, store: Path, steps: int) -> float:
    tasks = prepared(["rte"], ["en"], data, store)
    entry, settings = tasks.manifest.tasks["rte"], FineTuningConfig(steps=steps, pooling="first")
    kind, tokenizer = KINDS.find(entry.kind)(), model.tokenizer
    most = LENGTH - 4  # with special tokens; the plain loop cuts nothing off
    train = [own for own in tasks.examples("rte", "train", "en") if len(tokenizer(*own.texts)["input_ids"]) <= most]
    return transformers_loss_difference(model, folder, kind, len(entry.classes), train, settings, rate=3e-4, seed=0)


def minicons_max_difference(folder: str, sentences: Sequence[str]) -> float | None:
    """None without minicons."""
    if find_spec("minicons") is None:
        print("no minicons: pip install minicons")
        return None
    from minicons.scorer import MaskedLMScorer

    scorer, theirs = MaskedLMScorer(folder, "cpu"), []
    for start in range(0, len(sentences), 32):
        # As tokens: of text minicons asks a tokenizer what transformers 5 has no longer.
        batch = scorer.tokenizer(list(sentences[start : start + 32]), padding=True)
        theirs += scorer.sequence_score(batch, reduction=lambda x: x.sum(0).item(), PLL_metric="within_word_l2r")
    ours = LanguageModel.of_folder(folder).score([Passage(sentence) for sentence in sentences])
    return float(np.abs(ours.log_likelihood_P - np.array(theirs)).max())


def harness_answers(folder: str, task: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Which of the rows lm-evaluation-harness finds right, (I,)."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    with tempfile.TemporaryDirectory() as store:
        file = Path(store) / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = {"data_files": {"test": str(file)}, "cache_dir": store}
        own = {"task": "own", "dataset_path": "json", "dataset_kwargs": files, "test_split": "test", **task}
        model = HFLM(pretrained=folder, device="cpu", batch_size=64, dtype="float32")
        found = simple_evaluate(model, tasks=[own], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["own"], key=lambda sample: sample["doc_id"])
    return np.array([float(sample["acc"]) for sample in samples])


def lm_eval_disagreements(
    folder: str, blimp: Sequence[Example], data: Path, store: Path, most: int
) -> dict[str, int | None]:
    """Over all three tasks; None without lm-evaluation-harness."""
    if find_spec("lm_eval") is None:
        print("no lm-evaluation-harness: pip install 'lm_eval[hf]'")
        return {"lm_eval_disagreements": None, "lm_eval_items": None, "lm_eval_ties": None}
    accuracy: dict[str, Any] = {"metric_list": [{"metric": "acc"}]}
    chosen = accuracy | {"output_type": "multiple_choice"}
    pairs = chosen | {"doc_to_text": "", "target_delimiter": "", "doc_to_target": 0, "doc_to_choice": "{{[good, bad]}}"}
    last_word = accuracy | {
        "output_type": "loglikelihood",
        "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
        "doc_to_target": "{{' '+text.split(' ')[-1]}}",
    }
    cases: list[tuple[str, Mapping[str, Any], list[Example], list[dict[str, Any]]]] = []
    some = [blimp[number] for number in evenly(blimp, most)]
    cases.append(("blimp", pairs, some, [{"good": e.texts[0], "bad": e.texts[1]} for e in some]))
    some = read("lambada", "en", data, store)[:most]
    cases.append(("lambada", last_word, some, [{"text": e.texts[0]} for e in some]))
    words = import_module("lm_eval.tasks.xcopa.utils")
    for language in XCOPA_LANGUAGES:
        with gzip.open(data / "eval" / "xcopa" / f"test.{language}.jsonl.gz", "rt") as lines:
            by_number = {str(row["idx"]): row for row in map(json.loads, lines)}
        tasks = Tasks(prepare_tasks([load_task("xcopa", "")], Location(store), str(data / "eval"), [language], None))
        some = tasks.first("xcopa", "test", language, most)
        own = chosen | {
            "doc_to_text": getattr(words, f"doc_to_text_{language}"),
            "doc_to_choice": words.doc_to_choice,
            "doc_to_target": "label",
        }
        cases.append(("xcopa", own, some, [by_number[example.unit] for example in some]))
    model, disagreements, ties = LanguageModel.of_folder(folder), 0, 0
    for task, definition, examples, rows in cases:
        ours, theirs = answers(task, model, examples), harness_answers(folder, definition, rows)
        is_tie = (ours > 0) & (ours < 1)
        ties += int(is_tie.sum())
        disagreements += int(((ours != theirs) & ~is_tie).sum())
        print(f"{task}: {len(rows)} items, {ours.mean():.3f} right, {theirs.mean():.3f} in the harness")
    items = sum(len(rows) for *_, rows in cases)
    return {"lm_eval_disagreements": disagreements, "lm_eval_items": items, "lm_eval_ties": ties}


def run(data: Path, plan: Plan) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        texts = texts_of(data, plan.documents)
        tokenizer = train_tokenizer(TrainTokenizer(vocabulary_size=plan.vocabulary_size), iter(texts))
        token_NL, separator = packed(tokenizer, texts), separator_token(tokenizer)
        learners = {name: trained(name, tokenizer, token_NL, plan) for name in ("clm", "mlm")}
        folders = {name: exported(learner, tokenizer, store / name) for name, learner in learners.items()}
        models = {
            name: LanguageModel.of_learner(learner, learner.objective.scorers[0], tokenizer, separator, LENGTH)
            for name, learner in learners.items()
        }
        blimp = read("blimp", "en", data, store)
        paradigms = sorted({example.group for example in blimp})[: plan.paradigms]
        pairs = [example for example in blimp if example.group in paradigms]
        some = [pairs[number] for number in evenly(pairs, plan.encoder_pairs * len(paradigms))]
        languages = sorted(file.name.split(".")[0] for file in (data / "corpus").glob("*.jsonl.gz"))
        probed = prepared(PROBED, languages[: plan.probed_languages], data, store)
        sentences = [text for number in evenly(pairs, plan.compared // 2) for text in pairs[number].texts]
        return {
            "tier_a_seconds": timed(lambda: print("decoder", answers("blimp", models["clm"], pairs).mean())),
            "tier_a_pairs": len(pairs),
            "tier_a_encoder_seconds": timed(lambda: print("encoder", answers("blimp", models["mlm"], some).mean())),
            "tier_a_encoder_pairs": len(some),
            "probes_seconds": max(timed(partial(probe_all, own, probed)) for own in models.values()),
            "probes": {name: len(probed.languages(name)) for name in PROBED},
            "minicons_max_difference": minicons_max_difference(folders["mlm"], sentences),
            **lm_eval_disagreements(folders["clm"], pairs, data, store, plan.compared),
            "transformers_loss_difference": loss_difference(
                models["mlm"], folders["mlm"], data, store, plan.fine_tuning_steps
            ),
            "plan": plan._asdict(),
        }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = command_line(__doc__, "short training and few items")
    parser.add_argument("--data", default=os.environ.get("H2H_TEST_DATA"), help="folder that holds corpus/ and eval/")
    options = parser.parse_args(arguments)
    if not options.data:
        sys.exit("set H2H_TEST_DATA, or give --data: the folder that holds corpus/LANGUAGE.jsonl.gz and eval/")
    result = run(Path(options.data), QUICK if options.quick else Plan())
    publish("tasks", "cpu", result, quick=options.quick)
    return result


if __name__ == "__main__":
    main()
