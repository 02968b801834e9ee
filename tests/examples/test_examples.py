"""The scripts of ``examples/`` do what they say, each in a folder of its own and with short settings."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path

import pytest

from orchestrator import Results
from tests.helpers.repository import REPOSITORY
from tests.helpers.study import patient

pytestmark = pytest.mark.timeout(1800)

EXAMPLES = REPOSITORY / "examples"
SHORT = (
    "budget.tokens=20000",
    "search.budget_per_arm=1",
    "search.halving.rungs=1",
    "confirm.seeds=2",
    "confirm.describe_only=true",
)
WORDS = [
    "the",
    "a",
    "house",
    "river",
    "bird",
    "child",
    "stone",
    "old",
    "red",
    "sees",
    "takes",
    "loves",
    "near",
    "under",
]


def example(name: str, *arguments: str, folder: Path) -> str:
    """What an example prints, run in a folder as a user would."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = patient(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == {"own_text.py", "read_results.py", "plain_loop.py"}
    assert {file.name for file in EXAMPLES.glob("*.ipynb")} == {"notebook.ipynb"}  # in test_notebook.py


@pytest.fixture(scope="module")
def own_text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the study of someone's text ran, and what was printed."""
    folder, rng = tmp_path_factory.mktemp("own"), random.Random(0)
    documents = [" ".join(rng.choices(WORDS, k=60)) + f" {number}." for number in range(600)]
    for part in range(2):
        (folder / f"part-{part}.txt").write_text("\n\n".join(documents[part::2]))
    vocabulary = "tokenizer.train.vocabulary_size=320"
    return folder, example("own_text.py", "part-*.txt", vocabulary, *SHORT, folder=folder)


@pytest.mark.slow
def test_own_text(own_text: tuple[Path, str]) -> None:
    folder, printed = own_text
    results = Results(str(folder / "studies" / "own-text"))
    assert results.history.finished
    assert results.verdict in printed
    assert printed.count("completed") == len(results.trials) >= 6
    assert "reading the text" in printed, "it says what is done before the first trial"


@pytest.mark.slow
def test_read_results(own_text: tuple[Path, str]) -> None:
    folder, _ = own_text
    printed = example("read_results.py", "studies/own-text", folder=folder)
    results = Results(str(folder / "studies" / "own-text"))
    assert results.verdict in printed
    for arm in ("headless", "vanilla"):
        assert f"{arm} ({results.history.design.arms[arm].objective}): {results.best(arm)}" in printed
    (row,) = results.comparison.query("yardstick == 'bits_per_byte'").to_dict("records")
    assert f"{row['difference']:.6f}"[:7] in printed


@pytest.mark.slow
def test_plain_loop(tmp_path: Path) -> None:
    printed = example("plain_loop.py", "100", folder=tmp_path)
    losses = {int(step): float(loss) for step, loss in re.findall(r"step +(\d+)  loss ([\d.]+)", printed)}
    assert list(losses) == [20, 40, 60, 80, 100]
    assert losses[100] < 0.85 * losses[20]
