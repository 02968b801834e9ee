"""Choice: which of several texts goes on likeliest from a context? Roemmele et al. 2011; Ponti et al. 2020 (XCOPA,
arXiv 2005.00333)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar

from trainables.errors import nearest
from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.kind import Kind, Row, UnusableError, text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import Passage, Scored

MOST_CHOICES = 10
_CHOICES = tuple(f"choice{number}" for number in range(1, MOST_CHOICES + 1))


class Choice(Kind):
    """Texts: the context, then the choices; label: the right one's number. Right where its log-likelihood, given the
    context, is the highest of all; several that tie share."""

    name: ClassVar[str] = "choice"
    description: ClassVar[str] = "a context and several texts, of which one goes on from it"
    columns: ClassVar[tuple[str, ...]] = ("context", "choice1", "choice2", "label")
    optional: ClassVar[tuple[str, ...]] = (*_CHOICES[2:], "connector")

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        choices = [text(row, name) for name in _CHOICES if name in row]
        numbers = classes or {str(number): number for number in range(len(choices))}
        label = numbers.get(str(row["label"]))
        if label is None or label >= len(choices):
            raise UnusableError(f"its label is {row['label']!r:.60}, which is none of {', '.join(numbers)}")
        context = text(row, "context")
        if task.connectors:
            value, known = str(row.get("connector")), task.connectors.get(language, {})
            if value not in known:
                raise UnusableError(f"its connector is {value!r:.60}: of {language} {nearest(value, known)}")
            context = f"{_without_full_stop(context)} {known[value]}"
            choices = [choice[:1].lower() + choice[1:] for choice in choices]
        return Example((context, *choices), (label,), "")

    def chance(self, examples: Sequence[Example]) -> float:
        return sum(1 / (len(example.texts) - 1) for example in examples) / len(examples)

    def passages(self, examples: Sequence[Example]) -> list[Passage]:
        from trainables.tasks.model import Passage

        joined = [(e.texts[0].rstrip(), choice) for e in examples for choice in e.texts[1:]]
        return [Passage(f"{context} {choice}", len(context)) for context, choice in joined]

    def right(self, scored: Scored, examples: Sequence[Example]) -> NDArray[np.float64]:
        import numpy as np

        from trainables.tasks.kinds.minimal_pairs import ROUNDING

        score_P = scored.log_likelihood_P
        ends = accumulate((len(example.texts) - 1 for example in examples), initial=0)
        found = np.zeros(len(examples))
        for number, (example, (start, end)) in enumerate(zip(examples, pairwise(ends), strict=True)):
            own = score_P[start:end]
            best = own >= own.max() - ROUNDING * max(1.0, abs(own.max()))
            found[number] = best[example.labels[0]] / best.sum()
        return found


def _without_full_stop(sentence: str) -> str:
    """Or whatever sign it ends with."""
    sentence = sentence.strip()
    return sentence[:-1] if unicodedata.category(sentence[-1]).startswith("P") else sentence
