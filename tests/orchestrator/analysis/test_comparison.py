"""The rules of the comparison, each hit by a ledger made for it."""

import json
from collections.abc import Mapping
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from orchestrator import formatting
from orchestrator.analysis.compare import answered, compare
from orchestrator.analysis.comparison import Comparison, Counts, Failures, Gap, Matched, Stopping
from orchestrator.analysis.selection import chosen_runs
from orchestrator.analysis.statistics.evidence import of_seeds
from orchestrator.analysis.statistics.planning import minimum_detectable_effect
from orchestrator.analysis.statistics.rule import Rule
from orchestrator.analysis.statistics.tuning_curves import tuning_curve
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ArmDesign, EndRecord, MeasureRecord, StudyRecord
from orchestrator.reporting.panels import pair_panel
from orchestrator.reporting.result_tables import comparison_table
from tests.helpers.ledgers import MASKED, NOISE, around, cap, changed, phase, run, run_with_branches, study
from trainables.errors import InputError
from trainables.evaluation import Score

CAUSAL = {"next": ArmDesign(objective="clm", task="causal", headless=False)}


def history(scores: Mapping[str, tuple[float, ...]], *extra, **of_study) -> History:
    records = [study(**of_study)]
    for arm, values in scores.items():
        for seed, value in enumerate(values, 1):
            records += run(arm, seed, value)
    for more in extra:
        records += more
    return History.of(records)


def only_pair(comparison):
    (pair,) = comparison.pairs
    return pair


@pytest.mark.parametrize(
    ("headless", "verdict"), [(0.45, "headless"), (0.35, "vanilla"), (0.401, "equivalent"), (0.404, "undecided")]
)
def test_each_verdict(headless, verdict):
    noise = [5 * n for n in NOISE] if verdict == "undecided" else NOISE
    comparison = compare(history({"vanilla": (0.4,) * 6, "headless": around(headless, noise)}))
    pair = only_pair(comparison)
    assert (pair.a, pair.b) == ("headless", "vanilla")  # the headless arm is named first, whatever the order
    assert pair.verdict == verdict
    row = pair.yardsticks["accuracy"]
    assert row.n == 6
    assert row.difference == pytest.approx(row.mean_a - row.mean_b)
    assert row.interval[0] <= row.difference <= row.interval[1]
    assert (pair.more_seeds or 0) > 0 if verdict == "undecided" else pair.more_seeds == 0
    assert Comparison.from_json(json.loads(json.dumps(comparison.to_json(), allow_nan=False))) == comparison


def test_a_sure_but_tiny_difference_is_no_win():
    pair = only_pair(compare(history({"headless": (0.402,) * 6, "vanilla": around(0.4, [n / 10 for n in NOISE])})))
    assert pair.yardsticks["accuracy"].p_adjusted < 0.05
    assert pair.verdict == "equivalent"


@pytest.mark.parametrize(
    ("evaluations", "margin", "verdict"), [(1, None, "undecided"), (2, None, "equivalent"), (2, 0.005, "equivalent")]
)
def test_a_difference_that_is_but_rounding_names_nobody(evaluations, margin, verdict):
    """Also where there is no margin that it could lie within."""
    records = [study(margin=margin)]
    for arm, score in (("headless", 0.1 + 0.2), ("vanilla", 0.3)):
        for seed in range(1, 7):
            records += run(arm, seed, score, evaluations=evaluations)
    pair = only_pair(compare(History.of(records)))
    row = pair.yardsticks["accuracy"]
    assert pair.verdict == verdict
    assert (row.difference, row.p_adjusted, row.interval) == (0.0, 1.0, (0.0, 0.0))
    assert row.mean_a > row.mean_b, "the check is blind"


def test_no_verdict_before_every_planned_seed_has_ended():
    scores = {"headless": around(0.5), "vanilla": around(0.4, NOISE[::-1])}
    pair = only_pair(compare(history(scores, run("headless", 7, 0.5, outcome=None), seeds=8)))
    assert pair.verdict == "undecided"
    assert pair.pending == 2
    assert "2 planned seeds yet to end" in verdict_in_words(compare(history(scores, seeds=8)))


