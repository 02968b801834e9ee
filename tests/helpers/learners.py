"""A small learner in double precision of every objective, with every option."""

from __future__ import annotations

import torch

from tests.helpers.corpus import LENGTH, VOCABULARY
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.combined import CombinedOptions
from trainables.objectives.contrastive import ContrastiveOptions, TiedOptions
from trainables.objectives.learner import Learner
from trainables.objectives.sampled_softmax import SampledOptions

SMALL = {
    "bert": {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "gpt_neox": {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "rotary_pct": 0.5,
    },
    "gpt2": {
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 3,
        "n_inner": 40,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
}
VARIATIONS = {
    ContrastiveOptions: [
        {},
        {"temperature": 0.3, "learn_temperature": True},
        {"negatives": 9},
        {"negatives": 9, "log_q": True},
        {"log_q": True, "temperature": 2.0},
        {"gathered": False, "negatives": 5},
        {"negatives": 80, "beyond_batch": "vocabulary"},
        {"negatives": 80, "beyond_batch": "queue", "log_q": True},
    ],
    SampledOptions: [{}, {"samples": 12}, {"samples": 12, "proposal": "uniform"}],
}
VARIATIONS[TiedOptions] = [*VARIATIONS[ContrastiveOptions], {"detached": True}]
VARIATIONS[CombinedOptions] = [{}, {"negatives": 9, "contrastive_weight": 0.4}]
FAMILIES = {"masked": ["bert"], "causal": ["gpt_neox", "gpt2"]}
CASES = [
    (objective.name, family, options)
    for objective in OBJECTIVES
    for family in FAMILIES[objective.task]
    for options in VARIATIONS.get(objective.Options, [{}])
]


def make_learner(name, family, options, dtype=torch.float64, **arguments):
    objective = find_objective(name) if isinstance(name, str) else name
    model = ModelConfig(config={"model_type": family, **SMALL[family]})
    config = body_config(model, objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH)
    torch.manual_seed(0)
    log_unigram_V = torch.linspace(-9, -2, VOCABULARY)  # drawn weights are to stay what they are
    learner = Learner(config, objective.of(options), log_unigram_V=log_unigram_V, **arguments)
    return learner.to(dtype)
