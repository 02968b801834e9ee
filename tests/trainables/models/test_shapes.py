"""Shapes of the three families against the released models' configurations; pretrained models to go on from."""

from __future__ import annotations

import json

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, GPT2Config, GPTNeoXConfig

from trainables.errors import InputError
from trainables.models.body_config import body_config
from trainables.models.config import SHAPES, ModelConfig
from trainables.models.flops import feed_forward_size

TINY = {
    "bert": BertConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    ),
    "gpt_neox": GPTNeoXConfig(
        vocab_size=304,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    ),
    "gpt2": GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0),
}
TASK = {"bert": "masked", "gpt_neox": "causal", "gpt2": "causal"}


def make(model, task="causal", vocabulary=1000, length=32):
    return body_config(ModelConfig.model_validate(model), task, vocabulary_size=vocabulary, sequence_length=length)


def parameters(config, kind=AutoModel):
    with torch.device("meta"):
        return sum(p.numel() for p in kind.from_config(config).parameters())


# --- named shapes -------------------------------------------------------------------------------------------


def test_gpt2_is_the_released_one():
    config = make({"shape": "gpt2"}, vocabulary=50_257, length=1024)
    released = {"n_inner": None, "vocab_size": 50_257, "n_positions": 1024}  # all else is GPT2Config's default
    ours = config.to_dict()
    for key, value in GPT2Config(**released).to_dict().items():
        if key not in ("n_inner", "resid_pdrop", "embd_pdrop", "attn_pdrop", "bos_token_id", "eos_token_id"):
            assert ours[key] == value, key
    assert parameters(config, AutoModelForCausalLM) == 124_439_808
    assert config.tie_word_embeddings


def test_the_papers_small_decoder():
    config = make({"shape": "gpt2-192"})
    assert (config.n_embd, config.n_head, config.n_layer, feed_forward_size(config)) == (192, 3, 3, 768)
    layer = 4 * 192**2 + 4 * 192 + 2 * 192 * 768 + 768 + 192 + 4 * 192
    assert parameters(config) == (1000 + 32) * 192 + 3 * layer + 2 * 192


@pytest.mark.parametrize(
    ("shape", "released"),
    [  # from the config.json of EleutherAI/pythia-*
        ("pythia-70m", (6, 512, 8, 2048)),
        ("pythia-160m", (12, 768, 12, 3072)),
    ],
)
def test_pythia_s_settings_are_those_of_its_release(shape, released):
    config = make({"shape": shape}, length=2048)
    common = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "initializer_range": 0.02,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    for key, value in common.items():
        assert getattr(config, key) == value, key
    size = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, feed_forward_size(config))
    assert size == released
    # rotary_pct 0.25 and rotary_emb_base 10000 there
    assert config.rope_parameters["partial_rotary_factor"] == 0.25
    assert config.rope_parameters["rope_theta"] == 10_000


@pytest.mark.parametrize(
    ("shape", "size"),
    [("bert-base", (12, 768, 12, 3072)), ("distil-mbert", (6, 768, 12, 3072)), ("bert-small", (4, 512, 8, 2048))],
)
def test_the_papers_encoders(shape, size):
    config = make({"shape": shape}, "masked")
    assert size == (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, feed_forward_size(config))


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_dropout_reaches_every_layer_and_nothing_else_drops(shape):
    for task in SHAPES[shape]:
        for dropout in (0.0, 0.25):
            with torch.device("meta"):
                body = AutoModel.from_config(make({"shape": shape, "dropout": dropout}, task))
            found = {m.p for m in body.modules() if isinstance(m, torch.nn.Dropout)}
            rates = {
                getattr(body.config, key)
                for key in ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
                if hasattr(body.config, key)
            }
            assert found <= {dropout}
            assert rates == {dropout}


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_feed_forward_size_is_that_of_the_weights(shape):
    for task in SHAPES[shape]:
        config = make({"shape": shape}, task)
        with torch.device("meta"):
            body = AutoModel.from_config(config)
        widths = {
            dimension
            for name, parameter in body.named_parameters()
            if name.endswith(("intermediate.dense.bias", "dense_h_to_4h.bias", "mlp.c_fc.bias"))
            for dimension in parameter.shape
        }
        assert widths == {feed_forward_size(config)}


# --- configurations -----------------------------------------------------------------------------------------