def test_three_seeds_can_never_name_a_winner_and_one_more_is_asked_for():
    scores = {"headless": around(0.5, NOISE[:3]), "vanilla": (0.4,) * 3}
    comparison = compare(history(scores, seeds=3))
    assert only_pair(comparison).verdict == "undecided"
    assert only_pair(comparison).more_seeds == 1
    words = verdict_in_words(comparison)
    assert "About 1 more seed would settle it." in words
    assert "variants of the analysis" not in words, "none could say anything else"


def test_a_wider_margin_names_no_arm_that_a_narrow_one_did_not():
    """Variants were judged as a fixed number of pairs, more laxly than the looks of a study that adds seeds."""
    rng, undecided = np.random.default_rng(5), 0
    for _ in range(12):
        noise = rng.normal(size=(2, 14)) * 0.01
        scores = {"headless": tuple(0.407 + noise[0]), "vanilla": tuple(0.4 + noise[1])}
        pair = only_pair(compare(history(scores, seeds=14, minimum_seeds=6, margin=0.001)))
        undecided += pair.verdict == "undecided"
        if pair.verdict == "undecided":
            assert {variant.verdict for variant in pair.variants} <= {"undecided", "equivalent"}
    assert undecided > 2


def test_no_interval_is_told_before_there_is_an_answer():
    """That of the seeds so far leaves out 0 more often than an answer may: what is kept back is not in it."""
    scores = {"headless": around(0.5, NOISE[:5]), "vanilla": (0.4,) * 5}
    comparison = compare(history(scores, seeds=6))
    assert only_pair(comparison).pending == 1
    assert "difference +0.100, n = 5 seeds" in verdict_in_words(comparison)


@pytest.mark.parametrize("complete", [0, 1])
def test_too_few_pairs_promise_nothing_but_what_a_winner_takes(complete):
    """Six seeds, of which all or all but one diverged: nothing is known of the spread."""
    broken = [run("vanilla", seed, 0.4, outcome="diverged") for seed in range(complete + 1, 7)]
    comparison = compare(history({"headless": (0.5,) * 6, "vanilla": (0.4,) * complete}, *broken))
    pair = only_pair(comparison)
    assert (pair.yardsticks["accuracy"].n, pair.pending) == (complete, 0)
    needed = f"at least {4 - complete} more complete pairs before any arm can win"
    assert needed.capitalize() in verdict_in_words(comparison)
    assert "settle" not in verdict_in_words(comparison)
    console = Console(width=200, file=StringIO(), color_system=None, _environ={})
    console.print(pair_panel(comparison, pair))
    assert needed in console.file.getvalue()


def test_a_failed_seed_is_missing_and_said():
    scores = {"headless": (*around(0.5), 0.5), "vanilla": around(0.4, NOISE[::-1])}
    comparison = compare(history(scores, run("vanilla", 7, 0.4, outcome="diverged"), seeds=7))
    pair = only_pair(comparison)
    assert pair.yardsticks["accuracy"].n == 6
    assert pair.missing == (Gap(seed=7, arm="vanilla", outcome="diverged", reason="told so"),)
    assert pair.pending == 0
    assert comparison.arms["vanilla"].counts["confirm"] == Counts(
        planned=7, running=0, completed=6, pruned=0, diverged=1, failed=0, lost=0
    )
    assert "Seed 7 is missing: vanilla diverged (told so)." in verdict_in_words(comparison)


def test_different_tasks_are_not_compared():
    comparison = compare(history(dict.fromkeys((*MASKED, *CAUSAL), (0.4,) * 6), arms=MASKED | CAUSAL))
    assert [(p.a, p.b) for p in comparison.pairs] == [("headless", "vanilla")]
    assert comparison.not_compared == (("headless", "next"), ("vanilla", "next"))
    words = verdict_in_words(comparison)
    assert "Arms of different tasks are not compared" in words
    assert "headless, vanilla (masked) and next (causal)" in words


