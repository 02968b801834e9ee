"""The paragraph for a paper: what was done, every run that broke, and whether it was fixed beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.analysis.compare import compare
from orchestrator.analysis.methods import estimand, methods
from orchestrator.cli import main
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ArmDesign, ExtensionRecord, Record
from tests.helpers.demonstration import records
from tests.helpers.ledgers import MASKED, NOISE, around, run, study, write_ledger

FIXED = "was fixed before the first run"
EXTENDED = "The study was extended after it had an answer, so that this one is exploratory"


def said(*extra: Record, **of_study: object) -> str:
    """Of six seeds of each arm, and what else was recorded."""
    history = History.of(ledger(*extra, **of_study))
    return methods(history, compare(history))


def ledger(*extra: Record, **of_study: object) -> list[Record]:
    found: list[Record] = [study(**of_study)]  # type: ignore[arg-type]
    for arm in found[0].design.arms:  # type: ignore[union-attr]
        scores = around(0.45) if arm == "headless" else around(0.4, NOISE[::-1])
        for seed, score in enumerate(scores, 1):
            found += run(arm, seed, score)
    return [*found, *extra]


@pytest.mark.parametrize(
    "changes", [{"confirm.seeds": (6, 8)}, {"cap.tokens": (1e8, 2e8)}, {"resources.workers": (1, 2)}]
)
def test_after_an_extension_it_is_exploratory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, tuple[float, float]]
) -> None:
    """As the answer and each of its pairs are; other machines change nothing."""
    write_ledger(tmp_path, records())
    (tmp_path / "study.yaml").write_text("name: demonstration")
    assert main(["compare", str(tmp_path), "--methods"]) == 0
    before = capsys.readouterr().out
    assert FIXED in before
    assert "exploratory" not in before
    write_ledger(tmp_path, [ExtensionRecord(time=1e9, changes=changes)], segment=2)
    assert main(["compare", str(tmp_path), "--methods"]) == 0
    after = capsys.readouterr().out
    extended = "resources.workers" not in changes
    assert (EXTENDED in after, FIXED in after) == (extended, not extended)
    assert main(["compare", str(tmp_path)]) == 0
    assert ("Exploratory: the study was extended" in capsys.readouterr().out) == extended


def test_an_arm_chosen_among_several_configurations_is_exploratory() -> None:
    others = [record for seed in range(1, 7) for record in run("vanilla", seed, 0.3, configuration={"x": 1})]
    expected = (
        "vanilla is the best of its 2 confirmed configurations, chosen by the values that are compared: its pairs"
    )
    assert expected in said(*others)
    assert "chosen by the values" not in said()


def test_every_run_that_broke_is_named() -> None:
    broken = [*run("vanilla", 7, 0.4, outcome="diverged"), *run("headless", 7, 0.4)]
    lost = [*run("vanilla", 8, 0.4), *run("headless", 8, 0.4, outcome="lost")]
    whole = said(*broken, *lost, seeds=8)
    assert "Seed 7 of vanilla diverged (told so)." in whole
    assert "Seed 8 of headless was lost (told so)." in whole
    assert "headless 7 completed, 1 lost; vanilla 7 completed, 1 diverged" in whole
    assert "Runs that diverged or failed count as the worst model known" in whole


def test_it_says_what_was_searched_measured_and_tested() -> None:
    whole = said()
    assert "We asked: ? 2 arms were compared: headless (headless_mlm, not scored); vanilla (mlm, not scored)." in whole
    assert "Each arm was tuned by a search of 4 times 2.0M tokens" in whole
    assert "was trained for 2.0M tokens with 6 paired seeds: headless 6 completed; vanilla 6 completed." in whole
    assert "The primary measure was accuracy, within a margin of 0.005." in whole
    assert "Student's t over seeds; the held-out text was taken as it is" in whole
    assert "Levels were shared" not in whole
    adaptive = said(seeds=12, minimum_seeds=6)
    assert "with 6 to 12 paired seeds, until the question was answered (Lan & DeMets 1983)" in adaptive


def test_what_the_difference_is_of() -> None:
    """Of two tuned configurations and one corpus: what it does not speak of is said."""
    history = History.of(ledger())
    found = estimand(history.design, compare(history))
    assert "over new seeds on this held-out text, between arms tuned with 4 such budgets each" in found
    assert "it holds for this corpus, this search and this budget" in found
    cut_off = ledger(
        *run("headless", 0, 0.3, phase="search"), *run("vanilla", 0, 0.3, phase="search"), search_budget=40.0
    )
    history = History.of(cut_off)
    assert "tuned with 1 of 40 such budgets each" in estimand(history.design, compare(history))
    assert "a search of 1 of 40 times" in methods(history, compare(history))
    untuned = History.of(ledger(search_budget=0.0))
    assert "between arms as they were set" in estimand(untuned.design, compare(untuned))


def test_pairs_that_a_control_leaves_out_are_told() -> None:
    arms = MASKED | {"other": ArmDesign(objective="mlm", task="masked", headless=False)}
    only = said(arms=arms, control="vanilla")
    assert "Each arm was compared with vanilla alone. Levels were shared by 2 pairs of arms (Bonferroni)." in only
    every = said(arms=arms)
    assert "alone" not in every
    assert "Levels were shared by 3 pairs of arms (Bonferroni)." in every
