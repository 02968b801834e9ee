"""Trained models in Hugging Face format: plain transformers scores as the learner does; training goes on from them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from small_corpus import LENGTH, VOCABULARY, write_corpus
from torch import nn
from transformers import BertConfig, GPT2Config, GPTNeoXConfig

from orchestrator.cli import main
from orchestrator.config.files import dump_study, make_study
from orchestrator.ledger.segments import LedgerWriter
from trainables.corpora.preparation.tokenizers import TrainTokenizer, load_tokenizer, train_tokenizer
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.evaluation.recovery import HELD_OUT_SEED, recovery_ranks
from trainables.models.export import export_model
from trainables.models.head import Head
from trainables.models.learner import Learner
from trainables.models.pretrained import load_pretrained
from trainables.objectives import find_objective
from trainables.objectives.corruption import masked_positions
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints, module_tensors

torch.set_num_threads(1)

MASK_RATE = 0.15
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {"intermediate_size": 64, "max_position_embeddings": LENGTH}
FAMILIES = {
    "bert": lambda **more: BertConfig(**SIZE | WIDE | more),
    "gpt_neox": lambda **more: GPTNeoXConfig(**SIZE | WIDE | {"tie_word_embeddings": False} | more),
    "gpt2": lambda **more: GPT2Config(
        **SIZE | {"n_inner": 64, "n_positions": LENGTH, "bos_token_id": None, "eos_token_id": None} | more
    ),
}
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
}
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


def make_learner(family, objective, options, more, seed=0):
    """A learner whose weights are all, norms and biases too, of some size."""
    found = find_objective(objective)
    torch.manual_seed(seed)
    learner = Learner(FAMILIES[family](**more), found, found.options.model_validate(options)).eval()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return learner


def make_tokenizer():
    letters = [first + second for first in "abcdefghijklmnop" for second in "abcdefghijklmnop"]
    texts = [" ".join(letters[i % 256 : i % 256 + 9]) for i in range(600)]
    return train_tokenizer(TrainTokenizer(type="bpe", vocabulary_size=VOCABULARY), iter(texts))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> PackedCorpus:
    folder = tmp_path_factory.mktemp("store") / "corpora" / "small"
    corpus = write_corpus(folder, {"en": 40, "veldan": 40})
    make_tokenizer().save_pretrained(folder / "tokenizer")
    return corpus


def held_out(corpus):
    token_NL = np.concatenate(
        [corpus.take("test", language, np.arange(8)) for language in corpus.languages]
    ).astype(np.int64)
    position_NT = masked_positions(
        token_NL, np.arange(len(token_NL)), HELD_OUT_SEED, MASK_RATE, corpus.manifest.special_tokens
    )
    masked_NL = token_NL.copy()
    np.put_along_axis(masked_NL, position_NT, corpus.manifest.mask_token, axis=1)
    return token_NL, masked_NL, position_NT


@pytest.fixture(scope="module")
def exported(corpus, tmp_path_factory):
    """Every case's learner, folder, and what a process without our packages read from it."""
    root = tmp_path_factory.mktemp("models")
    token_NL, masked_NL, _ = held_out(corpus)
    ids = {"clean": torch.from_numpy(token_NL), "masked": torch.from_numpy(masked_NL)}
    safetensors.torch.save_file(ids, root / "ids.safetensors")
    learners = {name: make_learner(*case) for name, case in CASES.items()}
    for name, learner in learners.items():
        export_model(learner, corpus.tokenizer(), Location(root / name), "# A card\n")
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
        name: (
            learner,
            root / name,
            facts[str(root / name)],
            {k: logits[f"{root / name} {k}"] for k in ids},
            ids,
        )
        for name, learner in learners.items()
    }


# --- the head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_over_a_table_scores_as_the_table_does(family, temperature):
    torch.manual_seed(0)
    table_VD = nn.Parameter(torch.randn(VOCABULARY, 32))
    hidden_KD, norm = torch.randn(500, 32), nn.LayerNorm(32, eps=1e-12)
    if family == "bert":
        with torch.no_grad():
            norm.weight.uniform_(-2, 2)
            norm.bias.normal_()
            hidden_KD[:32] = torch.eye(32)  # the furthest from its mean that one element can be: sqrt(D - 1)
            hidden_KD = norm(hidden_KD)
    before = torch.get_rng_state()
    head = Head.over(FAMILIES[family](), table_VD, temperature, norm)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        scores = nn.functional.linear(head(hidden_KD), head.weight_VD, head.bias)
    exact = hidden_KD.double() @ table_VD.double().T / temperature
    assert float((scores - exact).detach().abs().max() / exact.detach().std()) < 1e-5
    assert (head.weight_VD is table_VD) == (family == "bert" or (family == "gpt2" and temperature == 1))
    assert all(parameter.requires_grad for parameter in head.parameters())


