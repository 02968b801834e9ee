"""No arm is named where none has surely learned more than counting tokens does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.compare import answered, compare
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.records import Outcome, Record
from orchestrator.reporting.glances import glances
from tests.helpers.ledgers import begun, changed, end, measure, spent, study, trial
from trainables.errors import InputError
from trainables.evaluation import Items, Score
from trainables.evaluation.item_scores import items_file, to_parquet
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.state import Built, Floors

PRIMARY, SEEDS, DOCUMENTS, UNTRAINED = "recovery_mrr", 6, 40, 0.001
NOISE = (0.3, -1.2, 0.9, -0.4, 1.1, -0.7)


def written(folder: Path, name: str, *, floors: bool, **values: np.ndarray) -> tuple[str, dict[str, Score]]:
    """A file of the scores of documents of one language, by scorer or table; its digest, and the scores."""
    items = {key: Items(np.arange(DOCUMENTS), value_I, np.ones(DOCUMENTS)) for key, value_I in values.items()}
    content = to_parquet({key: {PRIMARY: {"en": own}} for key, own in items.items()})
    items_file(Location(folder), name, floors=floors).write_bytes(content)
    return checksum(content), {key: Score(overall=own.ratio, languages={"en": own.ratio}) for key, own in items.items()}


def records(
    folder: Path,
    vanilla: float,
    headless: float,
    *,
    unigram: float = 0.06,
    bigram: float = 0.12,
    diverged: Mapping[str, int] | None = None,
    outcome: Outcome = "diverged",
    untrained: Mapping[str, float] | None = None,
    slope: float | None = None,
    fall: float = 0.0,
    seeds: int = SEEDS,
    margin: float = 0.005,
) -> Iterator[Record]:
    """Some seeds of two arms, of which the first so many ``diverged``, or ended otherwise; with a ``slope``, branches
    too. From the fifth seed on vanilla loses a ``fall``."""
    rng = np.random.default_rng(3)
    base_I = 0.01 * rng.standard_normal(DOCUMENTS)
    base_I -= base_I.mean()
    yield study(primary=PRIMARY, others=(), seeds=seeds, margin=margin)
    for place, seed in enumerate(range(1, seeds + 1)):
        for arm, level in (("vanilla", vanilla), ("headless", headless)):
            begin = trial("confirm", arm, place, seed=seed)
            yield begin
            if place == 0:
                noise_I = 0.004 * rng.standard_normal(DOCUMENTS)
                noise_I -= noise_I.mean()
                tables = {"unigram": unigram + base_I + noise_I, "bigram": bigram + base_I - noise_I}
                digest, scores = written(
                    folder, begin.trial, floors=True, untrained=base_I + (untrained or {}).get(arm, UNTRAINED), **tables
                )
                floors = Floors(
                    untrained={PRIMARY: scores["untrained"]},
                    tables={name: {PRIMARY: scores[name]} for name in tables},
                    items=digest,
                )
                yield begun(begin, floors=floors)
            if diverged is not None and place < diverged.get(arm, 0):
                yield end(begin, outcome, reason="told so")
                continue
            level -= fall if arm == "vanilla" and seed >= 5 else 0.0
            value_I = level + 0.0005 * NOISE[(place + len(arm)) % len(NOISE)] + base_I
            digest, scores = written(folder, begin.trial, floors=False, head=value_I)
            amounts = spent(tokens=begin.amount, flops=1e12, hardware_flops=1e12, device_seconds=9.0, wall_seconds=9.0)
            for step, progress in enumerate((0.25, 0.5, 0.75), 1):
                on_the_way = Score(overall=0.9 * level * progress, languages={"en": 0.9 * level * progress})
                yield measure(begin, step, progress, scores={PRIMARY: on_the_way}, scorer="head")
            report = {"scores": {PRIMARY: scores["head"]}, "spent": amounts, "scorer": "head", "items": digest}
            yield measure(begin, 5, 1.0, **report)
            yield end(begin)
            for share in (0.25, 0.5) if slope is not None else ():
                branch = trial("anytime", arm, place, name=f"anytime-{arm}-{place}-{share}", seed=seed, share=share)
                score = scores["head"].overall + slope * math.log(share)
                yield from (branch, measure(branch, 1, 1.0, scores={PRIMARY: score}), end(branch))


def compared(folder: Path, vanilla: float, headless: float, **tables: float) -> Comparison:
    return compare(History.of(records(folder, vanilla, headless, **tables), Location(folder)))


def test_a_difference_below_the_constant_names_nobody(tmp_path: Path) -> None:
    """Two models that say next to nothing differ surely, and that says nothing."""
    comparison = compared(tmp_path, 0.055, 0.045)
    (pair,) = comparison.pairs
    assert pair.yardsticks[PRIMARY].p < 0.001
    assert (pair.verdict, pair.more_seeds, pair.more_text) == ("undecided", None, None)
    said = verdict_in_words(comparison)
    assert "Neither is surely above what counting single tokens comes to (0.060), so neither can be named." in said
    assert "would settle" not in said


@pytest.mark.parametrize("level", [0.06, 0.05])
def test_two_arms_that_say_the_same_token_everywhere_are_not_equivalent(tmp_path: Path, level: float) -> None:
    """They are as alike as can be, and have learned nothing."""
    comparison = compare(History.of(records(tmp_path, level, level, margin=0.02), Location(tmp_path)))
    (pair,) = comparison.pairs
    low, high = pair.yardsticks[PRIMARY].interval
    assert -0.02 < low < high < 0.02, "the check is blind"
    assert (pair.verdict, pair.withheld, pair.more_seeds) == ("undecided", "floor", None)
    assert "Neither is surely above what counting single tokens comes to" in verdict_in_words(comparison)
    learned = compared(tmp_path / "learned", level + 0.2, level + 0.2, margin=0.02)
    assert learned.pairs[0].verdict == "equivalent"


def test_one_arm_above_the_constant_is_named_and_what_it_has_not_learned_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.075, 0.045)
    assert comparison.pairs[0].verdict == "vanilla"
    assert comparison.arms["vanilla"].floors["unigram"].above
    assert not comparison.arms["headless"].floors["unigram"].above
    said = verdict_in_words(comparison)
    assert "Neither is surely above what counting pairs of neighbours comes to (0.120)" in said
    assert "neither has learned much at this budget" in said


def test_above_both_nothing_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.2, 0.15)
    assert comparison.pairs[0].verdict == "vanilla"
    assert "counting" not in verdict_in_words(comparison)


def test_whether_an_arm_is_above_counts_seeds_and_text(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.0612, 0.045)
    floor = comparison.arms["vanilla"].floors["unigram"]
    assert floor.value == pytest.approx(0.06)
    history = History.of(records(tmp_path, 0.0612, 0.045), Location(tmp_path))
    values = [run.measures[-1].yardsticks[PRIMARY].overall for run in history.trials_of("confirm", "vanilla")]
    assert floor.difference == pytest.approx(np.mean(values) - 0.06)
    alone = stats.t.interval(0.95, SEEDS - 1, np.mean(values) - 0.06, stats.sem(values))
    assert alone[0] > 0, "by its seeds alone it is above"
    assert floor.interval[1] - floor.interval[0] > 1.5 * (alone[1] - alone[0])
    assert floor.interval[0] < 0


def test_floors_whose_file_is_gone_are_refused(tmp_path: Path) -> None:
    history = History.of(records(tmp_path, 0.2, 0.15), Location(tmp_path))
    items_file(Location(tmp_path), "confirm-vanilla-000", floors=True).delete()
    with pytest.raises(InputError, match="confirm-vanilla-000"):
        compare(history)


def test_a_study_that_measured_none_is_judged_without(tmp_path: Path) -> None:
    found = [record for record in records(tmp_path, 0.055, 0.045) if record.kind != "begun"]
    comparison = compare(History.of(found, Location(tmp_path)))
    assert comparison.arms["vanilla"].floors == {}
    assert comparison.pairs[0].verdict == "vanilla"


@pytest.mark.parametrize("outcome", ["diverged", "failed"])
def test_an_arm_that_breaks_at_most_seeds_does_not_win_by_the_others(tmp_path: Path, outcome: Outcome) -> None:
    """It is better wherever it comes to its end."""
    found = records(tmp_path, 0.2, 0.25, diverged={"headless": 4}, outcome=outcome)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    row = pair.yardsticks[PRIMARY]
    expected = [UNTRAINED - 0.2] * 4 + [0.05] * 2
    assert row.n == SEEDS
    assert row.difference == pytest.approx(np.mean(expected), abs=2e-3)
    assert pair.verdict != "headless"
    assert pair.missing == ()
    assert [gap.seed for gap in pair.broken] == [1, 2, 3, 4]
    first = verdict_in_words(comparison).split(". ")[0]
    assert f"n = 6 seeds (headless {outcome} at 4 of 6, which counts as the worst model known)" in first


@pytest.mark.parametrize("outcome", ["diverged", "failed"])
@pytest.mark.parametrize("broken", ["headless", "vanilla"])
def test_one_run_that_breaks_leaves_a_win_possible(tmp_path: Path, broken: str, outcome: Outcome) -> None:
    """Of six seeds; also of the arm that wins, whose run counts as the worst."""
    found = records(tmp_path, 0.07, 0.3, diverged={broken: 1}, outcome=outcome)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    row = pair.yardsticks[PRIMARY]
    assert (pair.verdict, row.n, len(pair.broken)) == ("headless", SEEDS, 1)
    of_broken = UNTRAINED - 0.07 if broken == "headless" else 0.3 - UNTRAINED
    assert row.difference == pytest.approx((5 * 0.23 + of_broken) / 6, abs=2e-3)
    assert f"{broken} {outcome} at 1 of 6" in verdict_in_words(comparison)


@pytest.mark.parametrize("diverged", [14, 11, 10])
def test_an_arm_is_named_only_if_it_comes_to_its_end_at_half_of_its_seeds(tmp_path: Path, diverged: int) -> None:
    """Of twenty, against one that knows hardly more than before training: nothing is lost by diverging."""
    found = records(tmp_path, 0.002, 0.25, diverged={"headless": diverged}, unigram=0.0005, seeds=20)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    assert pair.yardsticks[PRIMARY].p_adjusted < 0.05, "the check is blind"
    assert comparison.arms["headless"].floors["unigram"].above
    expected = ("headless", None) if diverged == 10 else ("undecided", "broken")
    assert (pair.verdict, pair.withheld) == expected
    said = verdict_in_words(comparison)
    assert f"headless diverged at {diverged} of 20, which counts as the worst model known" in said
    assert ("diverges or fails at more than half of its seeds is not named" in said) == (diverged > 10)


@pytest.mark.parametrize(("headless", "vanilla", "seeds"), [(1, 0, 20), (2, 1, 20), (11, 11, 20), (1, 1, 6)])
def test_arms_that_break_more_or_less_often_are_not_equivalent(
    tmp_path: Path, headless: int, vanilla: int, seeds: int
) -> None:
    """Nor two that break at most seeds, or of which too few others are left. With a margin for any of it."""
    found = records(tmp_path, 0.2, 0.2, diverged={"headless": headless, "vanilla": vanilla}, seeds=seeds, margin=0.9)
    (pair,) = compare(History.of(found, Location(tmp_path))).pairs
    assert (pair.verdict, pair.withheld) == ("undecided", "broken")
    alike = records(tmp_path / "alike", 0.2, 0.2, diverged={"headless": 2, "vanilla": 2}, seeds=20, margin=0.02)
    (pair,) = compare(History.of(alike, Location(tmp_path / "alike"))).pairs
    assert (pair.verdict, pair.withheld) == ("equivalent", None)


def test_what_was_lost_counts_against_nobody_and_is_said(tmp_path: Path) -> None:
    """A variant tells what it would be as failures."""
    found = list(records(tmp_path, 0.2, 0.25, diverged={"headless": 1}, outcome="lost"))
    (waiting,) = compare(History.of(found, Location(tmp_path))).pairs
    assert (waiting.pending, waiting.verdict) == (1, "undecided"), "a spare seed is to come"
    found[0] = study(primary=PRIMARY, others=(), seeds=5)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    assert (pair.yardsticks[PRIMARY].n, pair.broken, [gap.seed for gap in pair.missing]) == (5, (), [1])
    assert pair.verdict == "headless"
    assert "Seed 1 is missing: headless was lost (told so)." in verdict_in_words(comparison)
    (variant,) = (variant for variant in pair.variants if variant.name == "with lost runs as broken ones")
    assert variant.verdict == "undecided"


def test_arms_that_diverge_differently_are_not_equivalent(tmp_path: Path) -> None:
    for diverged, verdict in (
        ({}, "equivalent"),
        ({"headless": 6}, "vanilla"),
        ({"headless": 6, "vanilla": 6}, "undecided"),
    ):
        folder = tmp_path / str(len(diverged) + sum(diverged.values()))
        found = list(records(folder, 0.2, 0.2, diverged=diverged))
        found[0] = study(primary=PRIMARY, others=(), margin=0.02)
        (pair,) = compare(History.of(found, Location(folder))).pairs
        assert pair.verdict == verdict, diverged


def test_what_diverged_is_missing_where_nothing_was_measured_before(tmp_path: Path) -> None:
    found = [record for record in records(tmp_path, 0.2, 0.25, diverged={"headless": 1}) if record.kind != "begun"]
    (pair,) = compare(History.of(found, Location(tmp_path))).pairs
    assert (pair.yardsticks[PRIMARY].n, len(pair.missing), pair.broken) == (5, 1, ())


@pytest.mark.parametrize(
    ("slope", "times"),
    [(0.03, math.exp(0.045 / 0.03)), (0.0075, math.exp(0.045 / 0.0075)), (0.0, None), (-0.03, None), (0.001, None)],
)
def test_the_budget_that_would_do_follows_the_trend(tmp_path: Path, slope: float, times: float | None) -> None:
    comparison = compared(tmp_path, 0.075, 0.045, slope=slope)
    floor = comparison.arms["vanilla"].floors["bigram"]
    said = verdict_in_words(comparison)
    if times is None:
        assert (floor.times_budget, floor.trend) == (None, None)
        assert "times the budget" not in said
    else:
        assert floor.trend == "branches"
        assert floor.times_budget == pytest.approx(times, rel=0.01)
        number = "4.5" if slope == 0.03 else "400"  # never 4e+02
        assert f"By the trend of its branches vanilla would be at {number} times the budget." in said
    assert comparison.arms["vanilla"].floors["unigram"].times_budget is None, "it is above"


def test_without_branches_the_runs_course_tells_a_budget_below_which_it_would_not_do(tmp_path: Path) -> None:
    """Its points at a half, three quarters and the end, by least squares on the logarithm of the share."""
    comparison = compared(tmp_path, 0.075, 0.045)
    points = [(math.log(0.5), 0.9 * 0.075 * 0.5), (math.log(0.75), 0.9 * 0.075 * 0.75), (0.0, 0.075)]
    middle = sum(x for x, _ in points) / 3
    slope = sum((x - middle) * y for x, y in points) / sum((x - middle) ** 2 for x, _ in points)
    floor = comparison.arms["vanilla"].floors["bigram"]
    assert floor.trend == "course"
    assert floor.times_budget == pytest.approx(math.exp(0.045 / slope), rel=1e-3)
    assert "By the course of its runs vanilla would be at no less than 2.2 times the budget." in verdict_in_words(
        comparison
    )


def test_an_arm_that_is_there_in_the_mean_alone_is_told_rather_than_a_budget_for_the_other(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.075, 0.1201, slope=0.03)
    (pair,) = comparison.pairs
    assert list(pair.below) == ["bigram"]
    said = verdict_in_words(comparison)
    assert "headless is above it in the mean alone: more seeds or a larger budget would tell." in said
    assert "times the budget" not in said


def test_that_more_is_to_come_is_told_before_what_bars_a_verdict(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.075, 0.045)
    (pair,) = comparison.pairs
    waiting = pair.model_copy(update={"withheld": "boundary", "pending": 2, "verdict": "undecided"})
    (glance,) = glances(comparison.model_copy(update={"pairs": (waiting,)}))
    assert glance.verdict.startswith("undecided so far (")


def test_an_arm_does_not_win_by_what_its_model_knew_before_training(tmp_path: Path) -> None:
    """Headless models begin with the prior: a run that diverges is worth the worst model known, of either arm."""
    untrained = {"headless": 0.19, "vanilla": UNTRAINED}
    found = records(tmp_path, 0.17, 0.2, diverged={"headless": 5}, untrained=untrained)
    (pair,) = compare(History.of(found, Location(tmp_path))).pairs
    assert pair.yardsticks[PRIMARY].difference == pytest.approx((5 * (UNTRAINED - 0.17) + 0.03) / 6, abs=2e-3)
    assert pair.verdict != "headless"


@pytest.mark.parametrize("lower", [False, True])
def test_the_other_of_an_arm_that_diverges_is_named(tmp_path: Path, lower: bool) -> None:
    floor = dict.fromkeys(("headless", "vanilla"), 0.95 if lower else UNTRAINED)
    unigram = 0.9 if lower else 0.06
    found = list(records(tmp_path, 0.2, 0.25, diverged={"headless": 6}, untrained=floor, unigram=unigram))
    found[0] = study(primary=PRIMARY, others=(), lower_is_better=(PRIMARY,) if lower else ())
    (pair,) = compare(History.of(found, Location(tmp_path))).pairs
    assert (pair.verdict, pair.withheld) == ("vanilla", None)


def test_two_runs_that_diverged_are_equal(tmp_path: Path) -> None:
    found = records(tmp_path, 0.2, 0.25, diverged={"headless": 1, "vanilla": 1})
    (pair,) = compare(History.of(found, Location(tmp_path))).pairs
    assert pair.yardsticks[PRIMARY].difference == pytest.approx(0.05 * 5 / 6, abs=2e-3)
    matched = pair.matched["tokens"]
    assert (matched.n, matched.annealed) == (5, True)
    assert matched.difference == pytest.approx(0.05, abs=2e-3), "of those that came to the end"
    assert matched.interval[0] > 0.04, "and so is its interval"


def test_a_settled_verdict_stands_whatever_comes_after(tmp_path: Path) -> None:
    """An arm that was above its floors at the look that settled it falls below them later."""
    found = list(records(tmp_path, 0.075, 0.055, fall=0.06))
    found[0] = study(primary=PRIMARY, others=(), minimum_seeds=4, seeds=6)
    history = History.of(found, Location(tmp_path))
    assert answered(history)
    (pair,) = compare(history).pairs
    assert (pair.verdict, pair.yardsticks[PRIMARY].n, list(pair.below)) == ("vanilla", 4, ["bigram"])
    assert not compare(history).arms["vanilla"].floors["unigram"].above, "over all six"


def test_adaptive_stopping_goes_on_below_the_floors(tmp_path: Path) -> None:
    """What the answer will not name does not end the study either."""
    found = [r for r in records(tmp_path, 0.055, 0.045) if getattr(r, "trial", "0") < "confirm-vanilla-004"]
    found = [r for r in found if getattr(r, "trial", "").rpartition("-")[2] not in ("004", "005")]
    found[0] = study(primary=PRIMARY, others=(), minimum_seeds=4, seeds=6)
    history = History.of(found, Location(tmp_path))
    assert not answered(history)
    assert compare(history).pairs[0].pending == 2


def test_chance_is_a_floor_where_it_is_known(tmp_path: Path) -> None:
    """Of two twins either is likelier: tables that are below a half bar nobody."""
    found = list(records(tmp_path, 0.45, 0.4))
    primary = "minimal_pair_accuracy"
    renamed = [type(record).model_validate_json(record.model_dump_json().replace(PRIMARY, primary)) for record in found]
    (pair,) = compare(History.of(renamed)).pairs
    assert (pair.verdict, pair.withheld, pair.below) == ("undecided", "floor", {"chance": 0.5})
    assert "Neither is surely above what chance comes to (0.500)" in verdict_in_words(compare(History.of(renamed)))


def test_what_is_above_a_floor_by_rounding_is_not_above_it(tmp_path: Path) -> None:
    primary, guessed = "minimal_pair_accuracy", Score(overall=1.1 - 0.6, languages={})
    assert guessed.overall > 0.5, "the check is blind"
    found = [
        type(record).model_validate_json(record.model_dump_json().replace(PRIMARY, primary))
        for record in records(tmp_path, 0.45, 0.4)
    ]
    for number, record in enumerate(found):
        if record.kind == "measure" and record.arm == "vanilla" and record.progress == 1.0:
            found[number] = changed(record, yardsticks={primary: guessed})
    comparison = compare(History.of(found))
    assert not comparison.arms["vanilla"].floors["chance"].above
    assert (comparison.pairs[0].verdict, comparison.pairs[0].withheld) == ("undecided", "floor")


def test_arms_on_both_sides_of_a_floor_are_not_equivalent(tmp_path: Path) -> None:
    """Whatever the margin: their difference, which is sure, is named."""
    found = list(records(tmp_path, 0.075, 0.055))
    found[0] = study(primary=PRIMARY, others=(), margin=0.03)
    comparison = compare(History.of(found, Location(tmp_path)))
    assert comparison.arms["vanilla"].floors["unigram"].above
    assert not comparison.arms["headless"].floors["unigram"].above
    assert comparison.pairs[0].verdict == "vanilla"


def test_what_is_barred_has_no_variants(tmp_path: Path) -> None:
    (pair,) = compared(tmp_path, 0.055, 0.045).pairs
    assert (pair.withheld, pair.variants) == ("floor", ())
    (pair,) = compared(tmp_path / "learned", 0.2, 0.15).pairs
    assert {variant.name for variant in pair.variants} >= {
        "by the even half of the text",
        "by the odd half of the text",
    }


def test_what_else_differs_is_named(tmp_path: Path) -> None:
    found = list(records(tmp_path, 0.2, 0.15))
    parameters = {"vanilla": 908_800, "headless": 652_800}
    for number, record in enumerate(found):
        if record.kind == "begun":
            built = Built(parameters=parameters[record.arm], device="cpu", precision="float32")
            found[number] = record.model_copy(update={"built": built})
        if record.kind == "measure" and record.arm == "headless":
            spending = dict(record.spent) | {"flops": 0.8 * record.spent["flops"]}
            found[number] = record.model_copy(update={"spent": spending})
    said = verdict_in_words(compare(History.of(found, Location(tmp_path))))
    expected = "Between them differ too: parameters 908,800 against 652,800, 1.0 TFLOP a run against 800 GFLOP"
    assert f"{expected} (vanilla against headless)." in said


def test_a_floor_that_bars_at_the_level_of_its_look_is_the_one_that_is_told(tmp_path: Path) -> None:
    """Surely above it at 5%, and not at the level of the last of three looks, which is what was asked."""
    found = list(records(tmp_path, 0.0612, 0.045))
    found[0] = study(primary=PRIMARY, others=(), minimum_seeds=4, seeds=6)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    assert comparison.arms["vanilla"].floors["unigram"].above, "the check is blind"
    assert (pair.verdict, pair.withheld, list(pair.below)) == ("undecided", "floor", ["unigram", "bigram"])
    said = verdict_in_words(comparison)
    assert "Neither is surely above what counting single tokens comes to (0.060), so neither can be named." in said


def test_seeds_beyond_the_look_are_counted_beside_runs_that_broke(tmp_path: Path) -> None:
    found = list(records(tmp_path, 0.2, 0.25, diverged={"vanilla": 2}, seeds=12))
    found[0] = study(primary=PRIMARY, others=(), minimum_seeds=6, seeds=12)
    comparison = compare(History.of(found, Location(tmp_path)))
    (pair,) = comparison.pairs
    assert (pair.verdict, pair.yardsticks[PRIMARY].n) == ("headless", 10)
    assert "2 more seeds ran beside it" in verdict_in_words(comparison)
