"""The main job on real text: every language of a corpus, encoder and decoder arms, at equal FLOPs.

The folder named by ``H2H_TEST_DATA`` holds ``corpus/LANGUAGE.jsonl.gz`` with a ``text`` and a ``doc_id`` column. Prints
the study's table and verdicts; its last line is one JSON object. ``--storage`` keeps the study; ``--flops`` and
``--seeds`` make it smaller.
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


def study(corpus: Path, flops: float, seeds: int) -> dict[str, Any]:
    """A study of the corpus: four arms, two for each task."""
    sources = [
        {"language": file.name.split(".")[0], "files": str(file), "id_column": "doc_id"}
        for file in sorted(corpus.glob("*.jsonl.gz"))
    ]
    return {
        "name": "multilingual",
        "question": "At equal FLOPs, does dropping the vocabulary head pay off for encoders and for decoders?",
        "corpora": {"sources": sources, "alpha": 0.5, "sequence_length": 64},
        "tokenizer": {"train": {"type": "unigram", "vocabulary_size": 16000, "sample_bytes": 4_000_000}},
        "model": {"shape": "tiny"},
        "training": {"batch_sequences": 16, "learning_rate": 3e-3},
        "arms": {name: {"objective": name} for name in ("headless_mlm", "mlm", "headless_clm", "clm")},
        "budget": {"flops": flops},
        "search": {"budget_per_arm": 3},
        "confirm": {"seeds": seeds},
        "yardsticks": {"evaluation": {"sequences_per_language": 16}},
    }


def largest_mix_error(results: Results) -> float:
    """Largest difference between a language's realised and target share of the data, over all confirm runs."""
    assert results.history.corpus is not None
    target = {name: entry.target_share for name, entry in results.history.corpus.languages.items()}
    errors = []
    for trial in results.history.trials_of("confirm"):
        mix = trial.measures[-1].mix
        total = sum(mix.values())
        errors += [abs(mix[name] / total - share) for name, share in target.items()]
    return max(errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", type=Path)
    parser.add_argument("--flops", type=float, default=2.2e12, help="of each trial")
    parser.add_argument("--seeds", type=int, default=7)
    options = parser.parse_args()
    data = os.environ.get("H2H_TEST_DATA")
    if not data:
        sys.exit("set H2H_TEST_DATA to the folder that holds corpus/LANGUAGE.jsonl.gz")
    with tempfile.TemporaryDirectory() as scratch:
        storage = options.storage or Path(scratch)
        storage.mkdir(parents=True, exist_ok=True)
        file = storage / "multilingual.yaml"
        file.write_text(json.dumps(study(Path(data) / "corpus", options.flops, options.seeds)))  # JSON is YAML
        start = time.perf_counter()
        code = h2h(["run", str(file), "--set", f"storage={storage}"])
        seconds = time.perf_counter() - start
        if code:
            return code
        results = Results(str(storage / "multilingual"))
        assert results.history.corpus is not None
        figures = {
            "seconds": round(seconds, 1),
            "languages": len(results.history.corpus.languages),
            "largest_mix_error": largest_mix_error(results),
            "verdicts": {f"{p.a} / {p.b}": p.verdict for p in answer_of(results.history).comparison.pairs},
            "cpus": os.cpu_count(),
        }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
