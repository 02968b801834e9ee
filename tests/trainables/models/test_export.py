"""Trained models in Hugging Face format: plain transformers scores as the learner does; training goes on from them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from transformers import AutoConfig

from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.exports import FAMILIES, MASK_RATE, held_out, make_learner, make_tokenizer
from tests.helpers.yardsticks import recovery_ranks
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import load_tokenizer
from trainables.errors import InputError
from trainables.models.export import export_model
from trainables.models.head import Head
from trainables.models.pretrained import load_pretrained
from trainables.objectives import find_objective
from trainables.objectives.learner import Learner
from trainables.storage import Location

torch.set_num_threads(1)

CASES = {
    "bert vanilla": ("bert", "mlm", {}, {}),
    "bert headless": ("bert", "headless_mlm", {"temperature": 0.5}, {}),
    "bert untied": ("bert", "mlm", {}, {"tie_word_embeddings": False}),
    "bert own table": ("bert", "nce_untied", {"temperature": 0.5}, {}),
    "gpt_neox vanilla": ("gpt_neox", "clm", {}, {}),
    "gpt_neox headless": ("gpt_neox", "headless_clm", {"temperature": 0.5}, {}),
    "gpt2 vanilla": ("gpt2", "clm", {}, {}),
    "gpt2 headless": ("gpt2", "headless_clm", {"temperature": 0.5}, {}),
    "gpt2 headless, 1": ("gpt2", "headless_clm", {}, {}),
    "gpt2 own table": ("gpt2", "nce_untied_clm", {}, {}),
    "gpt2 corrected": ("gpt2", "headless_clm", {"log_q": True}, {}),
    "gpt_neox corrected": ("gpt_neox", "headless_clm", {"log_q": True, "temperature": 0.5}, {}),
    "bert corrected": ("bert", "headless_mlm", {"log_q": True}, {}),
    "gpt_neox one after the other": ("gpt_neox", "headless_clm", {}, {"use_parallel_residual": False}),
    "gpt_neox restored": ("gpt_neox", "headless_clm", {"temperature": 0.5}, {}),
}
WIDENED = [name for name, case in CASES.items() if case[0] != "bert" and name.endswith(("headless", "1", "table"))]
WIDENED += ["gpt_neox one after the other", "gpt_neox restored"]
READER = """
import importlib.abc, json, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("trainables", "orchestrator", "search_spaces", "cluster"):
            raise ImportError(f"{name} is not for the reader of a model")
sys.meta_path.insert(0, Refuse())
import safetensors.torch, torch
from transformers import (AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, logging, pipeline)
logging.set_verbosity_error()
torch.set_num_threads(1)
logits, facts = {}, {}
for folder, encoder in json.loads(sys.argv[1]).items():
    auto = AutoModelForMaskedLM if encoder else AutoModelForCausalLM
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    AutoModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    task, text = ("fill-mask", f"aa {tokenizer.mask_token} ab") if encoder else ("text-generation", "aa ab")
    run = pipeline(task, model=folder, tokenizer=folder)
    ids = safetensors.torch.load_file(folder + "/../ids.safetensors")
    with torch.no_grad():
        for name in ("clean", "masked"):
            logits[f"{folder} {name}"] = model.eval()(ids[name]).logits
    facts[folder] = {
        "class": type(model).__name__,
        "report": {key: sorted(map(str, value)) for key, value in report.items()},
        "said": run(text, **({} if encoder else {"max_new_tokens": 2})),
        "ids": tokenizer("aa ab")["input_ids"],
        "max": tokenizer.model_max_length,
        "eos": [tokenizer.eos_token_id, model.config.eos_token_id, model.config.pad_token_id],
        "bos": [tokenizer.bos_token_id, model.config.bos_token_id],
        "tied": model.get_input_embeddings().weight is model.get_output_embeddings().weight,
        "types": sorted({str(parameter.dtype) for parameter in model.parameters()}),
    }
