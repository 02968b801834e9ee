"""The contrastive loss against the paper's formula and against full cross-entropy: time and memory.

No arguments. On a CPU: forward and backward in float32 for K target positions, D 512, V 32,768, of

- published: softmax over the K x K products of the hidden states and their targets' embeddings, as arXiv 2309.08351
  has it, in plain PyTorch;
- unique: the same loss over unique targets, as this project computes it, finding the unique targets included;
- negatives: 512 of the targets as candidates.

All look their candidates up in the same table, and the table's dense gradient is part of every time. Peak memory is
what a step needs beyond hidden states, token ids and table, gradients of both included; loss memory is the same
without the dense gradient of the table, which neither loss can do anything about (it is a row-sparse one then).
Targets are 15% of the tokens of real text at random (an encoder's), and all of them (a decoder's), if
``H2H_TEST_DATA`` names a folder with ``corpus/*.jsonl.gz``; else ids from Zipf's law.

On a GPU: the same in bfloat16 with D 768 at larger K, and the loss alone against its floor, 6 K U D FLOPs for U unique
targets at the measured rate of a large product, and against the best full cross-entropy at hand. Needs 40 GB of its
memory, for the published formula.

The last line is one JSON object, also written to ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import interleaved_milliseconds, peak_bytes, record
from numpy.typing import NDArray
from torch import Tensor

from trainables.objectives import loss as loss_module
from trainables.objectives.candidates import negatives_of, target_candidates
from trainables.objectives.loss import linear_cross_entropy

V = 32_768
NEGATIVES = 512
MASKED = 0.15
MEMORY_FROM = 4096
"""Shortest K whose memory is measured: below, all of it is less than a table's gradient."""


# --- the losses: hidden states (K, D), table (V, D), token ids (K,) -> a scalar, the mean over positions -----------


def published(hidden_KD: Tensor, table_VD: Tensor, ids_K: NDArray[np.int64], sparse: bool = False) -> Tensor:
    """Equation 3 of arXiv 2309.08351 as it stands, exponentials and all."""
    output_KD = F.embedding(torch.from_numpy(ids_K).to(hidden_KD.device), table_VD, sparse=sparse)
    norm_K = torch.exp(hidden_KD @ output_KD.T).sum(-1)
    positive_K = torch.exp((hidden_KD * output_KD).sum(-1))
    return -torch.log(positive_K / norm_K).mean()


def ours(
    hidden_KD: Tensor, table_VD: Tensor, ids_K: NDArray[np.int64], sparse: bool = False, negatives: int | None = None
) -> Tensor:
    """The same over unique targets, or with so many negatives, from the token ids on; temperature 1."""
    drawn = negatives_of(ids_K, negatives, np.random.default_rng(0))
    found = target_candidates(drawn).of(ids_K)
    device, K = hidden_KD.device, len(ids_K)
    tokens = [found.token_C] if found.own_bias_K is None else [found.token_C, ids_K]
    rows = F.embedding(torch.from_numpy(np.concatenate(tokens)).to(device), table_VD, sparse=sparse)
    C = len(found.token_C)
    own_logit_K = None
    if found.own_bias_K is not None:
        own_logit_K = (hidden_KD * rows[C:]).sum(-1) + torch.from_numpy(found.own_bias_K).float().to(device)
    index_K = torch.from_numpy(found.index_K).to(device)
    bias_C = torch.from_numpy(found.bias_C).float().to(device)
    loss = linear_cross_entropy(hidden_KD, rows[:C], index_K, bias_C, own_logit_K)
    return (loss + found.constant) / K


LOSSES: dict[str, Callable[..., Tensor]] = {
    "published": published,
    "unique": ours,
    f"negatives_{NEGATIVES}": partial(ours, negatives=NEGATIVES),
}


def prepare(
    name: str, ids_K: NDArray[np.int64], D: int, device: str, dtype: torch.dtype, sparse: bool = False
) -> Callable[[], Tensor]:
    """Forward and backward of one of the losses, as a thing to call; the same numbers for all of them."""
    generator = torch.Generator().manual_seed(0)
    hidden_KD = torch.randn(len(ids_K), D, generator=generator).to(device, dtype).requires_grad_()
    table_VD = (0.02 * torch.randn(V, D, generator=generator)).to(device, dtype).requires_grad_()

    def step() -> Tensor:
        loss = LOSSES[name](hidden_KD, table_VD, ids_K, sparse=sparse)
        torch.autograd.backward(loss)
        hidden_KD.grad = table_VD.grad = None
        return loss.detach()

    return step


# --- token ids ------------------------------------------------------------------------------------------------