def test_p_is_adjusted_over_the_pairs_and_the_exploratory_ones_apart():
    arms = MASKED | {"other": ArmDesign(objective="mlm", task="masked", headless=False)}
    scores = {"headless": around(0.5), "vanilla": around(0.4, NOISE[::-1]), "other": around(0.4, NOISE[1:] + NOISE[:1])}
    comparison = compare(history(scores, arms=arms))
    assert len(comparison.pairs) == 3
    rows = {(p.a, p.b): p.yardsticks for p in comparison.pairs}
    first = rows["headless", "vanilla"]
    assert first["accuracy"].role == "primary"
    assert first["mrr"].role == "exploratory"
    differences = [a - b for a, b in zip(scores["headless"], scores["vanilla"], strict=True)]
    p = stats.ttest_1samp(differences, 0.0).pvalue
    assert first["accuracy"].p_adjusted == pytest.approx(3 * p / 0.85)  # over three pairs, not six rows
    assert comparison.pairs[0].verdict == "headless"


def test_a_partial_history_has_nothing_yet():
    with pytest.raises(InputError, match="the ledger is damaged"):
        compare(History())
    comparison = compare(history({}))
    pair = only_pair(comparison)
    row = pair.yardsticks["accuracy"]
    assert (row.n, row.difference, row.interval, row.p, row.p_adjusted) == (0, None, None, None, None)
    assert (pair.verdict, pair.pending, pair.more_seeds) == ("undecided", 6, 4)
    assert all(point.n == 0 and point.spent is None for point in pair.matched.values())
    assert "no pair of runs is complete yet" in verdict_in_words(comparison)


def test_an_arm_of_several_configurations_is_its_best_one():
    slow, fast = {"learning_rate": 0.1}, {"learning_rate": 0.2}
    records = [study(seeds=3)]
    for seed in range(3):
        records += run("headless", seed, 0.4, configuration=slow)
        records += run("headless", seed, 0.3 + 0.1 * seed, configuration=fast)  # the same mean but for what follows
    records += run("headless", 3, 0.9, configuration=slow)
    state = History.of(records)
    runs = chosen_runs(state, "headless")
    assert {trial.configuration["learning_rate"] for trial in runs.values()} == {0.1}  # one for all seeds
    assert compare(state).arms["headless"].counts["confirm"].planned == 6
    pair = only_pair(compare(state))
    assert pair.standing == "exploratory"
    assert compare(state).arms["headless"].confirmed == 2
    assert "headless is the best of its 2 confirmed configurations" in verdict_in_words(compare(state))
    broken = History.of([*records[:1], *run("headless", 0, 0.9, configuration=fast),
                         *run("headless", 1, 0.9, configuration=fast, outcome="failed"),
                         *run("headless", 0, 0.4, configuration=slow),
                         *run("headless", 1, 0.4, configuration=slow)])  # fmt: skip
    assert chosen_runs(broken, "headless")[0].configuration == slow  # a failure cannot raise a mean


def test_matched_points_are_interpolated_and_marked():
    records = [study(seeds=2)]
    for seed in range(2):
        records += run("headless", seed, 0.8, speed=2.0, evaluations=4)
        records += run("vanilla", seed, 0.4, evaluations=4)
    matched = only_pair(compare(History.of(records))).matched
    tokens = matched["tokens"]
    assert (tokens.spent, tokens.n, tokens.annealed) == (2e6, 2, True)
    assert (tokens.mean_a, tokens.mean_b, tokens.difference) == pytest.approx((0.8, 0.4, 0.4))
    assert tokens.interval == pytest.approx([0.4, 0.4])
    assert (matched["flops"].n, matched["flops"].annealed) == (2, True)  # they cost the same
    # After 50 device-seconds the fast arm is at its end, the slow one half way: no comparison.
    nothing = dict.fromkeys(("spent", "progress", "mean_a", "mean_b", "difference", "interval"))
    assert matched["device_seconds"] == Matched(n=0, annealed=False, **nothing)


def test_a_finished_run_is_met_in_its_middle_while_the_other_is_in_its():
    """Not at its end: the first pair runs, one arm ahead."""
    records = [study(seeds=1), *run("headless", 0, 0.8, evaluations=4)]
    records += list(run("vanilla", 0, 0.4, outcome=None, evaluations=4))[:3]
    tokens = only_pair(compare(History.of(records))).matched["tokens"]
    assert (tokens.spent, tokens.progress, tokens.annealed) == (1e6, 0.5, False)
    assert (tokens.mean_a, tokens.mean_b, tokens.interval) == (0.4, 0.2, None)


