"""Probes: against an independent solve, on planted signals and shuffled labels, and on models trained for long."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from tests.helpers.word_models import language_model, piece_tokenizer, small_body
from trainables.corpora.grammar.derivation import Derivation, documents
from trainables.corpora.grammar.minimal_pairs import minimal_pairs
from trainables.corpora.grammar.syntax import grammar
from trainables.models.body import embedding_of, run_body
from trainables.storage import Location
from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.features import of_words
from trainables.tasks.kinds import KINDS
from trainables.tasks.kinds.classify import Classify, most_frequent
from trainables.tasks.prepared import Tasks, prepare_tasks
from trainables.tasks.probes import INVERSE_PENALTIES, MIDDLING, probe, probe_task

torch.set_num_threads(1)
CLASSES = 3
LAYERS, SIZE = 4, 12


class Made(Classify):
    """Features that were made, whatever the model: each text is a number."""

    made_HIF: ClassVar[np.ndarray]

    def features(self, model, examples):
        return self.made_HIF[:, [int(example.texts[0]) for example in examples]].astype(np.float32)


def made(feature_HIF, label_I):
    """A kind with these features, and 300, 100 and the other examples to train on, choose on and test."""
    kind = Made()
    kind.made_HIF = feature_HIF
    examples = [Example((str(number),), (int(label),), str(number)) for number, label in enumerate(label_I)]
    return kind, examples[:300], examples[300:400], {"en": examples[400:]}


def noise(seed, number=800):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(LAYERS, number, SIZE)), rng.integers(0, CLASSES, number)


# --- which probe ------------------------------------------------------------------------------------------------


def test_a_signal_in_one_layer_is_found_there():
    rng, feature_HIF, label_I = noise(0)
    direction_CF = rng.normal(size=(CLASSES, SIZE))
    feature_HIF[2] = 3 + 100 * (feature_HIF[2] + direction_CF[label_I])  # of any place and scale
    found = probe(None, *made(feature_HIF, label_I))["en"]
    assert found.layer == 2
    assert found.right_I.mean() > 0.9
    assert found.bag_right_I.mean() < 0.45
    assert found.right_I.shape == found.bag_right_I.shape == (400,)


def test_layers_that_tie_give_the_lowest_and_penalties_the_strongest():
    rng, feature_HIF, label_I = noise(1)
    feature_HIF[1:] = (feature_HIF[1] * 0.01 + rng.normal(size=(CLASSES, SIZE))[label_I])[None]
    found = probe(None, *made(feature_HIF, label_I))["en"]
    assert found.right_I.mean() == 1
    assert (found.layer, found.inverse_penalty) == (1, min(INVERSE_PENALTIES))


def test_shuffled_labels_give_chance():
    """Over many draws, within the interval of the mean: 99.9% of a normal's."""
    right = []
    for seed in range(12):
        _, feature_HIF, label_I = noise(seed)
        right.append(probe(None, *made(feature_HIF, label_I))["en"].right_I)
    values = np.concatenate(right)
    assert abs(values.mean() - 1 / CLASSES) < 3.3 * values.std() / len(values) ** 0.5


def test_the_classifier_is_the_penalised_optimum():
    """Layer, penalty and answers by a float64 solve of its own."""
    rng, feature_HIF, label_I = noise(2)
    direction_CF = rng.normal(size=(CLASSES, SIZE))
    for layer, size in enumerate((0.0, 0.3, 0.6, 0.4)):
        feature_HIF[layer] = (feature_HIF[layer] + size * direction_CF[label_I]) * rng.uniform(0.1, 30, SIZE) + 5
    kind, train, on, tested = made(feature_HIF, label_I)
    found = probe(None, kind, train, on, tested)["en"]

    def score_of(layer, inverse_penalty):
        return solved(feature_HIF[layer, :300], label_I[:300], inverse_penalty)

    def accuracy(layer, inverse_penalty):
        score = score_of(layer, inverse_penalty)(feature_HIF[layer, 300:400])
        return (score.argmax(1) == label_I[300:400]).mean()

    layer = max(range(LAYERS), key=lambda own: accuracy(own, MIDDLING))
    penalty = max(INVERSE_PENALTIES, key=lambda own: accuracy(layer, own))
    assert (found.layer, found.inverse_penalty) == (layer, penalty)
    score_IC = score_of(layer, penalty)(feature_HIF[layer, 400:])
    lead_I = np.diff(np.sort(score_IC)[:, -2:])[:, 0]
    is_right_I = score_IC.argmax(1) == label_I[400:]
    assert (lead_I > 0.02).mean() > 0.95
    np.testing.assert_array_equal(found.right_I[lead_I > 0.02], is_right_I[lead_I > 0.02])


