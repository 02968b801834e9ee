"""A study that was really trained, without Ray: its folder as a run leaves it, with a ledger of three sessions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from orchestrator.analysis.compare import compare
from orchestrator.config.files import dump_study, freeze, make_study
from orchestrator.config.folder import LEDGER
from orchestrator.config.study import StudySpec
from orchestrator.execution.beginning import begin_session
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import BegunRecord, ComparisonRecord, EndRecord, MeasureRecord, TrialRecord
from orchestrator.planning.machine import Machine
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.trials import PlannedTrial
from orchestrator.session import corpus_record
from tests.helpers.corpus import LENGTH, write_corpus
from tests.helpers.exports import make_tokenizer
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints
from trainables.training.environment import environment
from trainables.training.loop import Trial

SEEDS = 4
FIRST_SESSION = 3
"""Trials of the first of three sessions."""


def spec_of(storage: Path) -> StudySpec:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return make_study(
        {
            "name": "trained",
            "question": "Which one?",
            "corpora": {
                "sources": [{"language": name, "files": f"{name}.txt"} for name in ("en", "fr")],
                "sequence_length": LENGTH,
            },
            "model": {"config": {"model_type": "gpt_neox", **sizes}},
            "training": {"batch_sequences": 8, "learning_rate": 3e-3},
            "arms": {"headless": {"objective": "headless_clm"}, "vanilla": {"objective": "clm"}},
            "budget": {"tokens": 8 * LENGTH * 12},
            "search": {"budget_per_arm": 0},
            "confirm": {"seeds": SEEDS, "evaluations": 2},
            "yardsticks": {"primary": "recovery_mrr", "others": ["perplexity"]},
            "storage": str(storage),
        }
    )


def write_trained_study(storage: Path) -> Path:
    """Its folder."""
    folder = storage / "corpora" / "small"
    corpus = _with_documents(write_corpus(folder, {"en": 40, "fr": 40}))
    make_tokenizer().save_pretrained(folder / "tokenizer")
    assert corpus.token_counts is not None, "they lie beside the shards"
    spec, place = freeze(spec_of(storage)), Location(storage) / "trained"
    (place / "study.yaml").write_bytes(dump_study(spec).encode())
    first = session(spec, place)
    first.record(corpus_record(corpus.folder, spec.corpora))
    train(first, spec, corpus, place, FIRST_SESSION)
    first.close()
    second = session(spec, place)
    train(second, spec, corpus, place, 2 * SEEDS)
    second.close()
    third = session(spec, place)
    with third.phase("compare"):
        third.record(ComparisonRecord(comparison=compare(third.history).to_json()))
    third.close()
    return storage / "trained"


def _with_documents(corpus: PackedCorpus) -> PackedCorpus:
    """Every sequence ends a document."""
    place = Path(corpus.folder.uri)
    manifest = (place / "manifest.json").read_text()
    for file in sorted(place.glob("shards/*/*.npy")):
        before, tokens = checksum(file.read_bytes()), np.load(file)
        tokens[:, -1] = corpus.manifest.separator_token
        np.save(file, tokens)
        manifest = manifest.replace(before, checksum(file.read_bytes()))
    (place / "manifest.json").write_text(manifest)
    return PackedCorpus(corpus.folder)


def session(spec: StudySpec, folder: Location) -> Recorder:
    recorder = Recorder(folder / LEDGER)
    recorder.history.folder = folder
    begin_session(recorder, spec, folder, Machine.here(), on_cluster=False)
    return recorder


def train(recorder: Recorder, spec: StudySpec, corpus: PackedCorpus, folder: Location, most: int) -> None:
    """Confirmation runs, one after the other."""
    with recorder.phase("confirm"):
        phase = ConfirmPhase(spec, recorder.history, str(corpus.folder))
        for _ in range(most):
            planned = None if phase.exhausted() else phase.next()
            if planned is None:
                return
            _train(recorder, planned, corpus, folder)
            phase.ended(recorder.history.trials[planned.trial], "completed")


def _train(recorder: Recorder, planned: PlannedTrial, corpus: PackedCorpus, folder: Location) -> None:
    own = {key: getattr(planned, key) for key in ("phase", "arm", "trial", "attempt")}
    asked = {key: getattr(planned, key) for key in ("number", "seed", "configuration")}
    amount, config = planned.config.budget.amount, planned.config
    recorder.record(TrialRecord(**own, **asked, amount=amount, start_step=0, workers=1))
    stream = TokenStream(corpus, config.seed, config.alpha, config.maximum_repetition)
    trial = Trial(config, stream, Checkpoints(folder / "trials" / config.trial), study_folder=folder)
    floors = trial.measure_floors()
    begun = {
        "step": 0,
        "workers": 1,
        "spent": trial.billing.spent.record(),
        "overhead": {},
        "built": trial.built(),
        "environment": environment(),
        "floors": floors,
    }
    recorder.record(BegunRecord.model_validate(own | begun))
    for report in trial.run():
        recorder.record(MeasureRecord.model_validate(own | json.loads(json.dumps(report.record()["measure"]))))
    recorder.record(EndRecord(**own, outcome="completed", reason=""))