def test_matched_points_invent_nothing_before_a_first_evaluation():
    records = [study(seeds=1), *run("headless", 0, 0.8, evaluations=2)]
    records += list(run("vanilla", 0, 0.4, outcome=None, evaluations=4))[:2]
    assert only_pair(compare(History.of(records))).matched["tokens"].n == 0


def test_running_pairs_are_an_indication():
    records = [study(seeds=2)]
    for arm in MASKED:
        records += run(arm, 0, 0.4, outcome=None)
    pair = only_pair(compare(History.of(records)))
    assert pair.yardsticks["accuracy"].n == 0
    assert pair.matched["tokens"].n == 1
    assert pair.matched["tokens"].annealed is False


def test_what_was_rolled_back_does_not_count():
    records = [study(seeds=1), *run("headless", 0, 0.9, outcome="interrupted")]
    begin, _, last, done = run("headless", 0, 0.4, attempt=2, start_step=1)
    state = History.of([*records, begin, last, done])
    (trial,) = state.trials_of("confirm")
    assert [m.step for m in trial.measures] == [1, 2]
    assert compare(state).arms["headless"].yardsticks["accuracy"].mean == pytest.approx(0.4)


def test_words_name_the_winner_first_and_the_difference_as_tables_do():
    comparison = compare(history({"headless": (0.371,) * 6, "vanilla": around(0.4115)}))
    words = verdict_in_words(comparison)
    assert words.startswith("vanilla is ahead of headless on accuracy at 2.0M tokens a trial: 0.412 against 0.371, ")
    row = comparison.pairs[0].yardsticks["accuracy"]
    told = formatting.difference(row.difference, row.interval)
    assert told.startswith("-0.041 [-0.0")
    assert f"0.412 against 0.371, headless – vanilla {told}, n = 6" in words
    cells = [cell.replace("\n", " ") for line in comparison_table(comparison).rows for cell in line.cells]
    assert "headless – vanilla" in cells
    assert told in cells, "the same sign"
    assert "n = 6 seeds, p < 0.001. No floors were measured" in words


def adaptive(scores, *extra, maximum=12, **of_study):
    return history(scores, *extra, seeds=maximum, minimum_seeds=6, **of_study)


def test_adaptive_stopping_settles_at_its_look_and_no_later_run_changes_it():
    scores = {"headless": (0.5,) * 10, "vanilla": tuple(0.4 + n / 100 for n in (0, 1, 2, 1, 0, 2, 1, 0, 9, 9))}
    differences = tuple(a - b for a, b in zip(scores["headless"], scores["vanilla"], strict=True))
    decision = Rule(6, 12, margin=0.005).decide(lambda n: of_seeds(differences[:n]), len(differences))
    looked_at = decision.evidence.n
    comparison = compare(adaptive(scores))
    pair = only_pair(comparison)
    row = pair.yardsticks["accuracy"]
    assert looked_at < 10
    assert (pair.verdict, row.n, row.p_adjusted) == ("headless", looked_at, decision.p)
    assert row.interval == decision.interval
    assert row.difference == pytest.approx(sum(differences[:looked_at]) / looked_at)
    assert (pair.pending, pair.stopping) == (0, Stopping(minimum=6, maximum=12))
    assert answered(adaptive(scores))
    assert "Seeds were added until it was settled; the rule allowed 12." in verdict_in_words(comparison)
    shorter = {arm: values[:looked_at] for arm, values in scores.items()}
    assert only_pair(compare(adaptive(shorter))).yardsticks["accuracy"] == row


def test_an_unsettled_pair_shows_neither_p_nor_interval():
    state = adaptive({"headless": around(0.404, [5 * n for n in NOISE]), "vanilla": (0.4,) * 6})
    pair = only_pair(compare(state))
    assert (pair.verdict, pair.pending, answered(state)) == ("undecided", 6, False)
    assert pair.yardsticks["accuracy"].p is None
    assert pair.yardsticks["accuracy"].interval is None
    assert "Seeds are added until it is settled, 12 at the most." in verdict_in_words(compare(state))


def test_a_run_that_ends_before_its_turn_is_not_looked_at():
    scores = {"headless": (0.41,) * 6, "vanilla": (0.4, 0.41, 0.42, 0.4, 0.41, 0.39)}
    later = [record for arm, score in (("headless", 0.5), ("vanilla", 0.4)) for seed in (8, 9, 10)
             for record in run(arm, seed, score)]  # fmt: skip
    waiting = [record for arm in MASKED for record in run(arm, 7, 0.4, outcome=None)]
    assert not answered(adaptive(scores, later, waiting))