def solved(feature_IF, label_I, inverse_penalty):
    """Multinomial logistic regression: scores of classes, up to what all have in common."""
    mean_F, scale_F = feature_IF.mean(0), feature_IF.std(0)
    z_IF = (feature_IF - mean_F) / scale_F
    one_hot_IC = np.eye(CLASSES)[label_I]

    def loss(flat):
        weight_FC, bias_C = flat[:-CLASSES].reshape(SIZE, CLASSES), flat[-CLASSES:]
        score_IC = z_IF @ weight_FC + bias_C
        highest_I1 = score_IC.max(1, keepdims=True)
        log_sum_I1 = np.log(np.exp(score_IC - highest_I1).sum(1, keepdims=True)) + highest_I1
        error_IC = np.exp(score_IC - log_sum_I1) - one_hot_IC
        value = inverse_penalty * ((log_sum_I1 - score_IC) * one_hot_IC).sum() + (weight_FC**2).sum() / 2
        gradient_FC = inverse_penalty * z_IF.T @ error_IC + weight_FC
        return value, np.concatenate([gradient_FC.ravel(), inverse_penalty * error_IC.sum(0)])

    flat = minimize(loss, np.zeros((SIZE + 1) * CLASSES), jac=True, method="BFGS", options={"gtol": 1e-7}).x
    return lambda own_IF: (own_IF - mean_F) / scale_F @ flat[:-CLASSES].reshape(SIZE, CLASSES) + flat[-CLASSES:]


def test_one_class_alone_is_what_is_said():
    _, feature_HIF, label_I = noise(3)
    label_I[:300] = 1
    found = probe(None, *made(feature_HIF, label_I))["en"]
    np.testing.assert_array_equal(found.right_I, label_I[400:] == 1)


# --- of words, by a model ---------------------------------------------------------------------------------------

LANGUAGE = "veldan"


def tagged(number, seed):
    """Sentences of the grammar, and each word's part of speech by number."""
    compiled, found = grammar(LANGUAGE), []
    names: dict[str, int] = {}
    derivation = None
    for turn in range(number):
        derivation = Derivation(compiled, Random(f"{seed}/{turn}"))
        for _, words in derivation.constituents("episode")[:1]:
            found.append(words)
    for word in sorted({word.category for words in found for word in words}):
        names[word] = len(names)
    return [
        Example(tuple(word.form for word in words), tuple(names[word.category] for word in words), str(turn))
        for turn, words in enumerate(found)
    ]


@pytest.fixture(scope="module")
def text():
    return [text for _, text in documents(LANGUAGE, 250)]


@pytest.fixture(scope="module")
def tokenizer(text):
    return piece_tokenizer(text, 400)


@pytest.fixture(scope="module")
def examples():
    found = tagged(500, "probes")
    return found[:300], found[300:350], {LANGUAGE: found[350:]}


@pytest.mark.parametrize("family", ["bert", "gpt_neox"])
def test_the_same_to_the_bit_with_any_number_of_threads(family, tokenizer, examples):
    train, on, tested = (examples[0][:80], examples[1], examples[2])
    config, body = small_body(family, tokenizer)
    model, kind, found = language_model(family, tokenizer, body, config), KINDS.find("tag")(), []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            found.append(
                (of_words(model, [own.texts for own in train]), probe(model, kind, train, on, tested)[LANGUAGE])
            )
    torch.set_num_threads(1)
    for feature_HSD, probed in found[1:]:
        np.testing.assert_array_equal(feature_HSD, found[0][0])
        assert probed[1:3] == found[0][1][1:3]
        np.testing.assert_array_equal(probed.right_I, found[0][1].right_I)


def test_a_sentence_is_right_by_the_share_of_its_words(tokenizer, examples):
    config, body = small_body("gpt_neox", tokenizer)
    model = language_model("gpt_neox", tokenizer, body, config)
    right_I = probe(model, KINDS.find("tag")(), *examples)[LANGUAGE].right_I
    size_I = np.array([len(own.labels) for own in examples[2][LANGUAGE]])
    num_right_I = right_I * size_I
    np.testing.assert_allclose(num_right_I, num_right_I.round(), atol=1e-9)
    assert num_right_I.sum() / size_I.sum() > most_frequent(examples[2][LANGUAGE]) + 0.1