def test_a_gpt2_configuration_gets_vocabulary_and_length(recwarn):
    config = make(
        {
            "config": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 7},
            "position_limit": 40,
        }
    )
    assert (config.vocab_size, config.n_positions, config.max_position_embeddings) == (1000, 40, 40)
    assert feed_forward_size(config) == 256
    assert config.eos_token_id is None
    assert config.resid_pdrop == 0.1, "the configuration's own"


def test_dropout_of_a_configuration_names_every_familys_keys():
    with pytest.raises(ValidationError, match=r"hidden_dropout_prob.*attention_dropout.*resid_pdrop.*attn_pdrop"):
        ModelConfig.model_validate({"config": {"model_type": "gpt2"}, "dropout": 0.1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of 'shape', 'config' and 'pretrained'"),
        ({"shape": "gpt2", "pretrained": "x"}, "exactly one"),
        ({"config": {"model_type": "t5"}}, "bert, gpt_neox, gpt2"),
        ({"shape": "gpt-2"}, "did you mean 'gpt2'"),
        ({"pretrained": "x", "dropout": 0.1}, "keeps its own"),
        ({"pretrained": "x", "position_limit": 128}, "has its own"),
        ({"pretrained": ""}, "at least 1 character"),
    ],
)
def test_what_is_no_model(fields, message):
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(fields)


@pytest.mark.parametrize("shape", ["gpt2", "pythia-70m"])
def test_a_decoder_for_a_masked_objective(shape):
    with pytest.raises(InputError, match="does not fit") as caught:
        make({"shape": shape}, "masked")
    assert "encoder" in caught.value.why
    assert "gpt2" not in caught.value.remedy


# --- pretrained models --------------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path):
    """Saves a configuration as a published model has it, in float16; returns its folder."""

    def save(family, **changes):
        folder = tmp_path / family
        content = {**TINY[family].to_dict(), "dtype": "float16", **changes}
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(content))
        return str(folder)

    return save


@pytest.mark.parametrize("family", sorted(TINY))
def test_a_pretrained_models_configuration_is_its_own(published, family):
    folder = published(family)
    config = make({"pretrained": folder}, TASK[family], vocabulary=290, length=16)
    expected = TINY[family].to_dict()
    given = config.to_dict()
    for key in expected.keys() - {"_name_or_path", "architectures"}:
        assert given[key] == expected[key], key
    assert config.max_position_embeddings == 64
    body = AutoModel.from_config(config)
    assert {p.dtype for p in body.parameters()} == {torch.float32}
    embedding = body.get_input_embeddings()
    assert embedding.num_embeddings == TINY[family].vocab_size, "the padding of its vocabulary stays"


@pytest.mark.parametrize("family", sorted(TINY))
def test_the_study_must_fit_a_pretrained_model(published, family):
    folder, task, size = published(family), TASK[family], TINY[family].vocab_size
    make({"pretrained": folder}, task, vocabulary=size, length=64)
    with pytest.raises(InputError, match=f"{size + 1} pieces") as caught:
        make({"pretrained": folder}, task, vocabulary=size + 1)
    assert caught.value.where == "model.pretrained"
    assert folder in caught.value.remedy
    with pytest.raises(InputError, match="takes 64 tokens, a sequence has 65") as caught:
        make({"pretrained": folder}, task, vocabulary=size, length=65)
    assert "corpora.sequence_length=64" in caught.value.remedy
    with pytest.raises(InputError, match="does not fit the arm's objective"):
        make({"pretrained": folder}, "causal" if task == "masked" else "masked", vocabulary=size)


def test_a_pretrained_model_of_another_family(published):
    folder = published("gpt2", model_type="opt")
    with pytest.raises(InputError, match="is a opt model") as caught:
        make({"pretrained": folder})
    assert "bert, gpt_neox, gpt2" in caught.value.why


def test_no_such_pretrained_model(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in (str(tmp_path), str(tmp_path / "nowhere"), "nobody/no-such-model"):
        with pytest.raises(InputError, match="there is no pretrained model") as caught:
            make({"pretrained": name})
        assert "network" in caught.value.remedy
        assert caught.value.why
        assert "\n" not in caught.value.why


@pytest.mark.parametrize("content", ["{", json.dumps({"model_type": "no-such-type"}), json.dumps({})])
def test_a_broken_configuration(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match="there is no pretrained model"):
        make({"pretrained": str(tmp_path)})