def test_seeds_that_are_not_there_are_not_passed_over():
    """Deleted in pairs, say, because they spoke against the answer: looks end where the first is missing."""
    scores = {"headless": (0.5,) * 9, "vanilla": (0.4, 0.41, 0.42, 0.4, 0.41, 0.4, 0.4, 0.41, 0.4)}
    assert answered(adaptive(scores))
    for gone in (1, 4, 6):
        records = [record for arm, own in scores.items() for seed, score in enumerate(own, 1) if seed != gone
                   for record in run(arm, seed, score)]  # fmt: skip
        state = adaptive({}, records)
        assert not answered(state)
        assert only_pair(compare(state)).verdict == "undecided"


def test_failed_runs_count_as_seeds_and_the_last_look_spends_the_rest():
    scores = {"headless": (0.5,) * 6, "vanilla": (0.4, 0.41, 0.49, 0.5, 0.41, 0.46)}
    failed = [record for seed in range(7, 13) for arm in MASKED
              for record in run(arm, seed, 0.4, outcome="failed")]  # fmt: skip
    state = adaptive(scores, failed)
    assert answered(state)
    assert only_pair(compare(state)).verdict == "headless"
    assert only_pair(compare(state)).stopping == Stopping(minimum=6, maximum=12, ended_early=True)
    assert compare(state).arms["headless"].failures["confirm"] == Failures(diverged=0, failed=6, lost=0, retried=0)


SETTLED = "Seeds were added until it was settled"


@pytest.mark.parametrize(("scores", "verdict"), [((0.4, 0.41, 0.49, 0.5, 0.41, 0.46), "headless"),
                                                 ((0.4, 0.41, 0.56, 0.57, 0.41, 0.54), "undecided")])  # fmt: skip
def test_seeds_that_ended_before_it_was_settled_are_not_said_to_have_settled_it(scores, verdict):
    """A cap paid for half of them: no planned look had a verdict, and the last there is may."""
    state = adaptive({"headless": (0.5,) * 6, "vanilla": scores}, [phase("confirm", "begin"), cap("confirm", 6)])
    assert answered(state)
    pair, words = only_pair(compare(state)), verdict_in_words(compare(state))
    assert (pair.verdict, pair.yardsticks["accuracy"].n, pair.stopping.ended_early) == (verdict, 6, True)
    assert SETTLED not in words
    assert "Seeds ended before it was settled, short of the 12 that the rule allowed: it was judged by" in words
    assert ("more seeds would settle it" in words) == (verdict == "undecided")


def test_a_look_that_settled_it_did_so_whatever_ended_the_seeds():
    """The cap paid for as many as it took, or for more."""
    for seeds in (6, 8):
        scores = {"headless": (0.5,) * seeds, "vanilla": around(0.4) + (0.4,) * (seeds - 6)}
        state = adaptive(scores, [phase("confirm", "begin"), cap("confirm", seeds)])
        assert only_pair(compare(state)).stopping == Stopping(minimum=6, maximum=12)
        assert f"{SETTLED}; the rule allowed 12." in verdict_in_words(compare(state))


def counted(records, arm="vanilla"):
    return compare(History.of(records)).arms[arm].counts


def test_what_is_planned_after_an_answer_is_what_was_run():
    records = [study(seeds=20, minimum_seeds=6)]
    for seed in range(1, 9):
        for arm, score in (("headless", 0.5), ("vanilla", 0.4)):
            records += run(arm, seed, score)
    assert counted([*records, phase("confirm", "begin")])["confirm"].planned == 20
    assert counted([*records, phase("confirm", "end")])["confirm"].planned == 8


def test_runs_of_a_smaller_budget_are_not_among_those_planned():
    """The study was extended to a larger one: of six runs two are done anew."""
    records = [study(seeds=6, confirm_amount=4e6)]
    for amount, seeds, first in ((2e6, 6, 0), (4e6, 2, 6)):
        for seed in range(seeds):
            for kind, share in (("confirm", None), ("anytime", 0.5)):
                own = {"name": f"{kind}-vanilla-{first + seed}", "number": first + seed}
                own |= {"amount": amount * (share or 1.0), "share": share}
                records += run("vanilla", seed, 0.4, phase=kind, **own)
    counts = counted(records)
    assert (counts["confirm"].planned, counts["confirm"].completed) == (6, 2)
    assert (counts["anytime"].planned, counts["anytime"].completed) == (2, 2)


