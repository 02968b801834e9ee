"""Which margin of equivalence the held-out text can resolve, asked before a model is trained.

Text adds a chance of its own to every difference, however many seeds there are. How much is foreseen by two models that
need no training, the tables of single tokens and of pairs of neighbours: their difference has a standard error by text,
and two arms are more alike than these (0.6 to 0.9 times it in the demo).
"""

from __future__ import annotations

from typing import NamedTuple

from scipy import special

from orchestrator.analysis.held_out_text import text_error
from orchestrator.analysis.statistics.planning import POWER
from orchestrator.analysis.statistics.rule import FEWEST_EQUIVALENT, kept_back
from orchestrator.config.confirmation import ALPHA
from orchestrator.config.study import StudySpec
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.item_scores import from_parquet, to_parquet
from trainables.evaluation.tables import take_of_tables

LEAST_SHARE = 0.5  # of the tables' error by text, which that of two arms hardly falls below


class Resolution(NamedTuple):
    """Margins of the primary yardstick, in its unit, that held-out text can resolve."""

    error: float
    """Standard error by text of the difference of the tables."""
    hopeless: float
    """Below it no number of seeds finds two equal arms equivalent."""
    enough: float
    """From it on many seeds find them so with a chance of 80%."""


def resolution_of(spec: StudySpec, corpus: PackedCorpus) -> Resolution | None:
    """Of a prepared corpus; None where the primary yardstick is none of tables, or of units of text."""
    primary = spec.yardsticks.primary
    errors = []
    held_out = HeldOut(corpus, spec.yardsticks.evaluation, "test")
    for task in {arm.learned.task for arm in spec.arms.values()}:
        tables = take_of_tables(held_out, task, (primary,))
        items = {kind: taken.items for kind, taken in tables.items()}
        if not all(items.values()):
            return None
        scores = from_parquet(to_parquet(items), "the tables")
        if scores[primary, "unigram"].transform != "identity":  # there the scale is that of the models' own values
            return None
        error = text_error(scores[primary, "bigram"], scores[primary, "unigram"])
        if error is None:
            return None
        errors.append(error)
    error = max(errors)
    quantile = special.ndtri(1 - (1 - kept_back(FEWEST_EQUIVALENT, spec.num_compared_pairs)) * ALPHA)
    hopeless = float(quantile * LEAST_SHARE * error)
    return Resolution(error, hopeless, float((quantile + special.ndtri((1 + POWER) / 2)) * error))


def require_resolvable(spec: StudySpec, corpus: PackedCorpus) -> str:
    """A warning where the study's margin asks much of its held-out text; empty where it does not, or names none. Raises
    InputError where no number of seeds could find two arms equivalent."""
    margin = spec.confirm.margin
    if margin is None or not spec.num_compared_pairs or (found := resolution_of(spec, corpus)) is None:
        return ""
    more = "more held-out text: yardsticks.evaluation.sequences_per_language, corpora.test_share"
    if margin < found.hopeless:
        raise InputError(
            f"the held-out text cannot resolve a margin of {margin:g}",
            where="confirm.margin",
            why=f"text alone leaves differences of {spec.yardsticks.primary} uncertain by about {found.error:.2g} "
            "(standard error of the difference of two tables of counts), so that no number of seeds could call two "
            "arms equivalent",
            remedy=f"--set confirm.margin={found.enough:.2g}, the smallest that this text resolves four times in five; "
            f"or {more}; --set name=ANOTHER besides, where the study has begun",
        )
    if margin < found.enough:
        return (
            f"A margin of {margin:g} asks much of this held-out text: from {found.enough:.2g} on equal arms would be "
            f"called equivalent four times in five, given the seeds. Else {more}."
        )
    return ""