@pytest.mark.parametrize(
    ("activation", "size"), [("gelu", 768), ("relu", 64), ("gelu_new", 256), ("silu", 256)]
)
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
    head = Head.over(
        FAMILIES["bert"](layer_norm_eps=1e-3), nn.Parameter(torch.randn(VOCABULARY, 32)), 1.0, norm
    )
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
    ("weight", "activation", "fragment"),
    [(0.0, "gelu", "weights near zero"), (1.0, "tanh", "nowhere the identity")],
)
def test_what_cannot_be_made_the_identity_is_refused(weight, activation, fragment):
    norm = nn.LayerNorm(32, eps=1e-12)
    with torch.no_grad():
        norm.weight[3] = weight
    with pytest.raises(InputError, match=fragment):
        Head.over(
            FAMILIES["bert"](hidden_act=activation), nn.Parameter(torch.randn(VOCABULARY, 32)), 1.0, norm
        )


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
    assert facts["tied"] == (case in ("bert vanilla", "bert headless", "gpt2 vanilla", "gpt2 headless, 1"))
    assert facts["types"] == ["torch.float32"]


@pytest.mark.parametrize("case", CASES)
def test_plain_transformers_recovers_as_the_yardstick_says(exported, corpus, case):
    learner, _, _, logits, _ = exported[case]
    token_NL, _, position_NT = held_out(corpus)
    expected_NT = recovery_ranks(learner, token_NL, corpus.manifest, MASK_RATE, torch.device("cpu"))
    encoder = CASES[case][0] == "bert"
    reciprocal, expected = [], []
    for n, t in np.argwhere(position_NT > 0):
        position = position_NT[n, t]
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
    export_model(make_learner(*CASES["bert vanilla"]), tokenizer, Location(tmp_path), "")
    read = load_tokenizer(str(tmp_path))
    assert (
        read("aa ab ac")["input_ids"] == make_tokenizer()("aa ab ac", add_special_tokens=False)["input_ids"]
    )
    assert tokenizer("aa ab ac")["input_ids"][0] == 2, "the one that was given stays as it was"


# --- going on from a model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_training_goes_on_from_what_was_exported(exported, case):
    learner, folder, _, logits, ids = exported[case]
    family = CASES[case][0]
    # What was given a head with weights of its own is untied, as a study's configuration read from it is.
    more = {"tie_word_embeddings": json.loads((folder / "config.json").read_text())["tie_word_embeddings"]}
    vanilla = make_learner(family, "mlm" if family == "bert" else "clm", {}, more, seed=1)
    before = torch.get_rng_state()
    load_pretrained(vanilla, str(folder))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        scores = vanilla.logits(vanilla.hidden(ids["clean"]).flatten(0, 1)).view(logits["clean"].shape)
    assert float((scores - logits["clean"]).abs().max() / scores.std()) < 1e-5
    tied = vanilla.config.tie_word_embeddings
    assert (vanilla.head.weight_VD is vanilla.embedding_VD) == tied, "loading unties nothing"
    if family == "bert":
        assert vanilla.head.has_offset == (case in ("bert headless", "bert own table"))

    headless = make_learner(family, "headless_mlm" if family == "bert" else "headless_clm", {}, {}, seed=1)
    load_pretrained(headless, str(folder))
    for name, value in learner.body.state_dict().items():
        assert torch.equal(headless.body.state_dict()[name], value), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_a_head_leaves_the_head_as_it_was_drawn(tmp_path, family):
    objective = "mlm" if family == "bert" else "clm"
    given = make_learner(family, objective, {}, {})
    given.body.save_pretrained(tmp_path)
    learner = make_learner(family, objective, {}, {}, seed=1)
    drawn = {name: value.clone() for name, value in learner.head.state_dict().items()}
    load_pretrained(learner, str(tmp_path))
    assert torch.equal(learner.embedding_VD, given.embedding_VD)
    for name, value in learner.head.state_dict().items():
        tied = name == "weight_VD" and learner.config.tie_word_embeddings
        assert torch.equal(value, given.embedding_VD if tied else drawn[name]), name