def test_what_the_seeds_could_have_found():
    scores = {"headless": around(0.45), "vanilla": (0.4,) * 6}
    row = only_pair(compare(history(scores))).yardsticks["accuracy"]
    test = stats.ttest_1samp([0.05 + n for n in NOISE], 0.0)
    # 15% of the level is kept back.
    assert row.interval == pytest.approx(tuple(test.confidence_interval(1 - 0.85 * 0.05)))
    so_far = only_pair(compare(history(scores, seeds=8)))
    assert so_far.detectable == minimum_detectable_effect(Rule(8, 8, 0.005), row.deviation)
    assert so_far.yardsticks["accuracy"].interval == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert only_pair(compare(history({}))).detectable is None


def test_time_to_target_by_unit():
    """By annealed models: a run without branches has but its end."""
    records = [study(seeds=6)]
    for seed in range(6):
        records += run("headless", seed, 0.8, speed=2.0, evaluations=4)
        records += run("vanilla", seed, 0.4, evaluations=4)
    assert only_pair(compare(History.of(records))).time_to_target["tokens"] is None
    records = [study(seeds=6)]
    for seed in range(6):
        records += run_with_branches("headless", seed, 0.8, speed=2.0)
        records += run_with_branches("vanilla", seed, 0.4)
    times = only_pair(compare(History.of(records))).time_to_target
    assert times["tokens"].target == pytest.approx(0.4)
    assert (times["tokens"].relation, times["tokens"].ratio) == ("=", pytest.approx(0.5))
    assert times["device_seconds"].ratio == pytest.approx(0.25)
    records[0] = study(seeds=6, target=0.6)
    named = only_pair(compare(History.of(records))).time_to_target["tokens"]
    assert (named.relation, named.reached_b, named.ratio) == ("<=", 0, pytest.approx(0.75))
    assert only_pair(compare(history({}))).time_to_target["tokens"] is None


@pytest.mark.parametrize("outcome", ["diverged", "failed"])
def test_a_broken_run_never_reaches_the_target(outcome):
    """Five seeds of six would have said half; the sixth arm is censored at what it spent, a quarter of the budget."""
    records = [study(seeds=6)]
    for seed in range(6):
        broke = seed == 5
        headless = list(run_with_branches("headless", seed, 0.8, outcome=outcome if broke else "completed"))
        records += [*headless[:2], headless[-1]] if broke else headless
        records += run_with_branches("vanilla", seed, 0.4)
    pair = only_pair(compare(History.of(records)))
    found = pair.time_to_target["tokens"]
    assert (found.n, found.reached_a, found.reached_b) == (6, 5, 6)
    assert found.target == pytest.approx(0.4)
    assert (found.relation, found.ratio) == (">=", pytest.approx((5 * 1.0 + 0.25) / 6))
    assert found.interval[1] is None
    assert pair.yardsticks["accuracy"].n == 5
    swapped = [
        changed(record, arm={"headless": "vanilla", "vanilla": "headless"}[record.arm])
        if not isinstance(record, StudyRecord)
        else record
        for record in records
    ]
    other = only_pair(compare(History.of(swapped))).time_to_target["tokens"]
    assert (other.relation, other.ratio) == ("<=", pytest.approx(6 / (5 * 1.0 + 0.25)))
    records[0] = study(seeds=6, lower_is_better=("accuracy",))
    assert only_pair(compare(History.of(records))).time_to_target["tokens"].reached_a == 5
    all_broken = [changed(r, outcome=outcome) if isinstance(r, EndRecord) else r for r in records]
    assert only_pair(compare(History.of(all_broken))).time_to_target["tokens"] is None
    json.dumps(compare(History.of(records)).to_json(), allow_nan=False)