def token_ids(least: int) -> tuple[NDArray[np.int64], str]:
    """A stream of at least so many token ids, and what they are."""
    data = os.environ.get("H2H_TEST_DATA")
    if not data:
        rank = np.arange(1, V + 1)
        ids = np.random.default_rng(0).choice(V, size=least, p=(1 / rank) / (1 / rank).sum())
        return ids, f"Zipf's law, exponent 1, V {V}"
    files = sorted((Path(data) / "corpus").glob("*.jsonl.gz"))
    english = [file for file in files if file.name.startswith("en.")] or files
    kept = Path(tempfile.gettempdir()) / f"h2h-benchmark-ids-{V}-{sum(f.stat().st_size for f in english)}.npy"
    if not kept.exists():
        from trainables.corpora.config import TrainTokenizer
        from trainables.corpora.preparation.tokenizer_training import train_tokenizer  # seconds to import

        config = TrainTokenizer(type="byte_bpe", vocabulary_size=V)
        tokenizer = train_tokenizer(config, texts(english, characters=8_000_000))
        encoded = tokenizer(list(texts(english, characters=8_000_000)), add_special_tokens=False)["input_ids"]
        np.save(kept, np.concatenate([np.array(document, np.int64) for document in encoded]))
    ids = np.load(kept)
    languages = ", ".join(file.name.split(".")[0] for file in english)
    return np.resize(ids, max(least, len(ids))), f"real text ({languages}), byte-level BPE, V {V}"


def texts(files: list[Path], characters: int) -> Iterator[str]:
    """The first documents of these files, up to so many characters."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                if (characters := characters - len(text)) < 0:
                    return
                yield text


def targets_of(ids: NDArray[np.int64], K: int, task: str) -> NDArray[np.int64]:
    """The first K targets of an encoder (15% of the tokens) or of a decoder (all of them)."""
    if task == "decoder":
        return ids[:K].copy()
    span = math.ceil(K / MASKED)
    return ids[np.sort(np.random.default_rng(K).choice(span, size=K, replace=False))]


# --- contrastive losses against each other --------------------------------------------------------------------------


def compare(ids_K: NDArray[np.int64], D: int, device: str, dtype: torch.dtype, seconds: float) -> dict[str, Any]:
    """Times of all losses, and the memory of the published one and of ours."""
    steps = {name: prepare(name, ids_K, D, device, dtype) for name in LOSSES}
    reference, value = float(steps["published"]()), float(steps["unique"]())
    # bfloat16 rounds the published formula's own sums.
    assert math.isclose(reference, value, rel_tol=1e-5 if dtype == torch.float32 else 0.03), (reference, value)
    times = interleaved_milliseconds(steps, device, seconds)
    del steps
    row: dict[str, Any] = {
        "K": len(ids_K),
        "U": len(np.unique(ids_K)),
        "milliseconds": {name: round(value, 3) for name, value in times.items()},
        "speedup": round(times["published"] / times["unique"], 3),
    }
    if len(ids_K) >= MEMORY_FROM:
        for key, sparse in (("peak_memory", False), ("loss_memory", True)):
            megabytes = {
                name: peak_bytes(device, prepare, name, ids_K, D, device, dtype, sparse) / 2**20
                for name in ("published", "unique")
            }
            row[f"{key}_mb"] = {name: round(value, 1) for name, value in megabytes.items()}
            row[f"{key}_ratio"] = round(megabytes["published"] / megabytes["unique"], 2)
    return row


def on_cpu() -> dict[str, Any]:
    ids, source = token_ids(math.ceil(8192 / MASKED))
    table = []
    for task, lengths in (("encoder", (256, 512, 1024, 2048, 4096, 8192)), ("decoder", (8192,))):
        for K in lengths:
            row = compare(targets_of(ids, K, task), 512, "cpu", torch.float32, seconds=2 + K / 1024)
            table.append({"task": task} | row)
            print(table[-1], flush=True)
    longest = [row for row in table if row["K"] == 8192]
    return {
        "token_ids": source,
        "D": 512,
        "dtype": "float32",
        "counted": "time: forward and backward from token ids on; peak memory: beyond inputs and table, gradients of"
        " both included; loss memory: the same without the table's dense gradient",
        "speedup_at_8192": min(row["speedup"] for row in longest),
        "memory_ratio_at_8192": min(row["peak_memory_ratio"] for row in longest),
        "loss_memory_ratio_at_8192": min(row["loss_memory_ratio"] for row in longest),
        "slowest_ratio_from_256_up": max(round(1 / row["speedup"], 3) for row in table),
        "table": table,
    }


# --- on a GPU ---------------------------------------------------------------------------------------------------


def matmul_teraflops() -> float:
    """Rate of a large bfloat16 product, the best of two sizes."""
    rates = []
    for n in (8192, 16384):
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        time = interleaved_milliseconds({"product": partial(torch.matmul, a, b)}, "cuda", seconds=2)["product"]
        rates.append(2 * n**3 / time / 1e9)
    return max(rates)


def stepper(loss: Callable[[], Tensor], *leaves: Tensor) -> Callable[[], None]:
    def step() -> None:
        torch.autograd.backward(loss())
        for leaf in leaves:
            leaf.grad = None

    return step


def loss_alone(ids_K: NDArray[np.int64], D: int) -> tuple[Callable[[], None], int]:
    """Our loss with its candidates at hand, forward and backward, and how many candidates there are."""
    found = target_candidates(ids_K).of(ids_K)
    C = len(found.token_C)
    hidden_KD = torch.randn(len(ids_K), D, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight_CD = (0.02 * torch.randn(C, D, device="cuda")).bfloat16().requires_grad_()
    index_K, bias_C = torch.from_numpy(found.index_K).cuda(), torch.from_numpy(found.bias_C).float().cuda()
    return stepper(lambda: linear_cross_entropy(hidden_KD, weight_CD, index_K, bias_C), hidden_KD, weight_CD), C


def full_cross_entropies(K: int, D: int, vocabulary: int) -> dict[str, Callable[[], None]]:
    """Every way at hand to a cross-entropy over a whole vocabulary, forward and backward."""
    hidden = torch.randn(K, D, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = (0.02 * torch.randn(vocabulary, D, device="cuda")).bfloat16().requires_grad_()
    target = torch.randint(0, vocabulary, (K,), device="cuda")
    ways: dict[str, Callable[[], Tensor]] = {
        "stored_logits": lambda: F.cross_entropy(hidden @ weight.T, target),
        "ours": lambda: linear_cross_entropy(hidden, weight, target) / K,
    }
    if hasattr(F, "linear_cross_entropy"):  # torch 2.13
        ways["torch"] = lambda: F.linear_cross_entropy(hidden, weight, target)
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
    except ImportError:
        pass
    else:
        liger = LigerFusedLinearCrossEntropyLoss()
        ways["liger"] = lambda: liger(weight, hidden, target)
    return {name: stepper(way, hidden, weight) for name, way in ways.items()}


def that_fit(runs: Mapping[str, Callable[[], object]]) -> dict[str, Callable[[], object]]:
    """Those that the GPU's memory is enough for."""
    fitting = {}
    for name, run in runs.items():
        try:
            run()
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        fitting[name] = run
    return fitting