def test_models_that_cannot_be_gone_on_with(exported, tmp_path):
    def refused(fragment, folder, family="bert", objective="mlm", **more):
        with pytest.raises(InputError) as error:
            load_pretrained(make_learner(family, objective, {}, more), str(folder))
        assert fragment in str(error.value)

    vanilla = exported["bert vanilla"][1]
    refused("a bert model", vanilla, "gpt2", "clm")
    refused("vocabulary of 200", vanilla, vocab_size=201)
    refused("another num_attention_heads", vanilla, num_attention_heads=4)
    refused("another tie_word_embeddings", exported["bert untied"][1])
    refused("position_embeddings", vanilla, max_position_embeddings=LENGTH + 1)
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


# --- h2h export ---------------------------------------------------------------------------------------------


def write_study(storage: Path, corpus: PackedCorpus, arms=("headless", "vanilla"), confirmed=2) -> Path:
    """A study's folder as a run leaves it, made by hand: frozen study, ledger and checkpoints."""
    objectives = {"headless": "headless_mlm", "vanilla": "mlm"}
    content = {
        "name": "by-hand",
        "question": "Which one?",
        "corpora": {
            "sources": [{"language": "en", "files": "en.txt"}, {"language": "veldan", "files": "veldan.txt"}],
            "sequence_length": LENGTH,
        },
        "model": {"config": {"model_type": "bert", **SIZE | WIDE}},
        "arms": {arm: {"objective": objectives[arm]} for arm in arms},
        "budget": {"tokens": 1600},
        "confirm": {"seeds": 2},
        "storage": str(storage),
    }
    folder = storage / "by-hand"
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(dump_study(make_study(content)))
    if not (storage / "corpora").exists():
        (storage / "corpora").symlink_to(Path(corpus.folder.uri).parent)
    ledger = LedgerWriter(Location(folder) / "ledger")
    ledger.append(
        "study",
        name="by-hand",
        question="Which one?",
        digest="abcd",
        budget={"unit": "tokens", "amount": 1600},
        search_budget=1,
        arms={
            arm: {"objective": objectives[arm], "task": "masked", "headless": arm == "headless"}
            for arm in arms
        },
        seeds=2,
        margin=0.005,
        yardsticks={"primary": "recovery_accuracy", "others": []},
        versions={"torch": "2"},
        machine={},
        folder=str(folder),
    )
    counts = {"documents": 40, "tokens": 640, "sequences": 40, "target_share": 0.5}
    ledger.append(
        "corpus",
        fingerprint="small",
        vocabulary_size=VOCABULARY,
        sequence_length=LENGTH,
        languages=dict.fromkeys(corpus.languages, counts),
    )
    for arm in arms:
        for phase, number, seed, outcome in (
            ("search", 0, 0, "completed"),
            ("search", 1, 0, "pruned"),
            *(("confirm", index, index + 1, "completed") for index in range(confirmed)),
        ):
            configuration = {"learning_rate": 1e-3} | ({"temperature": 0.5} if arm == "headless" else {})
            name = f"{phase}-{arm}-{number:03d}"
            trial = {"phase": phase, "arm": arm, "trial": name, "attempt": 1}
            score = 0.25 + 0.1 * seed + (0.05 if arm == "headless" else 0)
            ledger.append(
                "trial", **trial, number=number, configuration=configuration, seed=seed, start_step=0
            )
            ledger.append(
                "measure",
                **trial,
                step=7,
                progress=1.0,
                spent={"tokens": 1600, "steps": 7, "flops": 10**9, "device_seconds": 3.0},
                overhead={},
                loss=4.2,
                learning_rate=0.0,
                digest=f"{seed:016x}",
                mix={"en": 50, "veldan": 50},
                rung=None,
                yardsticks={
                    "recovery_accuracy": {"overall": score, "languages": {"en": score, "veldan": score}}
                },
            )
            ledger.append("end", **trial, outcome=outcome, reason="")
            if outcome == "completed":
                write_checkpoint(folder / "trials" / name, 7, learner_of(arm, seed))
    ledger.close()
    return folder