def trained(family, tokenizer, text, steps, **changes):
    """By a plain loop, at a constant rate."""
    config, body = small_body(family, tokenizer, **changes)
    separator = tokenizer.sep_token_id
    ids = [token for own in tokenizer(text, add_special_tokens=False)["input_ids"] for token in (separator, *own)]
    row_NL = torch.tensor(ids[: len(ids) // 32 * 32]).view(-1, 32)
    embedding_VD, drawn = embedding_of(body), torch.Generator().manual_seed(0)
    bias_V = torch.zeros(len(embedding_VD), requires_grad=True)
    optimiser = torch.optim.AdamW([*body.parameters(), bias_V], lr=5e-3, weight_decay=0.0)
    for _ in range(steps):
        token_NL = row_NL[torch.randint(len(row_NL), (16,), generator=drawn)]
        if family == "bert":
            is_target_NL = torch.rand(token_NL.shape, generator=drawn) < 0.25
            shown_NL, target_K = token_NL.masked_fill(is_target_NL, tokenizer.mask_token_id), token_NL[is_target_NL]
            hidden_KD = run_body(body, F.embedding(shown_NL, embedding_VD))[is_target_NL]
        else:
            target_K = token_NL[:, 1:].flatten()
            hidden_KD = run_body(body, F.embedding(token_NL, embedding_VD))[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(hidden_KD @ embedding_VD.T + bias_V, target_K)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return language_model(family, tokenizer, body, config)


def right_pairs(model):
    pairs = [Example((pair.good, pair.bad), (), "") for pair in minimal_pairs(LANGUAGE, 200)]
    return KINDS.find("minimal_pairs")().answers(model, pairs).mean()


@pytest.mark.slow
def test_a_decoder_that_is_trained_eight_times_longer_is_better(tokenizer, text, examples):
    """By probes of its words, by more than twice the standard error, and by minimal pairs."""
    short, long = (trained("gpt_neox", tokenizer, text, steps) for steps in (50, 400))
    less, more = (probe(model, KINDS.find("tag")(), *examples)[LANGUAGE] for model in (short, long))
    lead_I = more.right_I - less.right_I
    assert lead_I.mean() > 2 * lead_I.std() / len(lead_I) ** 0.5
    assert right_pairs(long) > right_pairs(short) + 0.1


@pytest.mark.slow
def test_an_encoder_that_is_trained_eight_times_longer_is_better(tokenizer, text):
    """By minimal pairs. So small a one's probes are its embedding's, which training hardly moves."""
    changes = {"num_hidden_layers": 1, "initializer_range": 0.1} | dict.fromkeys(
        ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0
    )
    short, long = (trained("bert", tokenizer, text, steps, **changes) for steps in (150, 1200))
    assert right_pairs(long) > right_pairs(short) + 0.1


# --- of prepared tasks --------------------------------------------------------------------------------------------


def write(folder, name, rows):
    (folder / name).write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


@pytest.mark.parametrize("transfer", [None, "en"])
def test_a_task_in_several_languages(transfer, tmp_path, tokenizer):
    """Each has a probe of its own, or one language's serves all."""
    draw = Random(0)
    words = {"en": ("gal", "mor"), "fr": ("mor", "gal")}  # the same words, and other classes
    for language, (yes, no) in words.items():
        for split, number in (("train", 60), ("dev", 20), ("test", 40)):
            # No two splits have a text in common: the words are in another order, or come twice.
            form = {"train": "{0} {1}", "dev": "{1} {0}", "test": "{0} {1} {0} {1}"}[split]
            rows = [
                (form.format(draw.choice(("ta", "so")), yes if label else no), ("no", "yes")[label])
                for label in [0, 1] * number
            ]
            write(tmp_path, f"{split}-{language}.tsv", rows)
    splits = {split: f"{split}-{{language}}.tsv" for split in ("train", "dev", "test")}
    config = TaskConfig.model_validate(
        {
            "name": "made",
            "kind": "classify",
            "languages": ["en", "fr"],
            "transfer": transfer,
            "local": {"files": splits},
        }
    )
    tasks = Tasks(prepare_tasks([config], Location(tmp_path / "store"), str(tmp_path), None, None))
    model_config, body = small_body("gpt_neox", tokenizer)
    model = language_model("gpt_neox", tokenizer, body, model_config)
    for split in ("dev", "test"):
        examples = {language: tasks.first("made", split, language, 30) for language in words}
        found = probe_task(model, tasks, "made", split, examples)
        right = {language: own.right_I.mean() for language, own in found.items()}
        assert right == {"en": 1.0, "fr": 0.0 if transfer else 1.0}


def test_what_is_no_number_tells_nothing():
    _, feature_HIF, label_I = noise(0)
    found = probe(None, *made(np.full_like(feature_HIF, np.nan), label_I))["en"]
    assert len(set(found.told_K.tolist())) == 1
    feature_HIF[1] = np.inf
    assert np.isfinite(probe(None, *made(feature_HIF, label_I))["en"].right_I).all()


@pytest.mark.parametrize("number", [1, 2, 4])
def test_of_few_training_examples_some_are_chosen_on(number, monkeypatch):
    kind, train, _, tested = made(*noise(0)[1:])
    entry = SimpleNamespace(kind="own", transfer=None, counts={"dev": {"en": 5}})
    tasks = SimpleNamespace(manifest=SimpleNamespace(tasks={"own": entry}), first=lambda *_: train[:number])
    monkeypatch.setattr(KINDS, "find", lambda *_: lambda: kind)
    assert probe_task(None, tasks, "own", "dev", tested)["en"].right_I.shape == (400,)
