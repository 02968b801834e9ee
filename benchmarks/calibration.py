"""Calibration of the verdicts: how often they are false, intervals cover and power is as planned.

Studies are simulated by the model of two sources of chance: each seed shifts an arm's scores on all text, each document
is harder for one arm than for the other, and both at once add their own. A study has 6 seeds of 60 documents in two
languages, or another number of seeds, or adds them; the text's standard error is a share of the seeds'. Seeds' noise is
normal, heavy-tailed (t with 4 degrees of freedom), skewed (gamma of shape 4; the same in both arms, or one arm's spread
double the other's), rounded to halves of its deviation (ties), or has runs that diverge: one of ten, in both arms, is
worth a model ten deviations below, the same for all. Differences of only two values (signs) are beyond what is
promised, and counted apart. Documents' differences are normal or skewed; there may be few of them, and what seeds and
documents have in common may be all that seeds vary by. The margin is given, or a quarter of what the
runs' second halves gain, which vary as their scores do. A study of 6 to 14 seeds may be ended after 9 by what has
nothing to do with them, a cap or a person. All numbers are the product's own.

    python benchmarks/calibration.py            # some minutes on one core
    python benchmarks/calibration.py --quick    # a moment, to see that it runs

The last line is a JSON object, also written to results/; a case is named by its rule, noise and the text's share:

- false_verdict_rate: the highest share of studies that name any arm where there is no difference, and its case
- false_equivalence_rate: the highest share that calls arms equivalent a margin apart, or names the worse one
- coverage: of the 95% interval, the lowest share that has the true difference, in studies that have an interval
- power_at_1sd_default: the share of studies by the default rule that name the better arm, with a true difference of one
  deviation of the paired differences and text that adds nothing
- two_valued_false_verdict_rate: the highest, where differences have but two values
- power_gap: the largest distance of realised from planned power, at the difference said to be found with 80%
- table: all cases
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from measure import command_line, publish

from orchestrator import compare_scores
from orchestrator.analysis.statistics.evidence import Evidence, Floats, Items, of_seeds, with_text
from orchestrator.analysis.statistics.planning import POWER, Indices, follow, minimum_detectable_effect
from orchestrator.analysis.statistics.rule import Rule, Verdicts
from orchestrator.config.confirmation import MARGIN_SHARE, ConfirmSpec

DOCUMENTS, LANGUAGES = 60, 2
MARGIN = 0.5
"""In deviations of the paired differences of seeds."""

WORST = -10.0  # what a run that diverged is worth
GAIN_VARIES = 0.25  # of its mean, from run to run; half of a run's own noise is in its second half besides

BATCH = 1000  # studies simulated at once
CHECKED = 5  # studies of a case, of a fixed number of seeds, of which the product's own function says the same

NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]] = {
    "normal": lambda rng, shape: (rng.standard_normal(shape), rng.standard_normal(shape)),
    "heavy": lambda rng, shape: (rng.standard_t(4, shape), rng.standard_t(4, shape)),
    "skewed": lambda rng, shape: (rng.gamma(4, size=shape), rng.gamma(4, size=shape)),
    "unequal": lambda rng, shape: (2 * rng.gamma(4, size=shape) - 4, rng.gamma(4, size=shape)),
    "ties": lambda rng, shape: (np.round(2 * rng.standard_normal(shape)), np.round(2 * rng.standard_normal(shape))),
    "signs": lambda rng, shape: (rng.choice([-1.0, 1.0], shape), np.zeros(shape)),
    "divergence": lambda rng, shape: (_diverging(rng, shape), _diverging(rng, shape)),
}
"""Of two arms; NaN of a run that diverged."""


def _diverging(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.where(rng.random(shape) < 0.1, np.nan, rng.standard_normal(shape))


SPREAD = {
    name: float(np.std(np.subtract(*np.nan_to_num(noise(np.random.default_rng(0), (1_000_000,)), nan=WORST))))
    for name, noise in NOISES.items()
}
"""Deviation of their difference."""


@dataclass(frozen=True)
class Case:
    """Simulated studies of one kind."""

    seeds: int
    most_seeds: int
    noise: str = "normal"
    text: float = 0.0
    """Standard error of the text, over that of the first look's seeds."""
    skewed_text: bool = False
    arms: int = 2
    derived: bool = False
    """Whether the margin is of the runs' gains."""
    ends: int | None = None
    """After how many seeds something else ends it."""
    documents: int = DOCUMENTS
    common: float = 2 / DOCUMENTS
    """Of the variance of a seed's difference, what seeds and documents have in common."""

    @property
    def rule(self) -> Rule:
        """The product's."""
        return Rule(self.seeds, self.most_seeds, MARGIN, self.arms * (self.arms - 1) // 2)

    @property
    def name(self) -> str:
        """In words."""
        seeds = f"{self.seeds}" if self.seeds == self.most_seeds else f"{self.seeds} to {self.most_seeds}"
        text = f"text {self.text:g}{' skewed' * self.skewed_text}"
        besides = f"{', derived margin' * self.derived}{f', ended after {self.ends}' if self.ends else ''}"
        if self.documents != DOCUMENTS:
            besides += f", {self.documents} documents, {self.common:g} in common"
        return f"{seeds} seeds, {self.noise}, {text}, {self.arms} arms{besides}"


FIXED = [Case(n, n, noise, text) for n in (4, 5, 6, 8, 12) for noise in NOISES for text in (0.0, 0.5, 1.0)]
ADAPTIVE = [Case(6, n, noise, text) for n in (14, 20) for noise in NOISES for text in (0.0, 0.5)]
OTHERS = [
    *(Case(6, most, "normal", text, skewed_text=True) for most in (6, 14) for text in (0.5, 2.0)),
    *(Case(6, most, noise, 0.5, arms=arms) for most in (6, 14) for noise in ("normal", "unequal") for arms in (3, 4)),
    *(Case(6, most, noise, 0.5, derived=True) for most in (6, 14) for noise in ("normal", "heavy", "unequal")),
    *(Case(6, 14, noise, text, ends=9) for noise in ("normal", "unequal", "divergence") for text in (0.0, 0.5)),
    *(
        Case(seeds, most, text=text, documents=documents, common=common)
        for seeds, most in ((4, 4), (6, 6), (12, 12), (6, 14))
        for documents in (6, 20)
        for text, common in ((1.0, 1.0), (2.0, 1.0), (2.0, 0.1))
    ),
    *(Case(6, most, text=2.0, documents=6, common=1.0, arms=arms) for most in (6, 14) for arms in (3, 4)),
]
DETECTABLE = [Case(n, n) for n in (4, 6, 12)] + [Case(6, n, arms=arms) for n in (8, 14, 20) for arms in (2, 3)]


def simulate(
    case: Case, lead: float, studies: int, rng: np.random.Generator
) -> dict[tuple[int, int], tuple[Floats, Floats]]:
    """Of every two arms the differences by study, seed and document, in deviations of the paired differences of seeds,
    and by study and number of seeds the margin; the first arm leads the others by so much."""
    shape = (studies, case.most_seeds)
    scores: list[Floats] = []
    gains: list[Floats] = []
    for number in range(case.arms):
        own = NOISES[case.noise](rng, shape)[number % 2] / SPREAD[case.noise] * np.sqrt(1 - case.common)
        size = (studies, 1, case.documents)
        drawn = rng.gamma(4, size=size) / 2 if case.skewed_text else rng.standard_normal(size)
        # Of the text's error two arms have their halves; it is a share of that of the seeds at the first look.
        document = drawn * case.text * np.sqrt(case.documents / case.seeds / 2)
        both = rng.standard_normal((*shape, case.documents)) * np.sqrt(case.common * case.documents / 2)
        score = own[:, :, None] + document + both + (lead if number == 0 else 0.0)
        scores.append(np.where(np.isnan(score), WORST / SPREAD[case.noise], score))
        if case.derived:
            gain = MARGIN / MARGIN_SHARE * (1 + GAIN_VARIES * rng.standard_normal(shape)) + (own - np.mean(own)) / 2
            gains.append(np.stack([np.median(gain[:, : n + 1], axis=1) for n in range(case.most_seeds)], axis=1))
    given = np.full(shape, MARGIN)
    return {
        (a, b): (
            scores[a] - scores[b],
            MARGIN_SHARE * np.maximum(0.0, np.minimum(gains[a], gains[b])) if case.derived else given,
        )
        for a, b in combinations(range(case.arms), 2)
    }


def followed(case: Case, differences: Floats, margin_SN: Floats) -> tuple[Verdicts, Floats, Floats]:
    """Verdicts of the rule; which have an interval; its ends."""
    language = np.arange(case.documents) % LANGUAGES
    mean = np.stack([differences[..., language == own].mean(-1) for own in range(LANGUAGES)], -1)
    influence = (differences - mean[..., language]) / case.documents
    share = 1.0 / np.bincount(language)[language]

    def evidence(n: int, which: Indices) -> Evidence:
        seeds = of_seeds(mean.mean(-1)[which, :n])
        return with_text(seeds, Items(influence[which, :n], language, share)) if case.text else seeds

    def in_margins(n: int, which: Indices) -> Evidence:
        """In units in which the study's margin is that of the rule: its verdicts are the same."""
        found, unit = evidence(n, which), margin_SN[which, n - 1] / MARGIN
        with np.errstate(divide="ignore", invalid="ignore"):  # of a margin of 0 none is equivalent
            scale = np.where(unit > 0, 1 / unit, 1e12)
        return found._replace(
            mean=found.mean * scale,
            seed_variance=found.seed_variance * scale**2,
            text_variance=found.text_variance * scale**2,
            unit_variance=found.unit_variance * scale**2,
        )

    rule = case.rule
    verdicts, looks = follow(rule, len(differences), in_margins)
    rules = np.full(len(differences), rule, dtype=object)
    if case.ends is not None:
        last = replace(rule, maximum=case.ends)
        going = np.flatnonzero((np.array(rule.looks)[looks] > case.ends) | (verdicts == "continue"))
        verdicts[going] = last.verdicts(in_margins(case.ends, going), len(last.looks) - 1)
        looks[going], rules[going] = len(last.looks) - 1, last
    low, high = np.empty(len(differences)), np.empty(len(differences))
    for own in dict.fromkeys(rules):
        for look, n in enumerate(own.looks):
            which = np.flatnonzero((looks == look) & (rules == own))
            if len(which):
                found = evidence(n, which)
                reach = found.reach(float(own.levels[look]))
                low[which], high[which] = found.mean - reach, found.mean + reach
    return verdicts, low, high


def measured(case: Case, lead: float, studies: int, seed: int) -> dict[str, float]:
    """Shares of studies: those that name the leading arm; another, or any without a lead; call arms equivalent."""
    rng, found = np.random.default_rng(seed), []
    for start in range(0, studies, BATCH):
        pairs = simulate(case, lead, min(BATCH, studies - start), rng)
        outcomes = {}
        for (a, b), (differences, margins) in pairs.items():
            truth = lead if a == 0 else 0.0
            verdicts, low, high = followed(case, differences, margins)
            outcomes[a, b] = (truth, verdicts, (low <= truth) & (truth <= high))
            if start == 0 and case.seeds == case.most_seeds and case.arms == 2 and case.text:
                for own, margin, verdict in zip(
                    differences[:CHECKED], margins[:CHECKED, -1], verdicts[:CHECKED], strict=True
                ):
                    language = np.arange(case.documents) % LANGUAGES
                    said = compare_scores(own, np.zeros_like(own), strata=language.tolist(), margin=float(margin))
                    assert said.verdict == verdict, (said, verdict)
        named = np.any([np.isin(v, ("a", "b") if truth == 0 else ("b",)) for truth, v, _ in outcomes.values()], axis=0)
        apart = [float(np.mean(v == "equivalent")) for truth, v, _ in outcomes.values() if truth]
        found.append(
            [
                float(np.mean(outcomes[0, 1][1] == "a")),
                float(np.mean(named)),
                max(apart, default=0.0),
                float(np.mean([covers for _, _, covers in outcomes.values()])),
            ]
        )
    power, false, equivalent, coverage = np.mean(np.array(found), axis=0).round(4).tolist()
    return {"power": power, "false": false, "equivalent": equivalent, "coverage": coverage}


def row_of(case: Case, lead: float, studies: int) -> dict[str, Any]:
    row = {"case": case.name, "lead": lead, "studies": studies} | measured(case, lead, studies, seed=len(case.name))
    print(row, flush=True)
    return row


def promised(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "signs" not in row["case"]]


def worst(rows: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
    """The highest of these values, and its case."""
    found = max(rows, key=key)
    return {"value": abs(round(key(found), 4)), "case": f"{found['case']}, lead {found['lead']:g}"}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    quick = command_line(__doc__, "few studies").parse_args(arguments).quick
    cases = [*FIXED[::17], *ADAPTIVE[::13], *OTHERS[::5]] if quick else [*FIXED, *ADAPTIVE, *OTHERS]
    nulls, others = (40, 40) if quick else (10_000, 2_000)
    null = [row_of(case, 0.0, nulls) for case in cases]
    # As many studies where the margin is the question; elsewhere few tell enough.
    apart = [row_of(case, MARGIN, nulls if case.noise in ("normal", "unequal") else others) for case in cases]
    far = [row_of(case, 1.5, others) for case in cases[:: 1 if quick else 3]]
    detectable = []
    for case in DETECTABLE[:2] if quick else DETECTABLE:
        effect = minimum_detectable_effect(case.rule)
        assert effect is not None
        detectable.append(row_of(case, round(effect, 4), nulls))
    confirm = ConfirmSpec()
    minimum = confirm.stopping.minimum if confirm.stopping else confirm.seeds
    default = row_of(Case(minimum, confirm.seeds), 1.0, nulls)
    result = {
        "false_verdict_rate": worst(promised(null), lambda row: row["false"]),
        "false_equivalence_rate": worst(promised(apart), lambda row: row["equivalent"] + row["false"]),
        "coverage": worst(promised([*null, *apart, *far]), lambda row: -row["coverage"]),
        "power_at_1sd_default": {"value": default["power"], "case": default["case"]},
        "two_valued_false_verdict_rate": worst(null, lambda row: row["false"] * ("signs" in row["case"])),
        "power_gap": worst(detectable, lambda row: abs(row["power"] - POWER)),
        "documents": DOCUMENTS,
        "margin_in_deviations": MARGIN,
        "table": [*null, *apart, *far, *detectable, default],
    }
    publish("calibration", "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