safetensors.torch.save_file(logits, sys.argv[2])
print(json.dumps(facts))
"""


def export(learner, tokenizer, folder, card):
    return export_model(
        learner.body, learner.objective.scoring_head(learner), learner.config, tokenizer, Location(folder), card
    )


def load(learner, folder):
    load_pretrained(learner.body, learner.head, learner.config, str(folder))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> PackedCorpus:
    folder = tmp_path_factory.mktemp("store") / "corpora" / "small"
    corpus = write_corpus(folder, {"en": 40, "veldan": 40})
    make_tokenizer().save_pretrained(folder / "tokenizer")
    return corpus


@pytest.fixture(scope="module")
def exported(corpus, tmp_path_factory):
    """Every case's learner, folder, and what a process without our packages read from it."""
    root = tmp_path_factory.mktemp("models")
    token_NL, masked_NL, _ = held_out(corpus)
    ids = {"clean": torch.from_numpy(token_NL), "masked": torch.from_numpy(masked_NL)}
    safetensors.torch.save_file(ids, root / "ids.safetensors")
    learners = {name: make_learner(*case) for name, case in CASES.items()}
    learners["gpt_neox restored"].restore_head()
    with torch.no_grad():  # it learned something
        learners["gpt_neox restored"].head.bias.mul_(1.1)
    for name, learner in learners.items():
        export(learner, corpus.tokenizer(), root / name, "# A card\n")
    (root / "reader.py").write_text(READER)
    folders = {str(root / name): CASES[name][0] == "bert" for name in CASES}
    done = subprocess.run(
        [sys.executable, "-I", root / "reader.py", json.dumps(folders), root / "logits.safetensors"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    logits = safetensors.torch.load_file(root / "logits.safetensors")
    return {
        name: (learner, root / name, facts[str(root / name)], {k: logits[f"{root / name} {k}"] for k in ids}, ids)
        for name, learner in learners.items()
    }


# --- the head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_head_over_a_table_scores_as_the_table_does(family, temperature, has_bias):
    torch.manual_seed(0)
    table_VD = nn.Parameter(torch.randn(VOCABULARY, 32))
    hidden_KD, norm = torch.randn(500, 32), nn.LayerNorm(32, eps=1e-12)
    if family == "bert":
        with torch.no_grad():
            norm.weight.uniform_(-2, 2)
            norm.bias.normal_()
            hidden_KD[:32] = torch.eye(32)  # the furthest from its mean that one element can be: sqrt(D - 1)
            hidden_KD = norm(hidden_KD)
    bias_V = torch.randn(VOCABULARY) if has_bias else None
    before = torch.get_rng_state()
    head = Head.over(FAMILIES[family](), table_VD, temperature, norm, bias_V)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        scores = nn.functional.linear(head(hidden_KD), head.weight_VD, head.bias)
    exact = hidden_KD.double() @ table_VD.double().T / temperature + (0 if bias_V is None else bias_V)
    assert (head.bias is None) == (family != "bert" and not has_bias)
    assert float((scores - exact).detach().abs().max() / exact.detach().std()) < 1e-5
    assert (head.weight_VD is table_VD) == (family == "bert" or (family == "gpt2" and temperature == 1))
    assert all(parameter.requires_grad for parameter in head.parameters())


@pytest.mark.parametrize(("activation", "size"), [("gelu", 768), ("relu", 64), ("gelu_new", 256), ("silu", 256)])
def test_the_identity_is_exact_where_the_norms_weights_differ_a_thousandfold(activation, size):
    torch.manual_seed(0)
    norm = nn.LayerNorm(size, eps=1e-12)
    with torch.no_grad():
        norm.weight.copy_(10 ** (-3 * torch.rand(size)))
        norm.bias.normal_()
        input_KD = torch.randn(300, size) * torch.logspace(-2, 2, 300)[:, None]
        hidden_KD = norm(torch.cat([input_KD, torch.eye(size), -torch.eye(size)]))
        config = FAMILIES["bert"](hidden_size=size, hidden_act=activation)
        transform = Head.over(config, nn.Parameter(torch.randn(VOCABULARY, size)), 0.5, norm)
        assert float((transform(hidden_KD) * 0.5 - hidden_KD).abs().max()) < 2e-5


def test_the_identity_of_a_norm_with_a_large_epsilon():
    norm = nn.LayerNorm(32, eps=1e-3)
    hidden_KD = norm(torch.randn(50, 32) * 30).detach()
    head = Head.over(FAMILIES["bert"](layer_norm_eps=1e-3), nn.Parameter(torch.randn(VOCABULARY, 32)), 1.0, norm)
    assert float((head(hidden_KD) - hidden_KD).detach().abs().max()) < 1e-5


def test_the_identity_keeps_its_digits_under_autocast():
    """The offset would leave two of them in bfloat16."""
    norm = nn.LayerNorm(768, eps=1e-12)
    hidden_KD = norm(torch.randn(20, 768)).detach()
    config = FAMILIES["bert"](hidden_size=768)
    head = Head.over(config, nn.Parameter(torch.randn(VOCABULARY, 768)), 1.0, norm)
    with torch.autocast("cpu", torch.bfloat16):
        assert float((head(hidden_KD) - hidden_KD).detach().abs().max()) < 2e-5


def test_a_restored_head_learns():
    norm = nn.LayerNorm(32, eps=1e-12)
    table_VD = nn.Parameter(torch.randn(VOCABULARY, 32))
    head = Head.over(FAMILIES["bert"](), table_VD, 0.5, norm)
    hidden_KD = norm(torch.randn(40, 32)).detach()
    scores = nn.functional.linear(head(hidden_KD), head.weight_VD, head.bias)
    nn.functional.cross_entropy(scores, torch.randint(0, VOCABULARY, (40,))).backward()
    assert all(bool((parameter.grad != 0).any()) for parameter in head.parameters())
    assert table_VD.grad is not None


@pytest.mark.parametrize(
    ("weight", "activation", "fragment"), [(0.0, "gelu", "weights near zero"), (1.0, "tanh", "nowhere the identity")]
)
def test_what_cannot_be_made_the_identity_is_refused(weight, activation, fragment):
    norm = nn.LayerNorm(32, eps=1e-12)
    with torch.no_grad():
        norm.weight[3] = weight
    with pytest.raises(InputError, match=fragment):
        Head.over(FAMILIES["bert"](hidden_act=activation), nn.Parameter(torch.randn(VOCABULARY, 32)), 1.0, norm)


# --- what is written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_plain_transformers_scores_as_the_learner_does(exported, case):
    learner, _, facts, logits, ids = exported[case]
    for name, tokens in ids.items():
        with torch.no_grad():
            expected = learner.logits(learner.hidden(tokens).flatten(0, 1)).view(logits[name].shape)
        assert float((logits[name] - expected).abs().max() / expected.std()) < 1e-5
    expected_class = {"bert": "BertForMaskedLM", "gpt_neox": "GPTNeoXForCausalLM", "gpt2": "GPT2LMHeadModel"}
    assert facts["class"] == expected_class[CASES[case][0]]
    assert not any(facts["report"].values()), "nothing is missing and nothing is left over"
    tied = ("bert vanilla", "bert headless", "bert corrected", "gpt2 vanilla", "gpt2 corrected")
    assert facts["tied"] == (case in tied)
    assert facts["types"] == ["torch.float32"]


@pytest.mark.parametrize("case", CASES)
def test_plain_transformers_recovers_as_the_yardstick_says(exported, corpus, case):
    learner, _, _, logits, _ = exported[case]
    token_NL, _, position_NT = held_out(corpus)
    expected_NT = recovery_ranks(learner, token_NL, corpus.manifest, MASK_RATE)
    encoder = CASES[case][0] == "bert"
    reciprocal, expected = [], []
    for n, t in np.ndindex(expected_NT.shape):
        position = position_NT[n, t] if encoder else t + 1
        scores_V = logits["masked"][n, position] if encoder else logits["clean"][n, position - 1]
        reciprocal.append(1 / (1 + int((scores_V > scores_V[token_NL[n, position]]).sum())))
        expected.append(1 / expected_NT[n, t])
    assert len(expected) > 20
    assert np.mean(reciprocal) == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_tokenizer_and_settings_are_those_of_the_training(exported, corpus, case):
    _, folder, facts, _, _ = exported[case]
    plain = corpus.tokenizer()("aa ab", add_special_tokens=False)["input_ids"]
    assert facts["ids"] == plain
    assert facts["max"] == LENGTH
    separator, encoder = corpus.manifest.separator_token, CASES[case][0] == "bert"
    assert facts["eos"] == [separator, separator, corpus.manifest.pad_token]
    assert facts["bos"] == [None if encoder else separator] * 2
    assert facts["said"]
    assert (folder / "generation_config.json").exists() != encoder
    assert not list(folder.glob("*.bin"))
    assert (folder / "README.md").read_text() == "# A card\n"


def test_a_tokenizer_that_frames_its_text_frames_no_more(tmp_path, corpus):
    from tokenizers.processors import TemplateProcessing

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.backend_tokenizer.enable_truncation(2)
    assert tokenizer("aa ab ac")["input_ids"][0] == 2
    export(make_learner(*CASES["bert vanilla"]), tokenizer, tmp_path, "")
    read = load_tokenizer(str(tmp_path))
    assert read("aa ab ac")["input_ids"] == make_tokenizer()("aa ab ac", add_special_tokens=False)["input_ids"]
    assert tokenizer("aa ab ac")["input_ids"][0] == 2, "the one that was given stays as it was"


# --- going on from a model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_training_goes_on_from_what_was_exported(exported, case):
    learner, folder, _, logits, ids = exported[case]
    family = CASES[case][0]
    if case in WIDENED:
        pytest.skip("a model of other sizes; the next test has it")
    # What was given a head with weights of its own is untied, as a study's configuration read from it is.
    more = {"tie_word_embeddings": json.loads((folder / "config.json").read_text())["tie_word_embeddings"]}
    vanilla = make_learner(family, "mlm" if family == "bert" else "clm", {}, more, seed=1)
    before = torch.get_rng_state()
    load(vanilla, folder)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        scores = vanilla.logits(vanilla.hidden(ids["clean"]).flatten(0, 1)).view(logits["clean"].shape)
    assert float((scores - logits["clean"]).abs().max() / scores.std()) < 1e-5
    tied = vanilla.config.tie_word_embeddings
    assert (vanilla.head.weight_VD is vanilla.embedding_VD) == tied, "loading unties nothing"
    if family == "bert":
        assert vanilla.head.has_offset == (case in ("bert headless", "bert own table", "bert corrected"))

    headless = make_learner(family, "headless_mlm" if family == "bert" else "headless_clm", {}, {}, seed=1)
    load(headless, folder)
    for name, value in learner.body.state_dict().items():
        assert torch.equal(headless.body.state_dict()[name], value), name


@pytest.mark.parametrize("case", WIDENED)
def test_training_goes_on_from_a_wider_model(exported, case):
    """A decoder's bias is the weights of a hidden dimension that is always 1."""
    learner, folder, _, logits, ids = exported[case]
    config = AutoConfig.from_pretrained(folder)
    heads = learner.config.num_attention_heads
    assert (config.hidden_size, config.num_attention_heads) == (32 * (heads + 1) // heads, heads + 1)
    wide = Learner(config, find_objective("clm").of({})).eval()
    load(wide, folder)
    with torch.no_grad():
        hidden, before = wide.hidden(ids["clean"]), learner.hidden(ids["clean"])
        scores = wide.logits(hidden.flatten(0, 1)).view(logits["clean"].shape)
    torch.testing.assert_close(hidden[..., :32], before, rtol=1e-4, atol=1e-5)
    assert bool((hidden[..., 32] == 1).all())
    assert not bool(hidden[..., 33:].any())
    assert float((scores - logits["clean"]).abs().max() / scores.std()) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_a_head_leaves_the_head_as_it_was_drawn(tmp_path, family):
    objective = "mlm" if family == "bert" else "clm"
    given = make_learner(family, objective, {}, {})
    given.body.save_pretrained(tmp_path)
    learner = make_learner(family, objective, {}, {}, seed=1)
    drawn = {name: value.clone() for name, value in learner.head.state_dict().items()}
    load(learner, tmp_path)
    assert torch.equal(learner.embedding_VD, given.embedding_VD)
    for name, value in learner.head.state_dict().items():
        tied = name == "weight_VD" and learner.config.tie_word_embeddings
        assert torch.equal(value, given.embedding_VD if tied else drawn[name]), name


def test_models_that_cannot_be_gone_on_with(exported, tmp_path):
    def refused(fragment, folder):
        with pytest.raises(InputError) as error:
            load(make_learner("bert", "mlm", {}, {}), folder)
        assert fragment in str(error.value)

    vanilla = exported["bert vanilla"][1]
    refused("that can be read", tmp_path / "nowhere" / "at" / "all")
    partial = tmp_path / "partial"
    partial.mkdir()
    (partial / "config.json").write_bytes((vanilla / "config.json").read_bytes())
    refused("pickles", partial)
    weights = safetensors.torch.load_file(vanilla / "model.safetensors")
    (partial / "model.safetensors").write_bytes(b"no such thing")
    refused("that can be read", partial)
    del weights["bert.encoder.layer.1.output.dense.weight"]
    safetensors.torch.save_file(weights, partial / "model.safetensors", {"format": "pt"})
    refused("missing: bert.encoder.layer.1.output.dense.weight", partial)
