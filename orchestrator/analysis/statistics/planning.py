"""What a number of pairs can find, asked before they are run; and what would settle a question, asked after."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.statistics.evidence import Evidence, Floats, of_first, satterthwaite
from orchestrator.analysis.statistics.rule import FEWEST, FEWEST_EQUIVALENT, Rule, Verdicts, kept_back
from orchestrator.config.confirmation import ALPHA

Indices = NDArray[np.intp]

POWER = 0.8  # chance with which what is planned or asked for would settle a difference
MOST_SEEDS = 1000  # where more pairs than this would be needed, no number is given: it would be no advice
MOST_TEXT = 1000  # times as much text, likewise
OF_LOOKS = 1 / 3
"""Of the level, about what a test at the last of many looks would have, were it to find alone what all of them find:
0.36 to 0.48 of two arms, 0.24 to 0.3 of three and four."""

SIMULATED = 8000  # studies simulated for a power: its standard error is below 0.005
MOST_NUMBERS = 4_000_000  # drawn for them: of a thousand pairs there are half as many studies


def follow(rule: Rule, studies: int, evidence: Callable[[int, Indices], Evidence]) -> tuple[Verdicts, Indices]:
    """Verdicts of simulated studies, and the look that each rests on; ``evidence`` is that of the first n pairs of the
    studies of these numbers."""
    verdicts, looks = np.full(studies, "undecided", dtype=object), np.zeros(studies, dtype=np.intp)
    going = np.arange(studies)
    for look, n in enumerate(rule.looks):
        verdicts[going], looks[going] = rule.verdicts(evidence(n, going), look), look
        going = going[verdicts[going] == "continue"]
    return verdicts, looks


@lru_cache(maxsize=4096)
def power(
    rule: Rule, difference: float, deviation: float, text_error: float = 0.0, text_degrees: float = math.inf
) -> float:
    """The chance that the rule names the better arm, by simulation: normal differences of this mean and deviation
    (above 0) by seed, and text with this standard error, all in the yardstick's unit as the margin is. ``text_degrees``
    of freedom has what a study knows of that error."""
    if rule.minimum > MOST_SEEDS:  # from so many on, more are as good as these with a smaller deviation
        fewer = replace(rule, minimum=MOST_SEEDS, maximum=MOST_SEEDS)
        return power(fewer, difference, deviation * (MOST_SEEDS / rule.maximum) ** 0.5, text_error, text_degrees)
    mean_SN, variance_SN, text_S = _normal_studies(rule.maximum)
    lead_S, error = difference / deviation + text_error / deviation * text_S, np.float64(text_error / deviation)
    known_S = np.full_like(text_S, error**2)
    if text_error and math.isfinite(text_degrees):
        known_S *= np.random.default_rng(1).chisquare(text_degrees, len(text_S)) / text_degrees

    def evidence(n: int, which: Indices) -> Evidence:
        mean = lead_S[which] + mean_SN[which, n - 1]
        return Evidence(n, mean, variance_SN[which, n - 1], known_S[which], np.float64(text_degrees))

    verdicts, _ = follow(replace(rule, margin=rule.margin / deviation), len(text_S), evidence)
    return float(np.mean(verdicts == ("a" if difference > 0 else "b")))


@lru_cache(maxsize=1024)
def minimum_detectable_effect(
    rule: Rule, deviation: float = 1.0, text_error: float = 0.0, text_degrees: float = math.inf
) -> float | None:
    """The smallest true difference, to 1/500 of it, that the rule would name with a chance of ``POWER``. None where
    nothing varies, or where there are too few pairs for a verdict."""
    if not rule.looks or deviation == 0:
        return None
    low, high = 0.0, deviation
    while power(rule, high, deviation, text_error, text_degrees) < POWER:
        low, high = high, 2 * high
    while high - low > high / 500:
        middle = (low + high) / 2
        enough = power(rule, middle, deviation, text_error, text_degrees) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


class Settling(NamedTuple):
    """What would settle a question, should mean and spread stay as observed: either of the two is enough alone. Where
    neither is, both together may be."""

    seeds: int | None
    """More pairs; None: no practical number."""
    text: float | None
    """Times as much held-out text; None: no practical amount, or text is not what limits."""


def what_would_settle(rule: Rule, found: Evidence) -> Settling:
    """The least that has a chance of ``POWER`` to bring a verdict, a winner of this sign or equivalence: by the normal
    distribution around Student's quantiles. An estimate from few pairs is itself uncertain: an order of size. Of fewer
    than two pairs: what it takes for any verdict."""
    n, mean = found.n, abs(float(found.mean))
    if n < 2:
        return Settling(FEWEST - n, None)
    spendable = (1 - kept_back(max(min(n, rule.minimum), FEWEST), rule.family_size)) * ALPHA
    if rule.minimum < rule.maximum:
        spendable *= OF_LOOKS
    text, of_seeds = float(found.text_variance), float(found.seed_variance) * n
    common = max(float(found.unit_variance) - text, 0.0) * n
    of_both = min(common, of_seeds)  # more text takes it away too

    def settles(pairs: Floats, share: Floats) -> NDArray[np.bool_]:
        seeds = (of_seeds - of_both + of_both / share) / pairs
        error = np.maximum(np.sqrt(seeds + text / share), np.finfo(np.float64).tiny)
        units = (text + common / pairs) / share
        degrees = np.asarray(satterthwaite(seeds, pairs - 1, text / share, found.text_degrees * share, units))
        centre = mean / error
        named = special.stdtrit(degrees, 1 - spendable / rule.family_size / 2)
        within = rule.margin / error - special.stdtrit(degrees, 1 - spendable)
        within = np.where((pairs >= FEWEST_EQUIVALENT) & (rule.margin > 0), np.maximum(within, 0.0), 0.0)
        wins = special.ndtr(centre - np.maximum(named, within)) * ((pairs >= FEWEST) & (mean > 0))
        same = special.ndtr(within - centre) - special.ndtr(-within - centre)
        return np.asarray(wins + same >= POWER)

    pairs = np.arange(max(n + 1, FEWEST), MOST_SEEDS + 1, dtype=np.float64)
    enough = settles(pairs, np.ones_like(pairs))
    shares = 2.0 ** np.arange(0.5, np.log2(MOST_TEXT), 0.5)
    enough_text = settles(np.full_like(shares, n), shares)
    return Settling(
        int(pairs[np.argmax(enough)]) - n if enough.any() else None,
        float(shares[np.argmax(enough_text)]) if text > 0 and enough_text.any() else None,
    )


@lru_cache(maxsize=4)
def _normal_studies(maximum: int) -> tuple[Floats, Floats, Floats]:
    """Means of the first n standard normal differences of simulated studies, their variances, and what text adds."""
    rng = np.random.default_rng(0)
    mean_SN, variance_SN = of_first(rng.standard_normal((min(SIMULATED, MOST_NUMBERS // maximum), maximum)))
    return mean_SN, variance_SN, rng.standard_normal(len(mean_SN))
