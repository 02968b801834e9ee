"""A study on real text, exported, and judged again by plain transformers in a process that has none of our code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from orchestrator.cli import main
from orchestrator.reporting.results import Results
from trainables.corpora.stream.packed import PackedCorpus
from trainables.evaluation.held_out import HELD_OUT_SEED
from trainables.hashing import permute
from trainables.objectives.corruption import masked_positions
from trainables.storage import Location

TEXT = Path(os.environ.get("H2H_TEST_DATA", "/nowhere")) / "corpus"

JUDGE = """
import importlib.abc, json, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("trainables", "orchestrator", "search_spaces", "cluster"):
            raise ImportError(f"{name} is not for the reader of a model")
sys.meta_path.insert(0, Refuse())
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline
held_out = np.load(sys.argv[1])
masked = "masked" in held_out
for folder in sys.argv[2:]:
    model = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ranks = []
    for tokens, positions in zip(held_out["tokens"], held_out["positions"]):
        shown = tokens.copy()
        if masked:
            shown[positions] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(torch.from_numpy(shown)[None]).logits[0]
        for position in positions:
            scores = logits[position if masked else position - 1]
            ranks.append(int((scores >= scores[tokens[position]]).sum()))
    ranks = np.array(ranks)
    said = pipeline("fill-mask" if masked else "text-generation", model=folder)(
        f"The {tokenizer.mask_token} of the house" if masked else "The house",
        **({} if masked else {"max_new_tokens": 4}))
    print(json.dumps({"right": (ranks == 1).mean(), "reciprocal": (1 / ranks).mean(), "said": len(said)}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.is_dir(), reason="H2H_TEST_DATA names no folder with corpus/")
@pytest.mark.parametrize("task", ["masked", "causal"])
def test_plain_transformers_reproduces_the_yardsticks(tmp_path, monkeypatch, capsys, task):
    monkeypatch.chdir(tmp_path)
    kind = "mlm" if task == "masked" else "clm"
    study = {
        "name": "real",
        "corpora": {
            "sources": [{"language": "en", "files": str(TEXT / "en.jsonl.gz")}],
            "sequence_length": 64,
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "tokenizer": {"train": {"type": "bpe", "vocabulary_size": 2000, "sample_bytes": 300_000}},
        "model": {"shape": "tiny"},
        "training": {"batch_sequences": 32, "learning_rate": 2e-3},
        "arms": {
            "bare": {"objective": f"headless_{kind}"},
            "restored": {
                "objective": f"headless_{kind}",
                "training": {"restoration": {"share": 0.2, "learning_rate": 2e-3}},
            },
            "vanilla": {"objective": kind},
        },
        "budget": {"steps": 100},
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 1, "describe_only": True, "evaluations": 1},
        "yardsticks": {
            "primary": "recovery_accuracy",
            "others": ["recovery_mrr", "bits_per_byte"],
            "evaluation": {"sequences_per_language": 64},
        },
    }
    Path("study.yaml").write_text(yaml.safe_dump(study))
    assert main(["run", "study.yaml", "--plain"]) == 0
    results = Results("studies/real")
    assert results.history.corpus is not None
    corpus = PackedCorpus(Location(f"studies/corpora/{results.history.corpus.fingerprint}"))
    number_N = permute(np.arange(64), corpus.sequences("test", "en"), HELD_OUT_SEED)
    tokens = corpus.take("test", "en", number_N).astype(np.int64)
    special = corpus.manifest.special_tokens
    positions = masked_positions(tokens, number_N, HELD_OUT_SEED, 0.15, special)
    if task == "causal":
        positions = np.tile(np.arange(1, 64), (64, 1))
    held_out = {"tokens": tokens, "positions": positions, **({"masked": np.ones(1)} if task == "masked" else {})}
    np.savez("held-out.npz", **held_out)
    for arm in study["arms"]:
        assert main(["export", "studies/real", "--arm", arm, "--to", arm]) == 0
    folders = [str(tmp_path / arm) for arm in study["arms"]]
    command = [sys.executable, "-I", "-c", JUDGE, str(tmp_path / "held-out.npz"), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    judged = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for arm, found in zip(study["arms"], judged, strict=True):
        (trial,) = results.history.trials_of("confirm", arm)
        scores = trial.measures[-1].yardsticks
        assert found["right"] == pytest.approx(scores["recovery_accuracy"].overall, abs=1e-5)
        assert found["reciprocal"] == pytest.approx(scores["recovery_mrr"].overall, abs=1e-5)
        chance = np.mean(1 / np.arange(1, 2001))
        assert scores["recovery_mrr"].overall > 4 * chance
        assert trial.measures[-1].scorer == ("embedding+unigram" if arm == "bare" else "head")
        assert 0 < scores["bits_per_byte"].overall < 8
        assert found["said"]
        assert "recovery_accuracy" in (tmp_path / arm / "README.md").read_text()
    capsys.readouterr()
