"""Downstream tasks on real text: headless, headless with a restored head, and vanilla decoders in eight languages,
asked zero-shot, by probes and after fine-tuning.

The folder named by ``H2H_TEST_DATA`` holds ``corpus/LANGUAGE.jsonl.gz`` with a ``text`` and a ``doc_id`` column, and
the tasks' files in ``eval``. Prints the study's tables and verdicts; its last line is one JSON object. ``--storage``
keeps the study; ``--flops`` and ``--seeds`` make it smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from orchestrator.analysis.answer import answer_of
from orchestrator.cli import main as h2h
from orchestrator.reporting.results import Results

LANGUAGES = ("de", "en", "es", "fr", "hi", "ru", "vi", "zh")


def study(data: Path, flops: float, seeds: int) -> dict[str, Any]:
    """A study of the folder's text and tasks."""
    sources = [
        {"language": language, "files": str(data / "corpus" / f"{language}.jsonl.gz"), "id_column": "doc_id"}
        for language in LANGUAGES
    ]
    return {
        "name": "downstream",
        "question": "At equal FLOPs, are headless decoders better at tasks than vanilla ones, with and without a head?",
        "corpora": {"sources": sources, "alpha": 0.5, "sequence_length": 64},
        "tokenizer": {"train": {"type": "unigram", "vocabulary_size": 8000, "sample_bytes": 4_000_000}},
        "model": {"shape": "tiny"},
        "training": {"batch_sequences": 16, "learning_rate": 3e-3},
        "arms": {
            "headless": {"objective": "headless_clm"},
            "headless-restored": {"objective": "headless_clm", "training": {"restoration": {"share": 0.1}}},
            "vanilla": {"objective": "clm"},
        },
        "budget": {"flops": flops},
        "search": {"budget_per_arm": 2},
        "confirm": {"seeds": seeds, "control": "vanilla", "evaluations": 5},
        "yardsticks": {
            "evaluation": {"sequences_per_language": 16},
            "tasks": {
                "suite": ["blimp", "xcopa", "sib200", "udpos", "rte", "sst2", "xnli"],
                "folder": str(data / "eval"),
                "fine_tuning": {
                    "learning_rates": [3e-4, 1e-3],
                    "steps": 150,
                    "seeds": 2,
                    "sequence_tokens": 64,
                    "share": 5.0,  # pretraining is that short
                },
                "fine_tuned": ["rte", "sst2", "xnli"],
            },
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", type=Path)
    parser.add_argument("--flops", type=float, default=1.5e12, help="of each trial")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    data = os.environ.get("H2H_TEST_DATA")
    if not data:
        sys.exit("set H2H_TEST_DATA to the folder that holds corpus/LANGUAGE.jsonl.gz and the tasks' files in eval")
    with tempfile.TemporaryDirectory() as scratch:
        storage = options.storage or Path(scratch)
        storage.mkdir(parents=True, exist_ok=True)
        file = storage / "downstream.yaml"
        file.write_text(json.dumps(study(Path(data), options.flops, options.seeds)))  # JSON is YAML
        start = time.perf_counter()
        code = h2h(["run", "--resume", str(file), "--set", f"storage={storage}"])
        seconds = time.perf_counter() - start
        if code:
            return code
        pairs = answer_of(Results(str(storage / "downstream")).history).comparison.pairs
        figures = {
            "seconds": round(seconds, 1),
            "verdicts": {f"{pair.a} / {pair.b}": pair.verdict for pair in pairs},
            "tasks": {
                f"{pair.a} / {pair.b}": {
                    f"{row.task}, {row.tier}": {
                        "right": [row.mean_a, row.mean_b],
                        "interval": row.interval,
                        "p_adjusted": row.p_adjusted,
                        "chance": row.chance,
                        "untrained": row.untrained,
                        "informative": row.informative,
                        "embeddings_alone": [row.bag_a, row.bag_b],
                    }
                    for row in pair.tasks
                }
                for pair in pairs
            },
            "cpus": os.cpu_count(),
        }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
