"""Calibration of the verdicts: how often they are false, intervals cover and power is as planned.

Studies are simulated: two arms, each seed with a share of luck that both arms have in common, and a true difference
that is known. The fixed rule has the default study's 6 seeds and margin, with a deviation of paired differences of
twice the margin; the adaptive one adds seeds from 6 up to 20 and looks after each pair. Noise is normal, heavy-tailed
(t with 4 degrees of freedom), skewed (gamma of shape 4; the same in both arms, so that their differences are symmetric)
or unequal (the same gamma, one arm's spread double the other's, so that differences are skewed also where their mean is
zero: the permutation test does not promise its level there). Three arms of one task, 7 seeds, fixed rule, are
simulated apart: p is adjusted over their pairs, equivalence is not. Adaptive rules of fewer seeds and of three arms are
simulated at the difference that they are said to find with a chance of 80%.

    python benchmarks/calibration.py            # some minutes on one core
    python benchmarks/calibration.py --quick    # a moment, to see that it runs

The last line is a JSON object, also written to results/:

- false_verdict_rate: the highest share of an arm named where there is no difference
- coverage: of the 95% interval, the one furthest from 0.95
- false_equivalence_rate: the highest share of "equivalent", or the worse arm named, at a difference of the margin
  or above
- power_gap: the largest distance of realised from planned power, under normal noise: of the fixed rule's at each
  difference, and of the detectable differences'
- fixed, adaptive: the same of each, and a table
- three_arms: over three pairs at once, the share of studies that name an arm where there is no difference, and that say
  "equivalent" of any pair, or name the worse arm, where arms are a margin apart
- detectable: of adaptive rules, the difference said to be found with 80%, and the share of studies that find it
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from measure import command_line, publish
from numpy.typing import NDArray
from scipy import stats

from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Pair
from orchestrator.analysis.statistics.paired import holm, mean_interval
from orchestrator.analysis.statistics.planning import POWER, power
from orchestrator.analysis.statistics.sequential import Sequential
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import (
    ArmDesign,
    Design,
    EndRecord,
    MachineRecord,
    MeasureRecord,
    Record,
    StudyRecord,
    TrialRecord,
    YardstickDesign,
)
from trainables.evaluation import Score
from trainables.training.config import Unit

Floats = NDArray[np.float64]

SEEDS, MOST_SEEDS, MARGIN, DEVIATION = 6, 20, 0.005, 0.01
EFFECTS = (0.0, 0.5, 1.0, 2.0)
"""True differences in deviations; 0.5 is the margin."""

SCENARIOS = [*product(("normal", "heavy", "unequal"), EFFECTS), ("skewed", 0.0)]
THREE_ARMS_SEEDS = 7
"""As few as can name an arm of three pairs."""

DETECTABLE = ((2, 6, 2), (6, 7, 2), (6, 8, 2), (6, 8, 3), (6, 9, 3), (6, 12, 3), (6, 20, 2), (6, 20, 3))
"""Adaptive rules by fewest and most seeds, and arms, whose power is checked at the difference they can detect."""

RULE = Sequential(SEEDS, MOST_SEEDS, MARGIN)
CHECKED = 10
"""Studies of every scenario on which the vectorised numbers are compared with the product's own."""


def simulate(noise: str, effect: float, studies: int, seeds: int) -> tuple[Floats, Floats]:
    """Yardsticks of both arms, [study, seed]; their paired differences deviate by ``DEVIATION``."""
    rng = np.random.default_rng([hash_of(noise), int(1000 * effect)])
    shape = (studies, seeds)
    if noise == "normal":
        a, b = rng.standard_normal(shape) / math.sqrt(2), rng.standard_normal(shape) / math.sqrt(2)
    elif noise == "heavy":
        a, b = rng.standard_t(4, shape) / 2, rng.standard_t(4, shape) / 2
    else:
        spreads = np.array([1.0, 1.0] if noise == "skewed" else [2.0, 1.0])
        a, b = (rng.gamma(4, size=(2, *shape)) - 4) / 2 * (spreads / np.linalg.norm(spreads))[:, None, None]
    luck = rng.standard_normal(shape)
    return 0.5 + DEVIATION * (effect + luck + a), 0.5 + DEVIATION * (luck + b)