def rows_sweep(ids_K: NDArray[np.int64], D: int) -> dict[str, float]:
    """Milliseconds of our loss alone by the rows of a slice; the first is the project's own choice."""
    step, C = loss_alone(ids_K, D)
    chosen = loss_module.slice_rows
    runs: dict[str, Callable[[], object]] = {f"chosen_{chosen(C, D, torch.device('cuda'))}": step}

    def with_rows(rows: int) -> Callable[[], None]:
        def run() -> None:
            loss_module.slice_rows = lambda *_: rows
            try:
                step()
            finally:
                loss_module.slice_rows = chosen

        return run

    runs |= {str(rows): with_rows(rows) for rows in (512, 1024, 2048, 4096, 8192, 16384)}
    return interleaved_milliseconds(runs, "cuda", seconds=5)


def on_gpu() -> dict[str, Any]:
    D, lengths = 768, (16_384, 32_768, 65_536)
    ids, source = token_ids(math.ceil(lengths[-1] / MASKED))
    rate = matmul_teraflops()
    table = []
    for K in lengths:
        ids_K = targets_of(ids, K, "encoder")
        row = compare(ids_K, D, "cuda", torch.bfloat16, seconds=4)
        alone, C = loss_alone(ids_K, D)
        floor = 6 * K * C * D / rate / 1e9
        row["loss_alone_milliseconds"] = interleaved_milliseconds({"ours": alone}, "cuda", seconds=2)["ours"]
        row["floor_milliseconds"] = floor
        row["share_of_floor"] = floor / row["loss_alone_milliseconds"]
        for name, vocabulary in (("50k", 50_000), ("250k", 250_000)):
            full = that_fit(full_cross_entropies(K, D, vocabulary))
            times = interleaved_milliseconds(full | {"contrastive": alone}, "cuda", seconds=4)
            contrastive = times.pop("contrastive")
            row[f"full_{name}_milliseconds"] = times
            row[f"speedup_over_full_{name}"] = min(times.values()) / contrastive
            del full
            torch.cuda.empty_cache()
        table.append(row)
        print(row, flush=True)
    return {
        "token_ids": source,
        "D": D,
        "dtype": "bfloat16",
        "counted": "over the published formula: from token ids on; floor and full cross-entropy: the loss alone",
        "matmul_teraflops": rate,
        "share_of_floor": min(row["share_of_floor"] for row in table),
        "speedup_over_published_gpu": min(row["speedup"] for row in table),
        "memory_ratio_over_published_gpu": min(row["loss_memory_ratio"] for row in table),
        "speedup_over_full_50k": min(row["speedup_over_full_50k"] for row in table),
        "speedup_over_full_250k": min(row["speedup_over_full_250k"] for row in table),
        "milliseconds_by_rows_of_a_slice": rows_sweep(targets_of(ids, 32_768, "encoder"), D),
        "table": table,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    record("loss", device, on_gpu() if device == "cuda" else on_cpu())


if __name__ == "__main__":
    main()