def test_every_yardstick_is_compared_at_shares_of_the_budget():
    records = [study(seeds=6)]
    for seed, noise in enumerate(NOISE):
        for arm, score in (("headless", 0.5), ("vanilla", 0.4 + noise)):
            records += run(arm, seed, score)
            branch = run(arm, seed, score / 2, phase="anytime", evaluations=1, share=0.5)
            for record in branch:
                if isinstance(record, MeasureRecord):
                    scores = record.yardsticks | {"mrr": Score(overall=score / 4, languages={})}
                    record = record.model_copy(update={"yardsticks": scores})
                records.append(record)
    rows = only_pair(compare(History.of(records))).branches
    assert [(row.share, row.yardstick, row.role, row.n) for row in rows] == [
        (0.5, "accuracy", "exploratory", 6),
        (0.5, "mrr", "exploratory", 6),
    ]
    mean = sum(0.1 - noise for noise in NOISE) / 6
    assert [row.difference for row in rows] == pytest.approx([mean / 2, mean / 4])
    p = stats.ttest_1samp([0.1 - noise for noise in NOISE], 0.0).pvalue
    assert [row.p_adjusted for row in rows] == pytest.approx([2 * p] * 2, rel=1e-4)  # a family of their own


def test_failed_runs_at_shares_of_the_budget_are_missing_and_counted():
    """What diverged is not in the mean of the others: it is said beside it."""
    records = [study(seeds=6)]
    for seed in range(6):
        for arm, score in (("headless", 0.5), ("vanilla", 0.4)):
            outcome = "diverged" if arm == "vanilla" and seed > 1 else "completed"
            records += run(arm, seed, score)
            records += run(arm, seed, score / 2, phase="anytime", outcome=outcome, share=0.5)
    comparison = compare(History.of(records))
    assert len(only_pair(comparison).branches) == 2
    for row in only_pair(comparison).branches:
        assert row.n == 2
        assert row.missing == tuple(
            Gap(seed=seed, arm="vanilla", outcome="diverged", reason="told so") for seed in (2, 3, 4, 5)
        )
    vanilla, headless = comparison.arms["vanilla"], comparison.arms["headless"]
    assert vanilla.counts["anytime"] == Counts(
        planned=6, running=0, completed=2, pruned=0, diverged=4, failed=0, lost=0
    )
    assert vanilla.failures["anytime"] == Failures(diverged=4, failed=0, lost=0, retried=0)
    assert headless.failures["anytime"] == Failures(diverged=0, failed=0, lost=0, retried=0)


def test_with_a_control_only_it_is_compared():
    """Three arms are two pairs, which share the level."""
    arms = MASKED | {"other": ArmDesign(objective="mlm", task="masked", headless=False)}
    scores = {"headless": around(0.45), "vanilla": (0.4,) * 6, "other": (0.41,) * 6}
    found = compare(history(scores, arms=arms, control="vanilla"))
    assert {frozenset((pair.a, pair.b)) for pair in found.pairs} == {
        frozenset(("headless", "vanilla")),
        frozenset(("vanilla", "other")),
    }
    assert found.not_compared == ()
    said = "Each is compared with vanilla alone, as the study says: other pairs are left out."
    assert found.control == "vanilla"
    assert said in verdict_in_words(found)
    assert Comparison.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert said not in verdict_in_words(compare(history(scores, arms=arms))), "every two are compared"
    two = compare(history({name: scores[name] for name in MASKED}, control="vanilla"))
    assert said not in verdict_in_words(two), "there is no other pair"
    alone = only_pair(compare(history({name: scores[name] for name in ("headless", "vanilla")})))
    pair = next(pair for pair in found.pairs if pair.a == "headless")
    ratio = pair.yardsticks["accuracy"].p_adjusted / alone.yardsticks["accuracy"].p_adjusted
    assert ratio == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(("slowest", "steady"), [(1.05, True), (1.2, False)])
def test_clocks_that_are_not_steady_compare_nothing(slowest, steady):
    records = [study(seeds=6)]
    for seed in range(6):
        records += run_with_branches("headless", seed, 0.5, speed=1 / slowest if seed == 3 else 1.0)
        records += run_with_branches("vanilla", seed, 0.4)
    comparison = compare(History.of(records))
    pair = only_pair(comparison)
    assert pair.steady == steady
    assert (pair.matched["device_seconds"].n, pair.time_to_target["device_seconds"] is None) == (
        (0, False) if steady else (0, True)
    )
    assert pair.matched["tokens"].n == 6
    assert ("Device time of the same work differs" in verdict_in_words(comparison)) != steady


