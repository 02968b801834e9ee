"""Margins that held-out text can resolve, against documents drawn again and again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import special

from orchestrator.config.files import load_study
from orchestrator.planning.resolution import require_resolvable, resolution_of
from tests.helpers.corpus import write_corpus
from trainables.errors import InputError

SETTINGS = ["yardsticks.primary=recovery_accuracy", "yardsticks.evaluation.sequences_per_language=1000"]


def by_drawing_documents(folder: Path) -> float:
    """Standard error over documents of how often a pair's commonest follower comes, less the commonest token."""
    train, test = (np.load(folder / f"shards/{split}/en-00000.npy").astype(int) for split in ("train", "test"))
    alone_V = np.bincount(train.ravel(), minlength=200)
    follows_VV = np.zeros((200, 200))
    np.add.at(follows_VV, (train[:, :-1].ravel(), train[:, 1:].ravel()), 1.0)
    follows_VV += 1e-3 * alone_V / alone_V.sum()
    before, token = test[:, :-1], test[:, 1:]
    gain_N = ((follows_VV.argmax(1)[before] == token).mean(1) - (alone_V.argmax() == token).mean(1)).astype(float)
    rng = np.random.default_rng(0)
    return float(np.std([rng.choice(gain_N, len(gain_N)).mean() for _ in range(4000)]))


def test_what_the_text_leaves_uncertain(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"en": 1200}, separated=True)
    spec = load_study("demo", SETTINGS)
    found = resolution_of(spec, corpus)
    assert found is not None
    assert found.error == pytest.approx(by_drawing_documents(tmp_path), rel=0.05)
    quantile = special.ndtri(1 - 0.85 * 0.05)
    assert found.hopeless == pytest.approx(quantile * found.error / 2)
    # Two equal arms: a normal difference of this error is inside the margin by the quantile in four of five draws.
    drawn = found.error * np.random.default_rng(1).standard_normal(200_000)
    assert np.mean(np.abs(drawn) + quantile * found.error <= found.enough) == pytest.approx(0.8, abs=0.01)


def test_a_margin_that_text_cannot_resolve_is_refused_and_the_remedy_holds(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"en": 1200}, separated=True)
    found = resolution_of(load_study("demo", SETTINGS), corpus)
    assert found is not None

    def said(margin: float) -> str:
        return require_resolvable(load_study("demo", [*SETTINGS, f"confirm.margin={margin}"]), corpus)

    with pytest.raises(InputError, match="cannot resolve a margin") as raised:
        said(0.9 * found.hopeless)
    assert "asks much" in said(1.1 * found.hopeless)
    remedy = float(raised.value.remedy.split("confirm.margin=")[1].split(",")[0])
    assert said(1.05 * remedy) == ""
    assert require_resolvable(load_study("demo", SETTINGS), corpus) == "", "a margin that the runs imply"


def test_what_tables_do_not_tell_refuses_nothing(tmp_path: Path) -> None:
    """Their perplexities are of another size than a model's."""
    spec = load_study("demo", ["yardsticks.primary=perplexity", "confirm.margin=1e-9"])
    assert require_resolvable(spec, write_corpus(tmp_path, {"en": 1200}, separated=True)) == ""
