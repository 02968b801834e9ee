"""A small learner in double precision of every objective, with every option."""

from __future__ import annotations

import pytest
import torch
from trainables.models.learner import Learner
from trainables.models.shapes import ModelConfig, body_config

from tests.helpers.corpus import LENGTH, VOCABULARY
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.registry import CombinedOptions, ContrastiveOptions, SampledOptions, TiedOptions

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
CASES = [
    pytest.param(name, family, options, id=f"{name}-{family}-{options}")
    for name, objective in OBJECTIVES.items()
    for family in (["bert"] if objective.task == "masked" else ["gpt_neox", "gpt2"])
    for options in VARIATIONS.get(objective.options, [{}])
]


def make_learner(name, family, options, dtype=torch.float64, **arguments):
    objective = find_objective(name)
    model = ModelConfig(config={"model_type": family, **SMALL[family]})
    config = body_config(model, objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH)
    torch.manual_seed(0)
    learner = Learner(config, objective, objective.options.model_validate(options), **arguments)
    return learner.to(dtype)
