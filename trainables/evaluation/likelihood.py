"""Likelihood of held-out text: what a model's whole distribution over the vocabulary is worth, in nats a token.

The tokens are those of :mod:`trainables.evaluation.recovery`. An encoder's likelihood of its masked tokens, given all
the others, is a pseudo-likelihood, which is not comparable with a decoder's. Every arm has a distribution by the
scorer that its objective implies (``Objective.scorers``): that of a contrastive loss has the unigram's as its prior.

Perplexities depend on the tokenizer; a decoder's bits per byte do not (arXiv 2101.00027, section 3.1). An encoder's do:
the smaller its tokens, the more often it sees the rest of a masked word. A separator or unknown token costs nats but
stands for no bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainables.evaluation.yardstick import Items, Yardstick

if TYPE_CHECKING:
    from trainables.evaluation.passes import Taking


class Perplexity(Yardstick):
    """exp of the mean nats a token."""

    name = "perplexity"
    description = (
        "exp of the mean negative log-likelihood of held-out tokens: all for a decoder, masked ones for an encoder"
    )
    higher_is_better = False
    transform = "exp"

    def items(self, taking: Taking) -> Mapping[str, Items]:
        return taking.by_document(lambda tokens: tokens.nats_K)


class BitsPerByte(Yardstick):
    """All bits over all bytes."""

    name = "bits_per_byte"
    description = (
        "the same likelihood in bits, over the UTF-8 bytes of the tokens: a decoder's does not depend on the tokenizer"
    )
    higher_is_better = False

    def items(self, taking: Taking) -> Mapping[str, Items]:
        bytes_V = taking.held_out.token_bytes_V
        return taking.by_document(lambda tokens: tokens.nats_K / math.log(2), lambda tokens: bytes_V[tokens.token_K])
