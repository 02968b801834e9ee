"""Models: sizes against transformers' own, FLOPs against the counter, heads and starting weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, BertForMaskedLM, BertModel, GPTNeoXForCausalLM

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.errors import InputError
from trainables.models.body_config import body_config
from trainables.models.config import SHAPES, ModelConfig
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.learner import Learner
from trainables.objectives.loss import linear_cross_entropy
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)


def make_learner(name, *, model=None, vocabulary=1000, length=32, seed=0, device="cpu", **options):
    objective = find_objective(name)
    config = body_config(
        model or ModelConfig(shape="tiny"), objective.task, vocabulary_size=vocabulary, sequence_length=length
    )
    torch.manual_seed(seed)
    with torch.device(device):
        return Learner(config, objective.of(options))


def make_batch(learner, corpus, num_sequences):
    maker = BatchMaker(learner, TokenStream(corpus, 0, 0.3, 4.0), 0.15, World())
    (part,) = maker.prepare(maker.stream.take(np.arange(num_sequences)), 0)
    return maker.send(part)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"en": 30})


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


# --- FLOPs --------------------------------------------------------------------------------------------------


def test_the_loss_makes_the_three_products_it_states():
    """The counter knows no in-place ``addmm_``; told of it, it counts 6 K C D over all slices."""
    K, C, D = 700, 8192, 24  # two slices
    hidden = torch.randn(K, D, requires_grad=True)
    weight = torch.randn(C, D, requires_grad=True)
    custom = {torch.ops.aten.addmm_: lambda _, a, b, *args, **kwargs: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=custom) as counter:
        linear_cross_entropy(hidden, weight, torch.randint(0, C, (K,))).backward()
    assert counter.get_total_flops() == 6 * K * C * D


# --- shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_shapes_have_the_parameters_of_transformers_models(shape):
    for task in SHAPES[shape]:
        vanilla, headless = ("mlm", "headless_mlm") if task == "masked" else ("clm", "headless_clm")
        learner = make_learner(vanilla, model=ModelConfig(shape=shape), vocabulary=32_000, length=128, device="meta")
        bare = make_learner(headless, model=ModelConfig(shape=shape), vocabulary=32_000, length=128, device="meta")
        with torch.device("meta"):
            if task == "masked":
                whole, body = (BertForMaskedLM(learner.config), BertModel(learner.config, add_pooling_layer=False))
            else:
                whole = AutoModelForCausalLM.from_config(learner.config)
                body = whole.base_model
        assert count_parameters(learner) == count_parameters(whole)
        assert count_parameters(bare) == count_parameters(body)


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        # Non-embedding parameters, from the models' cards.
        ("pythia-14m", 1_189_888),
        ("pythia-31m", 4_739_072),
        ("pythia-70m", 18_915_328),
        ("pythia-160m", 85_056_000),
    ],
)
def test_pythia_shapes_are_pythia_s(shape, published):
    learner = make_learner("headless_clm", model=ModelConfig(shape=shape), vocabulary=8, length=128, device="meta")
    assert count_parameters(learner) - learner.embedding_VD.numel() == published


def test_bert_base_is_bert_base():
    learner = make_learner(
        "headless_mlm", model=ModelConfig(shape="bert-base"), vocabulary=30_522, length=512, device="meta"
    )
    pooler = 768 * 768 + 768
    assert count_parameters(learner) + pooler == 109_482_240


@pytest.mark.parametrize(
    ("model", "task", "fitting", "unfitting"),
    [
        (ModelConfig(shape="bert-small"), "causal", "neox-small", "bert-mini"),
        (ModelConfig(shape="pythia-70m"), "masked", "bert-small", "neox-mini"),
        (ModelConfig(config={"model_type": "bert"}), "causal", "pythia-14m", "distil-mbert"),
        (ModelConfig(config={"model_type": "gpt_neox"}), "masked", "distil-mbert", "pythia-14m"),
    ],
)
def test_a_shape_of_the_wrong_kind_is_refused_with_the_fitting_ones(model, task, fitting, unfitting):
    with pytest.raises(InputError) as error:
        body_config(model, task, vocabulary_size=100, sequence_length=16, where="study.yaml: model")
    assert error.value.where == "study.yaml: model"
    assert fitting in error.value.remedy
    assert "small" in error.value.remedy
    assert unfitting not in error.value.remedy


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"shape": "bert-smal"}, "did you mean 'bert-small'"),
        ({"shape": "tiny", "config": {"model_type": "bert"}}, "exactly one"),
        ({}, "exactly one"),
        ({"config": {"model_type": "llama"}}, "bert, gpt_neox"),
        ({"shape": "tiny", "droput": 0.1}, "droput"),
        ({"config": {"model_type": "bert"}, "dropout": 0.1}, "hidden_dropout_prob"),
    ],
)
def test_model_configurations_that_are_refused(given, hint):
    with pytest.raises(ValueError, match=hint):
        ModelConfig.model_validate(given)


def test_a_configuration_takes_vocabulary_and_length_from_the_study():
    given = ModelConfig(config={"model_type": "bert", "vocab_size": 7, "max_position_embeddings": 9, "hidden_size": 24})
    config = body_config(given, "masked", vocabulary_size=321, sequence_length=64)
    assert (config.vocab_size, config.max_position_embeddings, config.hidden_size) == (321, 64, 24)
    longer = ModelConfig(shape="tiny", position_limit=99)
    assert body_config(longer, "causal", vocabulary_size=8, sequence_length=64).max_position_embeddings == 99


# --- heads and weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vanilla", "headless"), [("mlm", "headless_mlm"), ("clm", "headless_clm")])
def test_arms_with_one_seed_start_from_the_same_body(vanilla, headless):
    one, other = make_learner(vanilla, seed=5), make_learner(headless, seed=5)
    another_seed = make_learner(headless, seed=6)
    weights, others = one.body.state_dict(), other.body.state_dict()
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name
    assert not torch.equal(other.embedding_VD, another_seed.embedding_VD)


def test_bert_s_head_is_tied_and_has_a_transform():
    learner = make_learner("mlm")
    assert learner.head.weight_VD is learner.embedding_VD
    assert learner.head.bias.shape == (1000,)
    assert learner.head.transform is not None
    names = [name for name, _ in learner.named_parameters()]
    assert sum("word_embeddings" in name or "weight_VD" in name for name in names) == 1, "the optimiser has it twice"


def test_neox_s_head_is_untied_and_bare():
    learner = make_learner("clm")
    assert learner.head.weight_VD is not learner.embedding_VD
    assert learner.head.weight_VD.data_ptr() != learner.embedding_VD.data_ptr()
    assert learner.head.bias is None
    assert learner.head.transform is None
    assert float(learner.head.weight_VD.detach().std()) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("name", ["headless_mlm", "headless_clm"])
def test_a_headless_model_has_the_bodys_parameters_only(name):
    learner = make_learner(name)
    assert learner.head is None
    assert count_parameters(learner) == count_parameters(learner.body)


@pytest.mark.parametrize("name", sorted(OBJECTIVES.names()))
def test_logits_are_the_definition(name):
    headless = name.startswith(("headless", "nce"))
    learner = make_learner(name, **({"temperature": 0.7} if headless else {})).eval()
    hidden = torch.randn(6, 128)
    with torch.no_grad():
        if headless:
            table_VD = learner.table_VD if name.startswith("nce") else learner.embedding_VD
            expected = torch.stack([table_VD @ row for row in hidden]) / 0.7
        elif learner.objective.task == "causal":
            expected = hidden @ learner.head.weight_VD.T
        else:
            dense, norm = learner.head.transform.dense, learner.head.transform.LayerNorm
            learner.head.bias.copy_(torch.randn(1000))
            transformed = functional.gelu(hidden @ dense.weight.T + dense.bias)
            transformed = functional.layer_norm(transformed, (128,), norm.weight, norm.bias, norm.eps)
            expected = transformed @ learner.embedding_VD.T + learner.head.bias
        got = learner.logits(hidden)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "whole"), [("mlm", BertForMaskedLM), ("clm", GPTNeoXForCausalLM)])
def test_the_vanilla_loss_is_that_of_transformers_own_model(corpus, name, whole):
    """Same weights in BertForMaskedLM and GPTNeoXForCausalLM: the same loss of the same targets."""
    learner = make_learner(name, length=LENGTH, vocabulary=VOCABULARY).eval()
    theirs = whole(learner.config).eval()
    if name == "mlm":
        theirs.bert.load_state_dict(learner.body.state_dict())
        theirs.cls.predictions.transform.load_state_dict(learner.head.transform.state_dict())
        torch.nn.init.normal_(learner.head.bias)
        theirs.cls.predictions.bias.data.copy_(learner.head.bias.data)
    else:
        theirs.gpt_neox.load_state_dict(learner.body.state_dict())
        theirs.get_output_embeddings().weight.data.copy_(learner.head.weight_VD.data)
    batch = make_batch(learner, corpus, 3)
    label_NL = torch.full(batch.input_NL.shape, -100)
    # transformers shifts a decoder's labels itself.
    label_NL.scatter_(1, batch.position_NT + (name == "clm"), batch.target_K.view(batch.position_NT.shape))
    with torch.no_grad():
        expected = theirs(input_ids=batch.input_NL, labels=label_NL).loss * len(batch.target_K)
        assert float(learner(batch)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["headless_clm", "headless_mlm"])
def test_a_headless_loss_is_the_candidates_share_of_the_logits(corpus, name):
    """Without negatives drawn: cross-entropy of ``logits`` over all targets' columns, duplicates too."""
    learner = make_learner(name, length=LENGTH, vocabulary=VOCABULARY, temperature=0.5).eval()
    batch = make_batch(learner, corpus, 3)
    with torch.no_grad():
        hidden_NLD = learner.hidden(batch.input_NL)
        hidden_KD = torch.stack([hidden_NLD[n, p] for n in range(3) for p in batch.position_NT[n]])
        score_KK = learner.logits(hidden_KD)[:, batch.target_K]
        expected = functional.cross_entropy(score_KK, torch.arange(len(batch.target_K)), reduction="sum")
        assert float(learner(batch)) == pytest.approx(float(expected), rel=1e-5)
