"""Likelihood of held-out text: what a model's whole distribution over the vocabulary is worth, in nats a token.

A decoder's is that of every token of a sequence but the first, given the tokens before it. An encoder's is that of the
tokens that recovery masks (:mod:`trainables.evaluation.recovery`), given all the others: a pseudo-likelihood, which is
not comparable with a decoder's. A headless model without a head is scored by its input embedding, which was
trained to tell the tokens of a batch apart and not to give probabilities: restore its head first (in arXiv 2309.08351
that takes Pythia-70M's perplexity on LAMBADA from 524 to 154).

Perplexities depend on the tokenizer; a decoder's bits per byte do not (arXiv 2101.00027, section 3.1). An encoder's do:
the smaller its tokens, the more often it sees the rest of a masked word. A separator or unknown token costs nats but
stands for no bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainables.config import LARGEST
from trainables.evaluation.yardstick import Score, Yardstick

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.evaluation.passes import Taking

WORST = LARGEST / 10  # a mean of several is rounded, and must fit into a record too


class Perplexity(Yardstick):
    """exp of the mean nats a token."""

    name = "perplexity"
    description = (
        "exp of the mean negative log-likelihood of held-out tokens: all for a decoder, masked ones for an encoder"
    )
    higher_is_better = False

    def measure(self, taking: Taking) -> Score:
        """Overall: the geometric mean of the languages' perplexities, so that each counts the same."""
        import numpy as np

        mean_nats = {language: float(np.mean(found.nats_K)) for language, found in taking.nats.items()}
        overall = perplexity(float(np.mean(list(mean_nats.values()))))
        languages = {language: perplexity(nats) for language, nats in mean_nats.items()}
        return Score(overall=overall, languages=languages)


class BitsPerByte(Yardstick):
    """All bits over all bytes."""

    name = "bits_per_byte"
    description = (
        "the same likelihood in bits, over the UTF-8 bytes of the tokens: a decoder's does not depend on the tokenizer"
    )
    higher_is_better = False

    def measure(self, taking: Taking) -> Score:
        bytes_V = taking.held_out.token_bytes_V
        return taking.mean(
            {language: bits_per_byte(found.nats_K, bytes_V[found.target_K]) for language, found in taking.nats.items()}
        )


def perplexity(mean_nats: float) -> float:
    """exp of the mean nats a token, at most :data:`WORST`."""
    return math.exp(min(mean_nats, math.log(WORST)))


def bits_per_byte(nats_K: NDArray[np.float64], bytes_K: NDArray[np.int64]) -> float:
    """All bits over all UTF-8 bytes, at most :data:`WORST`: text of unknown tokens alone has no bytes."""
    num_bytes = int(bytes_K.sum())
    return min(float(nats_K.sum()) / math.log(2) / num_bytes, WORST) if num_bytes else WORST
