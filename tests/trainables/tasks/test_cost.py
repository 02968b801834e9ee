"""What asking costs, foreseen: against what torch counts while a model is asked."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.word_models import language_model, small_body, word_tokenizer
from trainables.models.config import TASKS
from trainables.tasks.cost import zero_shot_flops
from trainables.tasks.examples import Example
from trainables.tasks.kinds import KINDS

torch.set_num_threads(1)
WORDS = [f"w{number}" for number in range(40)]


def sentence(start, length):
    return " ".join(WORDS[(start + place) % 40] for place in range(length))


EXAMPLES = {
    "minimal_pairs": [Example((sentence(n, 9), sentence(n + 20, 9)), (), str(n)) for n in range(12)],
    "cloze": [Example((sentence(n, 9), WORDS[(n + 8) % 40]), (), str(n)) for n in range(12)],
    "choice": [Example((sentence(n, 6), sentence(n + 9, 3), sentence(n + 20, 3)), (0,), str(n)) for n in range(12)],
}


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("family", ["bert", "gpt_neox"])
def test_the_forecast_is_a_bound_and_no_wild_one(family, kind):
    """Above it: what passages share is asked once, and an encoder's last layer is at the scored tokens alone."""
    tokenizer = word_tokenizer(WORDS)
    config, body = small_body(family, tokenizer)
    model, examples = language_model(family, tokenizer, body, config), EXAMPLES[kind]
    with FlopCounterMode(display=False) as counted:
        KINDS.find(kind)().answers(model, examples)

    def num_tokens(texts):
        return [len(text.split()) for text in texts]

    foreseen = len(examples) * zero_shot_flops(config, TASKS[family], KINDS.find(kind)(), examples, num_tokens)
    assert 0.3 * foreseen <= counted.get_total_flops() <= foreseen