def learner_of(arm, seed):
    objective, options = ("headless_mlm", {"temperature": 0.5}) if arm == "headless" else ("mlm", {})
    return make_learner("bert", objective, options, {}, seed=seed)


def write_checkpoint(trial, step, learner):
    checkpoints = Checkpoints(Location(trial))
    checkpoints.save(step, {"model": module_tensors(learner)}, {})
    checkpoints.wait()
    checkpoints.close()


@pytest.fixture
def study(tmp_path, corpus) -> Path:
    return write_study(tmp_path / "studies", corpus)


def logits_of(folder, corpus):
    from transformers import AutoModelForMaskedLM

    ids = torch.from_numpy(held_out(corpus)[1])
    with torch.no_grad():
        return ids, AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits


@pytest.mark.parametrize("arm", ["headless", "vanilla"])
def test_export_writes_the_first_paired_run_of_an_arm(study, tmp_path, corpus, capsys, arm):
    to = tmp_path / "model"
    assert main(["export", str(study), "--arm", arm, "--to", str(to)]) == 0
    assert str(to) in capsys.readouterr().out
    ids, logits = logits_of(to, corpus)
    learner = learner_of(arm, seed=1)
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert float((logits - expected).abs().max() / expected.std()) < 1e-5


def test_the_card_holds_the_evidence_and_no_licence(study, tmp_path):
    to = tmp_path / "model"
    assert main(["export", str(study), "--arm", "headless", "--to", str(to)]) == 0
    card = (to / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["language"] == ["en"], "the hub refuses what is no language code"
    assert front["pipeline_tag"] == "fill-mask"
    assert front["library_name"] == "transformers"
    assert "license" not in front
    for fragment in (
        "Which one?",
        "the first of 2 completed confirmation runs",
        "| headless | `headless_mlm` | 0.450 ± 0.071 (2) |",
        "| vanilla | `mlm` | 0.400 ± 0.071 (2) |",
        "| headless – vanilla | recovery_accuracy (primary) | 2 | +0.050 [0.050, 0.050] |",
        "| recovery_accuracy | 0.400 | 0.400 | 0.400 |",  # of seed 1 itself
        "| budget of the trial | 1.6k tokens |",
        "7 steps, 1.0 GFLOP, 3 s of device time",
        "temperature=0.5",
        f"`{1:016x}`",
        "| veldan | 40 | 640 | 50.0% | 800 |",
        'AutoModelForMaskedLM.from_pretrained("model")',
        "cannot be compared",
        "vanilla on recovery_accuracy at 1.6k tokens a trial is undecided",
    ):
        assert fragment in card, fragment
    assert "4.2" not in card, "no loss"
    assert str(tmp_path) not in card


def test_a_trial_may_be_named(study, tmp_path, corpus):
    to = tmp_path / "model"
    assert main(["export", str(study), "--trial", "confirm-vanilla-001", "--to", str(to)]) == 0
    ids, logits = logits_of(to, corpus)
    learner = learner_of("vanilla", seed=2)
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert torch.allclose(logits, expected, atol=1e-5 * float(expected.std()))
    assert "asked for by name" in (to / "README.md").read_text()
    assert main(["export", str(study), "--trial", "search-vanilla-000", "--to", str(to), "--force"]) == 0
    assert "validation split" in (to / "README.md").read_text()


def test_a_head_that_was_restored_is_exported(study, tmp_path, corpus):
    learner = learner_of("headless", seed=1)
    learner.restore_head()
    with torch.no_grad():
        learner.head.bias.normal_()
    write_checkpoint(study / "trials" / "confirm-headless-000", 9, learner)
    assert main(["export", str(study), "--arm", "headless", "--to", str(tmp_path / "model")]) == 0
    ids, logits = logits_of(tmp_path / "model", corpus)
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert torch.allclose(logits, expected, atol=1e-5 * float(expected.std()))
    assert "without a vocabulary head" not in (tmp_path / "model" / "README.md").read_text()


def test_a_study_that_was_moved_finds_its_corpus(tmp_path, corpus):
    folder = write_study(tmp_path / "studies", corpus, arms=("vanilla",), confirmed=1)
    (tmp_path / "studies").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / folder.name
    assert main(["export", str(moved), "--to", str(tmp_path / "model")]) == 0, (
        "and its only arm needs no name"
    )


def test_mistakes_are_refused_in_one_message(study, tmp_path, capsys):
    def refused(*arguments, fragments):
        assert main(["export", *map(str, arguments)]) == 2
        message = capsys.readouterr().err
        assert len(message.splitlines()) <= 4
        for fragment in fragments:
            assert fragment in message

    to = tmp_path / "model"
    refused(study, "--to", to, fragments=["2 arms", "--arm headless or --arm vanilla"])
    refused(
        study,
        "--to",
        to,
        "--arm",
        "vanila",
        fragments=["no arm is called 'vanila'", "did you mean 'vanilla'"],
    )
    refused(
        study, "--to", to, "--trial", "confirm-vanilla-01", fragments=["did you mean 'confirm-vanilla-001'"]
    )
    refused(study, "--to", to, "--trial", "search-vanilla-001", fragments=["search-vanilla-001: pruned"])
    refused(
        study,
        "--to",
        to,
        "--arm",
        "vanilla",
        "--trial",
        "confirm-headless-000",
        fragments=["of the arm headless"],
    )
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    refused(study, "--to", full, "--arm", "vanilla", fragments=["is not empty", "--force"])
    refused(study, "--to", full / "notes.txt", "--arm", "vanilla", fragments=["cannot write to"])
    refused(tmp_path / "nothing", "--to", to, fragments=["no study"])

    trial = study / "trials" / "confirm-vanilla-000"
    write_checkpoint(trial, 8, learner_of("headless", 1))
    refused(study, "--to", to, "--arm", "vanilla", fragments=["cannot be loaded", "parameters differ: head."])
    shutil.rmtree(trial / "step-00000008")
    (trial / "step-00000007" / "model.safetensors").write_bytes(b"torn")
    refused(study, "--to", to, "--arm", "vanilla", fragments=["cannot be loaded", str(trial), "--trial NAME"])
    shutil.rmtree(trial)
    refused(study, "--to", to, "--arm", "vanilla", fragments=["has no checkpoint", "--trial NAME"])
    assert not to.exists()


def test_an_arm_without_a_confirmed_run(tmp_path, corpus, capsys):
    folder = write_study(tmp_path / "studies", corpus, confirmed=0)
    assert main(["export", str(folder), "--to", str(tmp_path / "model"), "--arm", "vanilla"]) == 2
    assert f"h2h resume {folder}" in capsys.readouterr().err


def test_pushing_to_the_hub(study, tmp_path, monkeypatch, capsys):
    import huggingface_hub

    calls = []

    class Hub:
        def create_repo(self, repo_id, **options):
            calls.append(("create", repo_id, options))
            return huggingface_hub.RepoUrl(f"https://huggingface.co/me/{repo_id}")

        def upload_folder(self, **options):
            calls.append(("upload", options))

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    to = tmp_path / "model"
    arguments = ["export", str(study), "--arm", "vanilla", "--to", str(to), "--push-to-hub", "tiny"]
    assert main(arguments) == 0
    (_, repository, created), (_, uploaded) = calls
    assert repository == "tiny"
    assert created == {"private": True, "exist_ok": True}
    assert uploaded["repo_id"] == "me/tiny"
    assert set(uploaded["allow_patterns"]) == {path.name for path in to.iterdir()}
    assert 'from_pretrained("tiny")' in (to / "README.md").read_text()
    assert "https://huggingface.co/me/tiny" in capsys.readouterr().out


@pytest.mark.parametrize(("repository", "endpoint"), [("me/tiny", "http://127.0.0.1:9"), ("a/b/c", None)])
def test_a_push_that_fails_says_what_to_do(study, tmp_path, monkeypatch, capsys, repository, endpoint):
    import huggingface_hub

    real = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: real(endpoint=endpoint, token=False))
    arguments = ["export", str(study), "--arm", "vanilla", "--to", str(tmp_path / "model")]
    assert main([*arguments, "--push-to-hub", repository]) == 2
    message = capsys.readouterr().err
    assert f"could not be pushed to {repository}" in message
    assert "hf auth login" in message
    assert (tmp_path / "model" / "config.json").exists()
