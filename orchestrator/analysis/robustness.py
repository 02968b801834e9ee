"""Whether a verdict is the same where a choice of the analysis is another. None of this decides anything.

Each variant changes one thing: how the models score the vocabulary, the text (each language left out, each half of its
units), what a run that broke or was lost counts as, the budget (where the runs have branches), the margin. Its verdict
is that of the look that the answer rests on; with other numbers of pairs, that of as many that were fixed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from orchestrator import formatting
from orchestrator.analysis.comparison import Variant
from orchestrator.analysis.held_out_text import evidence_of, evidence_of_items, items_of
from orchestrator.analysis.selection import Runs
from orchestrator.analysis.statistics.evidence import Evidence
from orchestrator.analysis.statistics.rule import FEWEST, Rule
from orchestrator.analysis.worth import Pairs, Worth, pairs_of
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_items
from orchestrator.ledger.records import BROKEN
from trainables.evaluation.item_scores import ItemScores

_ItemsOf = Callable[[Worth], ItemScores | None]

HALVES = ("the even half of the text", "the odd half of the text")


def variants(
    history: History,
    names: tuple[str, str],
    runs: tuple[Runs, Runs],
    branches: Mapping[float, tuple[Runs, Runs]],
    rule: Rule,
) -> tuple[Variant, ...]:
    """Of two arms' runs that an answer rests on; the rule is that of the answer. Raises InputError where a file of item
    scores is gone or another."""
    primary = history.design.yardsticks.primary

    def verdict(found: Evidence, margin: float) -> str:
        if found.n < FEWEST:
            return "undecided"
        looks = rule if found.n in rule.looks else replace(rule, minimum=found.n, maximum=found.n)
        said: str = replace(looks, margin=margin).verdicts(found, looks.looks.index(found.n)).item()
        lower = history.design.lower_is_better(primary)
        return {"a": names[lower], "b": names[1 - lower], "continue": "undecided"}.get(said, said)

    pairs = pairs_of(history, primary, *runs)
    whole = evidence_of(history, primary, pairs)
    found = [
        (name, evidence, rule.margin)
        for name, evidence in _evidence(history, pairs, runs, branches)
        # Without the chance of the text a part would seem surer than the whole.
        if np.isfinite(evidence.text_degrees) or not np.isfinite(whole.text_degrees)
    ]
    if rule.margin:  # what was found within it is so within twice of it
        equivalent = verdict(whole, rule.margin) == "equivalent"
        name, times = ("with half the margin", 0.5) if equivalent else ("with twice the margin", 2.0)
        found.append((name, whole, times * rule.margin))
    return tuple(
        Variant(
            name=name if own.n >= FEWEST else f"{name}, {formatting.plural(own.n, 'pair')}",
            verdict=verdict(own, margin),
        )
        for name, own, margin in found
    )


def _evidence(
    history: History, pairs: Pairs, runs: tuple[Runs, Runs], branches: Mapping[float, tuple[Runs, Runs]]
) -> Iterator[tuple[str, Evidence]]:
    for name, change in _changes(history, pairs):
        known = [(change(a), change(b)) for a, b in pairs.values()]
        whole = [(a, b) for a, b in known if a is not None and b is not None]
        if len(whole) == len(pairs):
            yield name, evidence_of_items(whole)
    primary, outcomes = history.design.yardsticks.primary, {run.outcome for side in runs for run in side.values()}
    of_pairs = partial(pairs_of, history, primary)
    if outcomes & {*BROKEN}:
        yield "without the runs that broke", evidence_of(history, primary, of_pairs(*runs, broken=()))
    if "lost" in outcomes:
        as_broken = of_pairs(*runs, broken=("lost", *BROKEN))
        yield "with lost runs as broken ones", evidence_of(history, primary, as_broken)
    for share, sides in branches.items():
        yield f"at {share:.0%} of the budget", evidence_of(history, primary, of_pairs(*sides))


def _changes(history: History, pairs: Pairs) -> Iterator[tuple[str, _ItemsOf]]:
    """Other scores by item, by the name of what is changed."""
    models = [worth for pair in pairs.values() for worth in pair if not worth.untrained]
    own = partial(items_of, history, history.design.yardsticks.primary)
    first = own(models[0]) if models else None
    if first is None:
        return
    for scorer in dict.fromkeys(name for worth in models for name in worth.of.measures[-1].other_scorers):
        yield f"scored by {scorer} where a model can be", partial(_scored, history, scorer)
    languages = list(dict.fromkeys(first.language_I.tolist()))
    for language in languages if len(languages) > 1 else ():
        yield f"without {language}", partial(_without, own, language)
    for number, half in enumerate(HALVES):
        yield f"by {half}", partial(_half, own, number)


def _scored(history: History, scorer: str, worth: Worth) -> ItemScores | None:
    primary = history.design.yardsticks.primary
    if worth.untrained or history.folder is None:
        return items_of(history, primary, worth)
    return read_items(history.folder, worth.of).get((primary, scorer)) or items_of(history, primary, worth)


def _without(own: _ItemsOf, language: str, worth: Worth) -> ItemScores | None:
    items = own(worth)
    return None if items is None else items.some(items.language_I != language)


def _half(own: _ItemsOf, number: int, worth: Worth) -> ItemScores | None:
    """None where a language has no unit in this half."""
    items = own(worth)
    if items is None:
        return None
    kept = items.some(items.item_I % 2 == number)
    return kept if set(kept.language_I) == set(items.language_I) else None