def hash_of(name: str) -> int:
    return sum(name.encode())


def fixed_verdicts(differences: Floats) -> NDArray[np.str_]:
    """The verdicts of the fixed rule on one pair of arms, of all studies at once."""
    p, equivalent = fixed_tests(differences)
    named = np.where(p > ALPHA, "undecided", np.where(differences.mean(1) > 0, "a", "b"))
    return np.where(equivalent, "equivalent", named)


def fixed_tests(differences: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The permutation p of every study, and whether it finds equivalence."""
    n = differences.shape[1]
    signs = np.array(list(product((1, -1), repeat=n))).T
    sums = np.abs(differences @ signs)
    p = (sums >= sums[:, :1] * (1 - 1e-12)).mean(1)
    mean, error = differences.mean(1), differences.std(1, ddof=1) / math.sqrt(n)
    return p, np.abs(mean) + stats.t.ppf(1 - ALPHA, n - 1) * error <= MARGIN


def fixed_intervals(differences: Floats) -> tuple[Floats, Floats]:
    """Student's 95% intervals, of all studies at once."""
    n = differences.shape[1]
    reach = stats.t.ppf(0.975, n - 1) * differences.std(1, ddof=1) / math.sqrt(n)
    return differences.mean(1) - reach, differences.mean(1) + reach


SPENT: dict[Unit, float] = {
    "tokens": 1e6, "steps": 1.0, "flops": 1e12, "hardware_flops": 1e12, "device_seconds": 1.0, "wall_seconds": 1.0
}  # fmt: skip


def ledger(minimum: int | None, most: int = MOST_SEEDS, **arms: Sequence[float] | Floats) -> Iterator[Record]:
    """The records of a study with these results."""
    design = Design(
        question="",
        seed=0,
        unit="tokens",
        amount=1e6,
        confirm_amount=1e6,
        search_budget=0.0,
        concurrent_per_arm=1,
        arms=dict.fromkeys(arms, ArmDesign(objective="mlm", task="masked", headless=False)),
        seeds=len(next(iter(arms.values()))) if minimum is None else most,
        minimum_seeds=minimum,
        anytime=(),
        margin=MARGIN,
        yardsticks=YardstickDesign(primary="accuracy", others=(), target=None, lower_is_better=()),
    )
    yield StudyRecord(
        name="study", folder="", digest="", protocol={}, protocol_digest="", design=design, versions={},
        machine=MachineRecord(system="", cpus=None), usd_per_hour=None,
    )  # fmt: skip
    for seed, values in enumerate(zip(*arms.values(), strict=True)):
        for name, value in zip(arms, values, strict=True):
            same: dict[str, Any] = {"phase": "confirm", "arm": name, "trial": f"{name}{seed}", "attempt": 1}
            yield TrialRecord(**same, number=seed, configuration={}, seed=seed + 1, amount=1e6, start_step=0, workers=1)
            yield MeasureRecord(
                **same, step=1, progress=1.0, spent=SPENT, overhead={}, loss=1.0, learning_rate=1e-3, digest="0" * 16,
                mix={}, rung=None, yardsticks={"accuracy": Score(overall=value, languages={})},
            )  # fmt: skip
            yield EndRecord(**same, outcome="completed", reason="")


def pairs_of(minimum: int | None, most: int = MOST_SEEDS, **arms: Sequence[float] | Floats) -> tuple[Pair, ...]:
    return compare(History.of(ledger(minimum, most, **arms))).pairs


def assert_the_products_own(
    a: Floats, b: Floats, verdict: str, interval: tuple[float, float] | None, minimum: int | None
) -> None:
    (pair,) = pairs_of(minimum, a=a, b=b)
    assert pair.verdict == verdict, (pair.verdict, verdict)
    if interval is not None:
        own = pair.yardsticks["accuracy"].interval
        assert own is not None
        assert np.allclose(own, interval, rtol=1e-9)


def fixed_scenario(noise: str, effect: float, studies: int, covered: int) -> dict[str, Any]:
    a, b = simulate(noise, effect, studies, SEEDS)
    differences = a - b
    verdicts = fixed_verdicts(differences)
    low, high = fixed_intervals(differences[:covered])
    for i in range(CHECKED):
        own = mean_interval(differences[i])
        assert own is not None
        assert np.allclose(own, (low[i], high[i]), rtol=1e-9)
        assert_the_products_own(a[i], b[i], verdicts[i], (low[i], high[i]), None)
    truth = effect * DEVIATION
    covers = (low <= truth) & (truth <= high)
    planned = power(SEEDS, truth, DEVIATION, MARGIN) if effect else None
    row = summary(noise, effect, verdicts, np.full(studies, SEEDS), covers)
    return row | {"planned_power": round(planned, 4)} if planned else row


def three_arms(spacing: float, studies: int) -> dict[str, Any]:
    """Three arms, ``spacing`` deviations apart, under normal noise: what is said of any of their pairs."""
    rng = np.random.default_rng([3, int(1000 * spacing)])
    shape = (studies, THREE_ARMS_SEEDS)
    luck = rng.standard_normal(shape)
    values = {
        name: 0.5 + DEVIATION * (-spacing * place + luck + rng.standard_normal(shape) / math.sqrt(2))
        for place, name in enumerate("abc")
    }
    pairs = list(combinations(values, 2))
    tests = [fixed_tests(values[one] - values[other]) for one, other in pairs]
    ahead = np.array([(values[one] - values[other]).mean(1) > 0 for one, other in pairs])
    named = np.array([holm(list(p)) for p in np.array([p for p, _ in tests]).T]).T <= ALPHA
    equivalent = np.array([found for _, found in tests])
    named &= ~equivalent
    for i in range(CHECKED):
        found = pairs_of(None, **{name: own[i] for name, own in values.items()})
        for j, (pair, (one, other)) in enumerate(zip(found, pairs, strict=True)):
            winner = one if ahead[j, i] else other
            expected = "equivalent" if equivalent[j, i] else winner if named[j, i] else "undecided"
            assert pair.verdict == expected, (pair.verdict, expected)
    false = named if spacing == 0 else equivalent | (named & ~ahead)
    row = {
        "apart_in_deviations": spacing,
        "studies": studies,
        "false_of_any_pair": round(float(false.any(0).mean()), 4),
        "false_of_a_pair_at_most": round(float(false.mean(1).max()), 4),
    }
    print(row, flush=True)
    return row


def detectable_scenario(minimum: int, most: int, num_arms: int, studies: int) -> dict[str, Any]:
    """How often the first of some arms is named over the second by the difference said to be found with 80%."""
    rule = Sequential(minimum, most, MARGIN, family_size=math.comb(num_arms, 2))
    difference = rule.minimum_detectable_effect(DEVIATION)
    assert difference is not None
    a, b = simulate("normal", difference / DEVIATION, studies, most)
    verdicts = [rule.decide(tuple(own), with_interval=False).verdict for own in a - b]
    for i in range(CHECKED):
        others = {f"other{j}": b[i - j] for j in range(1, num_arms - 1)}
        pair = pairs_of(minimum, most, a=a[i], b=b[i], **others)[0]
        # What stays undecided alone may be named by Holm's method, where the other pairs are.
        assert verdicts[i] in (pair.verdict, "undecided"), (pair.verdict, verdicts[i])
    row = {
        "seeds": minimum,
        "most_seeds": most,
        "arms": num_arms,
        "studies": studies,
        "detectable_in_deviations": round(difference / DEVIATION, 3),
        "planned_power": POWER,
        "power": round(verdicts.count("a") / studies, 4),
    }
    print(row, flush=True)
    return row


def adaptive_scenario(noise: str, effect: float, studies: int, covered: int) -> dict[str, Any]:
    a, b = simulate(noise, effect, studies, MOST_SEEDS)
    truth, verdicts, pairs, covers = effect * DEVIATION, [], [], []
    for i, differences in enumerate(a - b):
        decision = RULE.decide(tuple(differences), with_interval=False)
        verdicts.append(decision.verdict)
        pairs.append(decision.n)
        if i < covered:
            covers.append(RULE.accepts(truth, tuple(differences[: decision.n])))
        if i < CHECKED:
            whole = RULE.decide(tuple(differences))
            assert whole.interval is not None
            assert_the_products_own(a[i], b[i], decision.verdict, whole.interval, SEEDS)
            low, high = whole.interval
            # The interval is the hull of what is accepted, its ends found to a thousandth of it.
            assert not covers[i] or low - 0.001 * (high - low) <= truth <= high + 0.001 * (high - low)
    return summary(noise, effect, np.array(verdicts), np.array(pairs), np.array(covers))


def summary(
    noise: str, effect: float, verdicts: NDArray[np.str_], pairs: NDArray[np.int64], covers: NDArray[np.bool_]
) -> dict[str, Any]:
    shares = {name: float(np.mean(verdicts == name)) for name in ("a", "b", "equivalent", "undecided")}
    false = shares["a"] + shares["b"] if effect == 0 else shares["b"] + shares["equivalent"]
    row = {
        "noise": noise,
        "effect_in_deviations": effect,
        "studies": len(verdicts),
        "verdicts": {name: round(share, 4) for name, share in shares.items()},
        "false": round(false, 4),
        "coverage": round(float(covers.mean()), 4),
        "intervals": len(covers),
        "mean_pairs": round(float(pairs.mean()), 2),
    }
    print(row, flush=True)
    return row


def furthest(coverages: Sequence[float]) -> float:
    return max(coverages, key=lambda coverage: abs(coverage - 0.95))


def conclude(table: list[dict[str, Any]]) -> dict[str, Any]:
    null = [row["false"] for row in table if row["effect_in_deviations"] == 0]
    real = [row["false"] for row in table if row["effect_in_deviations"] > 0]
    planned = [row for row in table if "planned_power" in row and row["noise"] == "normal"]
    gaps = [abs(row["verdicts"]["a"] - row["planned_power"]) for row in planned]
    return {
        "false_verdict_rate": max(null),
        "coverage": furthest([row["coverage"] for row in table]),
        "false_equivalence_rate": max(real),
        "power_gap": round(max(gaps), 4) if gaps else None,
        "table": table,
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    quick = command_line(__doc__, "few studies").parse_args(arguments).quick
    null, others, covered = (40, 20, 20) if quick else (10_000, 2000, 2000)
    result: dict[str, Any] = {}
    for name, scenario in (("fixed", fixed_scenario), ("adaptive", adaptive_scenario)):
        print(name)
        result[name] = conclude([
            scenario(noise, effect, others if effect else null, covered)
            for noise, effect in SCENARIOS
        ])  # fmt: skip
    print("three arms")
    result["three_arms"] = [three_arms(spacing, null) for spacing in (0.0, MARGIN / DEVIATION)]
    print("detectable")
    result["detectable"] = [detectable_scenario(*rule, others) for rule in (DETECTABLE[:3] if quick else DETECTABLE)]
    sides = (result["fixed"], result["adaptive"])
    head = {
        "seeds": SEEDS,
        "most_seeds": MOST_SEEDS,
        "margin_in_deviations": MARGIN / DEVIATION,
        "false_verdict_rate": max(side["false_verdict_rate"] for side in sides),
        "coverage": furthest([side["coverage"] for side in sides]),
        "false_equivalence_rate": max(side["false_equivalence_rate"] for side in sides),
        "power_gap": max(
            result["fixed"]["power_gap"], *(round(abs(row["power"] - POWER), 4) for row in result["detectable"])
        ),
    }
    publish("calibration", "cpu", head | result, quick=quick)
    return head | result


if __name__ == "__main__":
    main()
