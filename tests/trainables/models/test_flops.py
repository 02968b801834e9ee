"""FLOPs of the real step, its own loss included, against torch's counter: the model's, and what is computed again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.shapes import full_size_configs
from trainables.corpora.stream.token_stream import TokenStream
from trainables.evaluation import EvaluationConfig
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.passes import take
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.models.flops import recomputed_flops, scoring_flops
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.learner import Learner
from trainables.training.batch import BatchMaker
from trainables.training.config import TrainingConfig
from trainables.training.stepper import Stepper
from trainables.training.world import World

torch.set_num_threads(1)

SMALL = {
    "bert": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40},
    "gpt_neox": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40},
    "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 40},
}
DROPOUT = {"bert": "hidden_dropout_prob", "gpt_neox": "hidden_dropout", "gpt2": "resid_pdrop"}


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 300, "fr": 60})
    return TokenStream(corpus, 3, 0.3, 4.0)


def in_place_product(out, a, b, **_):
    """2 a multiply-add. The counter knows the product that makes a tensor, not the one that adds to it in place."""
    return 2 * a[0] * a[1] * b[1]


def counted(function):
    # The counter knows nothing of the CPU's flash attention.
    mapping = {torch.ops.aten.addmm_: in_place_product}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("again", [False, True], ids=["stored", "recomputed"])
@pytest.mark.parametrize(
    ("name", "family"),
    [
        (objective.name, family)
        for objective in OBJECTIVES
        for family in (["bert"] if objective.task == "masked" else ["gpt_neox", "gpt2"])
    ],
)
def test_a_step_computes_what_it_is_billed(stream, name, family, again, dropout):
    objective = find_objective(name)
    model = ModelConfig(config={"model_type": family, **SMALL[family], DROPOUT[family]: dropout})
    config = body_config(model, objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH)
    learner = Learner(config, objective.of({})).train()
    training = TrainingConfig(activation_checkpointing=again, micro_batch_sequences=5, embedding_update="dense")
    stepper = Stepper(learner, stream, training, World())
    step = stepper.prepare(stream.take(np.arange(40, 52)), 40)
    assert len(step.parts) == 3
    assert step.hardware_flops == pytest.approx(counted(lambda: stepper.gradients(step)), rel=0.01)
    assert (step.hardware_flops > 1.1 * step.flops) if again else (step.hardware_flops == step.flops)


@pytest.mark.parametrize(
    ("name", "family"), [("mlm", "bert"), ("headless_mlm", "bert"), ("clm", "gpt_neox"), ("headless_clm", "gpt2")]
)
def test_an_evaluation_computes_what_is_planned(stream, name, family):
    objective = find_objective(name)
    model = ModelConfig(config={"model_type": family, **SMALL[family]})
    config = body_config(model, objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH)
    learner, text = Learner(config, objective.of({})), HeldOut(stream.corpus, EvaluationConfig(), "test")
    num_targets = len(text.targets(objective.task).target_K)
    stated = scoring_flops(config, len(text.token_NL), LENGTH, num_targets)
    found = counted(lambda: take(learner, text, ("perplexity", "recovery_mrr")))
    transform = 2 * num_targets * 24 * 24 if name == "headless_mlm" else 0  # it has none
    assert stated - transform == pytest.approx(found, rel=0.01)


def fake(mode, value):
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value)
    if isinstance(value, tuple):
        return type(value)(*(fake(mode, item) for item in value))
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlm", "clm"])
def test_recomputation_of_every_shape_in_full_size(stream, name):
    """Without memory for it. What is computed again is of the body, and so the same for every objective of a task.

    Without recomputation: ``tests/trainables/objectives/test_registry.py``.
    """
    objective = find_objective(name)
    for shape, config in full_size_configs(objective):
        mode = FakeTensorMode()
        with mode:
            learner = Learner(config, objective.of({})).train()
        learner.config.use_cache = False
        learner.body.gradient_checkpointing_enable({"use_reentrant": False})
        maker = BatchMaker(learner, stream, 0.3, World())
        (part,) = maker.prepare(stream.take(np.arange(40, 52)), 40)
        micro_batch = fake(mode, maker.send(part))
        stated = learner.flops(12, LENGTH, part.num_targets, part.num_candidates)
        stated += recomputed_flops(config, 12, LENGTH, part.num_targets)
        with mode:
            total = counted(lambda learner=learner, micro_batch=micro_batch: learner(micro_batch).backward())
        assert stated == pytest.approx(total, rel=0.01), shape