@pytest.mark.parametrize(("unit", "clocked"), [("device_seconds", True), ("usd", True), ("flops", False)])
def test_a_budget_of_unsteady_clocks_is_said_not_to_be_the_same(unit, clocked):
    """Where it decides what is trained, that nothing is compared by it would be wrong."""
    records = [study(seeds=6, unit=unit)]
    for seed in range(6):
        records += run("headless", seed, 0.5, speed=1 / 2.8 if seed == 3 else 1.0)
        records += run("vanilla", seed, 0.4)
    words = verdict_in_words(compare(History.of(records)))
    assert "Device time of the same work differs by more than 10% between runs of one arm, so " in words
    assert ("the budget, which is made of it, is more training for one run than for another" in words) == clocked
    assert ("nothing is compared by it" in words) != clocked


def test_a_run_that_broke_before_its_branch_is_missing_there():
    records = [study(seeds=6)]
    for seed in range(6):
        broke = "diverged" if seed == 2 else "completed"
        records += run_with_branches("headless", seed, 0.5, outcome=broke)
        records += run_with_branches("vanilla", seed, 0.4)
    for row in only_pair(compare(History.of(records))).branches:
        if row.yardstick == "accuracy":
            assert (row.n, [(gap.arm, gap.seed) for gap in row.missing]) == (5, [("headless", 2)])


def test_the_tuning_curve_of_a_search():
    records = [study()]
    for number, score in enumerate((0.3, 0.5, 0.4)):
        records += run("headless", number, score, phase="search", evaluations=3)
    records += run("headless", 3, 0.9, phase="search", outcome="failed", evaluations=0)
    records += run("headless", 4, 0.2, phase="search", outcome="pruned", evaluations=1)
    records += run("headless", 5, 0.9, phase="search", outcome=None)
    arm = compare(History.of(records)).arms["headless"]
    curve = tuning_curve((0.2, 0.2, 0.3, 0.4, 0.5))  # the failed one counts as the worst
    assert arm.tuning.expected == pytest.approx(curve.expected)
    assert arm.tuning.median == curve.median
    records[0] = study(lower_is_better=("accuracy",))
    falling = compare(History.of(records)).arms["headless"].tuning
    assert falling.expected[0] == pytest.approx((0.2 + 0.3 + 0.4 + 0.5 + 0.5) / 5)
    assert falling.expected[-1] < falling.expected[0]
    assert all(a <= b for a, b in zip(falling.low, falling.high, strict=True) if None not in (a, b))
    assert compare(history({})).arms["vanilla"].tuning is None


def test_a_seed_at_which_both_diverged_is_not_forgotten():
    """Where no model was measured before training nothing is known of it."""
    records = [study(seeds=6)]
    for seed in range(6):
        for arm, level in (("headless", 0.5), ("vanilla", 0.4)):
            records += run(arm, seed, level + NOISE[seed], outcome="diverged" if seed == 5 else "completed")
    pair = only_pair(compare(History.of(records)))
    assert [(gap.seed, gap.arm) for gap in pair.missing] == [(5, "headless"), (5, "vanilla")]
    assert pair.pending == 0


def test_a_seed_is_pending_while_one_of_its_runs_goes_on():
    records = [study(seeds=6)]
    for seed in range(6):
        records += run("headless", seed, 0.5, outcome=None if seed == 5 else "completed")
        records += run("vanilla", seed, 0.4 + NOISE[seed], outcome="failed" if seed == 5 else "completed")
    pair = only_pair(compare(History.of(records)))
    assert (pair.verdict, pair.pending) == ("undecided", 1)


def test_the_difference_lies_in_its_interval_whatever_the_last_seed_was():
    """A bad run whose partner failed is in no number of the pair."""
    records = [study(seeds=8)]
    for seed in range(8):
        failed = seed == 7
        records += run("headless", seed, 0.5 + NOISE[seed % 6])
        records += run("vanilla", seed, 0.01 if failed else 0.4, outcome="failed" if failed else "completed")
    pair = only_pair(compare(History.of(records)))
    row = pair.yardsticks["accuracy"]
    assert row.n == 7
    assert row.interval[0] <= row.difference <= row.interval[1]
