"""Models: sizes against transformers' own, FLOPs against the counter, heads and starting weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertForMaskedLM, BertModel, GPTNeoXForCausalLM, GPTNeoXModel

from trainables.corpora.manifest import FORMAT_VERSION, Manifest
from trainables.corpora.stream import Batch
from trainables.errors import InputError
from trainables.models import learner as learner_module
from trainables.models.learner import Learner
from trainables.models.shapes import SHAPES, ModelConfig, body_config
from trainables.objectives import OBJECTIVES, find_objective
from trainables.objectives.loss import linear_cross_entropy
from trainables.training.batch import BatchMaker

torch.set_num_threads(1)


def make_learner(
    name, *, model=None, vocabulary=1000, length=32, attention="eager", seed=0, device="cpu", **options
):
    objective = find_objective(name)
    config = body_config(
        model or ModelConfig(shape="tiny"),
        objective.task,
        vocabulary_size=vocabulary,
        sequence_length=length,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        return Learner(config, objective, objective.options.model_validate(options), attention)


def make_manifest(vocabulary, length):
    return Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="none",
        vocabulary_size=vocabulary,
        sequence_length=length,
        dtype="uint16",
        pad_token=0,
        mask_token=4,
        separator_token=3,
        special_tokens=(0, 1, 2, 3, 4),
        languages=("en",),
        splits={},
    )


def make_batch(learner, num_sequences, vocabulary, length):
    maker = BatchMaker(
        learner.objective, learner.options, make_manifest(vocabulary, length), 0, 0.15, torch.device("cpu")
    )
    tokens = np.random.default_rng(0).integers(5, vocabulary, (num_sequences, length))
    batch = Batch(tokens, np.zeros(num_sequences, dtype=np.int64), np.arange(num_sequences))
    return maker, maker.make(batch)


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


# --- FLOPs --------------------------------------------------------------------------------------------------


def stored_logits(hidden_KD, weight_CD, target_K, bias_C=None, own_logit_K=None):
    """The same loss in plain torch, all of whose products the counter sees."""
    logits_KC = hidden_KD @ weight_CD.T
    if bias_C is not None:
        logits_KC = logits_KC + bias_C
    if own_logit_K is not None:  # its last column is the position's own candidate
        logits_KC = torch.cat([logits_KC, own_logit_K[:, None]], dim=1)
    return functional.cross_entropy(logits_KC, target_K, reduction="sum")


ENCODERS = [
    ModelConfig(shape="tiny"),
    ModelConfig(
        config={
            "model_type": "bert",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "hidden_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 160,
        }
    ),
]
DECODERS = [
    ModelConfig(shape="tiny"),
    ModelConfig(
        config={
            "model_type": "gpt_neox",
            "hidden_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 160,
        }
    ),
]


@pytest.mark.parametrize("which", [0, 1], ids=["tiny", "odd"])
@pytest.mark.parametrize(("num_sequences", "length", "vocabulary"), [(4, 32, 900), (2, 128, 150)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlm", {}),
        ("clm", {}),
        ("headless_mlm", {}),
        ("headless_clm", {}),
        ("headless_mlm", {"negatives": 16}),
        ("headless_clm", {"negatives": 40}),
    ],
    ids=str,
)
def test_flops_are_what_the_counter_counts(
    monkeypatch, name, options, which, num_sequences, length, vocabulary
):
    model = (ENCODERS if find_objective(name).task == "masked" else DECODERS)[which]
    learner = make_learner(name, model=model, vocabulary=vocabulary, length=length, **options)
    maker, batch = make_batch(learner, num_sequences, vocabulary, length)
    exact = float(learner(batch).detach())
    monkeypatch.setattr(learner_module, "linear_cross_entropy", stored_logits)
    with FlopCounterMode(display=False) as counter:
        loss = learner(batch)
        loss.backward()
    assert float(loss.detach()) == pytest.approx(exact, rel=1e-5), "the reference is another loss"
    stated = learner.flops(num_sequences, length, len(batch.target_K), maker.num_candidates(batch))
    assert stated == pytest.approx(counter.get_total_flops(), rel=0.002)


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
        learner = make_learner(
            vanilla, model=ModelConfig(shape=shape), vocabulary=32_000, length=128, device="meta"
        )
        bare = make_learner(
            headless, model=ModelConfig(shape=shape), vocabulary=32_000, length=128, device="meta"
        )
        with torch.device("meta"):
            if task == "masked":
                whole, body = (
                    BertForMaskedLM(learner.config),
                    BertModel(learner.config, add_pooling_layer=False),
                )
            else:
                whole, body = GPTNeoXForCausalLM(learner.config), GPTNeoXModel(learner.config)
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
    learner = make_learner(
        "headless_clm", model=ModelConfig(shape=shape), vocabulary=8, length=128, device="meta"
    )
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
    given = ModelConfig(
        config={"model_type": "bert", "vocab_size": 7, "max_position_embeddings": 9, "hidden_size": 24}
    )
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
    assert sum("word_embeddings" in name or "weight_VD" in name for name in names) == 1, (
        "the optimiser has it twice"
    )


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


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_logits_are_the_definition(name):
    options = {"temperature": 0.7} if name.startswith("headless") else {}
    learner = make_learner(name, **options).eval()
    hidden = torch.randn(6, 128)
    with torch.no_grad():
        got = learner.logits(hidden)
        if options:
            expected = torch.stack([learner.embedding_VD @ row for row in hidden]) / 0.7
        elif name == "clm":
            expected = hidden @ learner.head.weight_VD.T
        else:
            dense, norm = learner.head.transform.dense, learner.head.transform.LayerNorm
            learner.head.bias.copy_(torch.randn(1000))
            got = learner.logits(hidden)
            transformed = functional.gelu(hidden @ dense.weight.T + dense.bias)
            transformed = functional.layer_norm(transformed, (128,), norm.weight, norm.bias, norm.eps)
            expected = transformed @ learner.embedding_VD.T + learner.head.bias
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "whole"), [("mlm", BertForMaskedLM), ("clm", GPTNeoXForCausalLM)])
def test_the_vanilla_loss_is_that_of_transformers_own_model(name, whole):
    """Same weights in BertForMaskedLM and GPTNeoXForCausalLM: the same loss of the same targets."""
    learner = make_learner(name, length=16, vocabulary=80).eval()
    theirs = whole(learner.config).eval()
    if name == "mlm":
        theirs.bert.load_state_dict(learner.body.state_dict())
        theirs.cls.predictions.transform.load_state_dict(learner.head.transform.state_dict())
        torch.nn.init.normal_(learner.head.bias)
        theirs.cls.predictions.bias.data.copy_(learner.head.bias.data)
    else:
        theirs.gpt_neox.load_state_dict(learner.body.state_dict())
        theirs.get_output_embeddings().weight.data.copy_(learner.head.weight_VD.data)
    _, batch = make_batch(learner, 3, 80, 16)
    label_NL = torch.full(batch.input_NL.shape, -100)
    # transformers shifts a decoder's labels itself.
    label_NL.view(-1)[batch.position_K + (name == "clm")] = batch.target_K
    with torch.no_grad():
        expected = theirs(input_ids=batch.input_NL, labels=label_NL).loss * len(batch.target_K)
        assert float(learner(batch)) == pytest.approx(float(expected), rel=1e-5)


def test_a_headless_loss_is_the_candidates_share_of_the_logits():
    """Without negatives drawn: cross-entropy of ``logits`` over all targets' columns, duplicates too."""
    learner = make_learner("headless_clm", length=16, vocabulary=40, temperature=0.5).eval()
    _, batch = make_batch(learner, 3, 40, 16)
    with torch.no_grad():
        hidden_KD = learner.hidden(batch.input_NL).flatten(0, 1)[batch.position_K]
        score_KK = learner.logits(hidden_KD)[:, batch.target_K]
        expected = functional.cross_entropy(score_KK, torch.arange(len(batch.target_K)), reduction="sum")
        assert float(learner(batch)) == pytest.approx(float(expected), rel=1e-5)
