"""What it costs to ask a model a zero-shot task, before there is a model. Letters: P passages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainables.models.config import Task
from trainables.models.flops import scoring_flops
from trainables.tasks.examples import Example
from trainables.tasks.kinds import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SAMPLE = 100  # examples whose tokens are counted
SPECIAL_TOKENS = 2  # around a text


def zero_shot_flops(
    config: PreTrainedConfig,
    task: Task,
    kind: Kind,
    examples: Sequence[Example],
    num_tokens: Callable[[Sequence[str]], Sequence[int]],
) -> float:
    """Forward FLOPs of an example in the mean over the first of them, at most: what passages have in common is counted
    in each. ``num_tokens`` counts those of texts.

    A decoder sees a passage once. An encoder sees it once for each token that is scored
    (``within_word_l2r``: Kauf and Ivanova 2023, arXiv 2305.10588).
    """
    sample = examples[:SAMPLE]
    passages = kind.passages(sample)
    length_P = num_tokens([passage.text for passage in passages])
    given_P = num_tokens([passage.text[: passage.start] for passage in passages])
    flops = 0
    for length, given in zip(length_P, given_P, strict=True):
        scored = max(1, length - given)
        inputs = scored if task == "masked" else 1
        flops += scoring_flops(config, inputs, length + SPECIAL_TOKENS, scored)
    return flops / len(sample)
