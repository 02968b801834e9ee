"""Fine-tuning: what a plain transformers loop does, decided by the seed, and honest about what was not learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, DistilBertConfig, LlamaConfig

from tests.helpers.exports import FAMILIES, make_learner, make_tokenizer
from tests.helpers.repository import REPOSITORY
from trainables.corpora.tokenizers import separator_token
from trainables.errors import InputError
from trainables.models.export import export_model
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig, TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.fine_tuning import (
    answers,
    encode,
    fine_tune,
    fine_tune_task,
    order,
    require_affordable,
    training_languages,
    tuning_seed,
)
from trainables.tasks.kinds import KINDS
from trainables.tasks.metrics import right_of
from trainables.tasks.model import LanguageModel
from trainables.tasks.prepared import TaskEntry, Tasks, prepare_tasks

torch.set_num_threads(1)

OBJECTIVES = {"bert": "mlm", "gpt_neox": "clm", "gpt2": "clm"}
DROPOUTS = {
    "bert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "gpt_neox": {"hidden_dropout": 0.1, "attention_dropout": 0.1},
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
}
CLASSIFY, TAG = KINDS.find("classify")(), KINDS.find("tag")()
LENGTH = 24
CLASSES = 3
WORDS = [first + second for first in "abcdefgh" for second in "abcdefgh"]
SHORT = FineTuningConfig(steps=8, batch_examples=4, pooling="first", weight_decay=0.1)
LEARNS = FineTuningConfig(steps=100, batch_examples=8)
FAST = 5e-3
"""A learning rate for so small a model."""


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def make_model(tokenizer, family, *, dropout=False, length=LENGTH):
    """A learner, and the same as tasks ask it."""
    position = {"n_positions" if family == "gpt2" else "max_position_embeddings": length}
    none = dict.fromkeys(DROPOUTS[family], 0.0)
    learner = make_learner(family, OBJECTIVES[family], {}, position | (DROPOUTS[family] if dropout else none))
    separator = [separator_token(tokenizer)]
    task = learner.objective.task
    model = LanguageModel(
        tokenizer,
        task,
        learner.body,
        learner.hidden,
        learner.logits,
        before=separator,
        after=separator if task == "masked" else [],
        most_tokens=length,
        vocabulary_size=learner.config.vocab_size,
        hidden_size=learner.config.hidden_size,
    )
    return learner, model


def texts(count, number=1, seed=0):
    """Examples of texts with two to six words; the first letters of the last text's words tell its class."""
    rng = np.random.default_rng(seed)
    found = []
    for unit in range(count):
        label = int(rng.integers(CLASSES))
        told = [word for word in WORDS if ord(word[0]) % CLASSES == label]
        own = [
            " ".join(rng.choice(told if last else WORDS, rng.integers(2, 7)))
            for last in [False] * (number - 1) + [True]
        ]
        found.append(Example(tuple(own), (label,), str(unit)))
    return found


def sentences(count, seed=0):
    """Sentences, each word's class being told by its first letter."""
    rng = np.random.default_rng(seed)
    found = []
    for unit in range(count):
        words = tuple(rng.choice(WORDS, rng.integers(2, 7)))
        found.append(Example(words, tuple(ord(word[0]) % CLASSES for word in words), str(unit)))
    return found


CASES = {"one text": (CLASSIFY, texts(30)), "two texts": (CLASSIFY, texts(30, 2)), "words": (TAG, sentences(30))}


@pytest.mark.parametrize("dropout", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_a_plain_transformers_loop(tmp_path, monkeypatch, tokenizer, family, case, dropout):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from plain_fine_tuning import transformers_loss_difference

    kind, train = CASES[case]
    learner, model = make_model(tokenizer, family, dropout=dropout, length=40)
    export_model(learner.body, learner.head, learner.config, tokenizer, Location(str(tmp_path)), "")
    found = transformers_loss_difference(model, str(tmp_path), kind, CLASSES, train, SHORT, rate=1e-3, seed=11)
    assert found < 1e-5


def test_the_seed_decides_all_and_the_model_stays_as_it_was(tokenizer):
    learner, model = make_model(tokenizer, "bert", dropout=True)
    weights = {name: value.clone() for name, value in learner.state_dict().items()}
    before = torch.get_rng_state()
    first = fine_tune(model, CLASSIFY, CLASSES, texts(30), SHORT, rate=1e-3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again, other = (fine_tune(model, CLASSIFY, CLASSES, texts(30), SHORT, rate=1e-3, seed=seed) for seed in (1, 2))
    assert first.losses == again.losses != other.losses
    assert np.array_equal(first.told(texts(50, seed=1)), again.told(texts(50, seed=1)))
    assert all(torch.equal(value, weights[name]) for name, value in learner.state_dict().items())
    assert not learner.training


def test_examples_come_in_another_order_each_time_round(tokenizer):
    found = order(10, FineTuningConfig(steps=5, batch_examples=4), seed=3).ravel()
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert list(found[:10]) != list(found[10:])


def test_seeds_are_nested():
    """No two fine-tunings of two pretrained models have the same seed, which would make them vary together."""
    assert len({tuning_seed(pretraining, number) for pretraining in range(20) for number in range(10)}) == 200


def test_two_texts_are_cut_fairly(tokenizer):
    _, model = make_model(tokenizer, "bert")
    separator = separator_token(tokenizer)
    long, short = " ".join(["ab"] * 40), "cd ef"
    for first, second in ((long, short), (short, long), (long, long)):
        (found,) = encode(model, CLASSIFY, [Example((first, second), (0,), "")], 20)
        parts = " ".join(map(str, found.token_L)).split(f"{separator}")
        before, one, two, after = (part.split() for part in parts)
        assert not before
        assert not after
        whole = [tokenizer(text)["input_ids"] for text in (first, second)]
        assert [len(one), len(two)] == [
            min(len(own), max(17 - len(other), n)) for own, other, n in zip(whole, whole[::-1], (9, 8), strict=True)
        ]
        assert [list(map(int, one)), list(map(int, two))] == [
            own[: len(part)] for own, part in zip(whole, (one, two), strict=True)
        ]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_words_are_told_at_their_last_piece(tokenizer, family):
    _, model = make_model(tokenizer, family)
    words = ("ab", "mnop", "ef", "gh")
    (found,) = encode(model, TAG, [Example(words, (0, 1, 2, 0), "")], LENGTH)
    for number, place in enumerate(found.place_K):
        so_far = " ".join(words[: number + 1])
        assert tokenizer.decode(found.token_L[1 : place + 1]).replace(" ", "") == so_far.replace(" ", "")
    pieces = len(tokenizer("ab mnop")["input_ids"])
    special = 2 if family == "bert" else 1
    (cut,) = encode(model, TAG, [Example(words, (0, 1, 2, 0), "")], pieces + special)
    assert list(cut.place_K) == [*found.place_K[:2], -1, -1]


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize(("kind", "make"), [(CLASSIFY, texts), (TAG, sentences)], ids=["classify", "tag"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_can_be_learned_is_learned(tokenizer, family, kind, make, pooling):
    if pooling == "first" and (family != "bert" or kind is TAG):
        pytest.skip("it is an encoder's texts that are pooled")
    _, model = make_model(tokenizer, family)
    settings = LEARNS.model_copy(update={"pooling": pooling})
    tuned = fine_tune(model, kind, CLASSES, make(400), settings, rate=FAST, seed=0)
    test = make(200, seed=1)
    assert tuned.outcome == "completed"
    assert right_of(test, tuned.told(test)).mean() > 0.9
    assert tuned.device_seconds > 0


@pytest.mark.parametrize(("kind", "make"), [(CLASSIFY, texts), (TAG, sentences)], ids=["classify", "tag"])
def test_shuffled_labels_teach_chance(tokenizer, kind, make):
    _, model = make_model(tokenizer, "bert")
    labels = np.random.default_rng(5).permutation([label for example in make(400) for label in example.labels])
    shuffled, begin = [], 0
    for example in make(400):
        end = begin + len(example.labels)
        shuffled.append(example._replace(labels=tuple(int(label) for label in labels[begin:end])))
        begin = end
    tuned = fine_tune(model, kind, CLASSES, shuffled, LEARNS, rate=FAST, seed=0)
    right_I = right_of(test := make(400, seed=1), tuned.told(test))
    error = right_I.std(ddof=1) / len(test) ** 0.5
    shares = np.bincount([label for example in test for label in example.labels]) / sum(len(e.labels) for e in test)
    # What does not know the label gets right, in the long run, between the rarest and the most frequent class's share.
    assert shares.min() - 2 * error < right_I.mean() < shares.max() + 2 * error


def test_what_diverges_is_worth_chance(tokenizer):
    _, model = make_model(tokenizer, "gpt_neox")
    tuned = fine_tune(model, CLASSIFY, CLASSES, texts(30), SHORT, rate=1e25, seed=0)
    assert tuned.outcome == "diverged"
    assert len(tuned.losses) < SHORT.steps
    entry = TaskEntry.model_construct(metric="f1", chance={"en": 0.4}, metric_chance={"en": 0.3})
    right_I, metric = answers(tuned, entry, "en", texts(40, seed=1))
    assert np.array_equal(right_I, np.full(40, 0.4))
    assert metric == 0.3


@pytest.mark.parametrize(("kind", "make"), [(CLASSIFY, texts), (TAG, sentences)], ids=["classify", "tag"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fine_tuning_computes_what_it_is_billed(tokenizer, family, kind, make):
    _, model = make_model(tokenizer, family)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        tuned = fine_tune(model, kind, CLASSES, make(30), SHORT, rate=1e-3, seed=0)
    assert tuned.flops == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("config", [DistilBertConfig, LlamaConfig])
def test_a_model_of_any_family_can_be_fine_tuned(tokenizer, config):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
    body = AutoModel.from_config(config(vocab_size=len(tokenizer), intermediate_size=64, hidden_dim=64, **size)).eval()
    task = "masked" if config is DistilBertConfig else "causal"
    separator = [separator_token(tokenizer)]
    model = LanguageModel(
        tokenizer, task, body, None, None, before=separator, after=separator if task == "masked" else [],
        most_tokens=LENGTH, vocabulary_size=len(tokenizer), hidden_size=32,
    )  # fmt: skip
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        tuned = fine_tune(model, CLASSIFY, CLASSES, texts(30), SHORT, rate=FAST, seed=0)
    assert tuned.flops == pytest.approx(counter.get_total_flops(), rel=0.2)  # attention's own products are left out
    assert tuned.outcome == "completed"


def test_it_may_take_its_share_of_pretraining(tokenizer):
    learner, model = make_model(tokenizer, "bert")
    train = [Example((" ".join(["ab"] * 60),), (0,), "")] * 8  # as long as they may be
    one = fine_tune(model, CLASSIFY, CLASSES, train, SHORT, rate=1e-3, seed=0).flops
    settings = SHORT.model_copy(update={"seeds": 2, "share": 0.5})
    require_affordable(learner.config, settings, {"rte": 1, "udpos": 3}, 1.01 * one * 2 * 4 / 0.5)
    with pytest.raises(InputError, match=r"fine_tuning\.share") as found:
        require_affordable(learner.config, settings, {"rte": 1, "udpos": 3}, 0.95 * one * 2 * 4 / 0.5)
    assert "rte (1), udpos (3)" in str(found.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rates": ()},
        {"learning_rates": (1e-3, 1e-4)},
        {"learning_rates": (1e-3, 1e-3)},
        {"learning_rates": (0.0, 1e-3)},
        {"seeds": 0},
        {"steps": 0},
        {"batch_examples": 0},
        {"warmup": 1.0},
        {"pooling": "last"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError) as found:
        FineTuningConfig(**wrong)
    assert len(found.value.errors()) == 1


@pytest.mark.parametrize(("classes", "train"), [(1, texts(5)), (3, [])], ids=["one class", "no example"])
def test_a_task_that_teaches_nothing_is_refused(tokenizer, classes, train):
    _, model = make_model(tokenizer, "bert")
    with pytest.raises(InputError, match="cannot be fine-tuned"):
        fine_tune(model, CLASSIFY, classes, train, SHORT, rate=1e-3, seed=0)


FILES = {split: f"{split}-{{language}}.tsv" for split in ("train", "dev", "test")}
TOPICS = TaskConfig(
    name="topics", kind="classify", languages=("de", "en"), columns={"text": "words"}, local={"files": FILES}
)


@pytest.fixture(scope="module")
def topics(tmp_path_factory, tokenizer):
    """A task in two languages, whose classes have other names in one than in the other, turned round."""
    folder = tmp_path_factory.mktemp("topics")
    for seed, (split, count) in enumerate((("train", 300), ("dev", 40), ("test", 100))):
        for language in TOPICS.languages:
            rows = [
                f"{e.texts[0]}\t{e.labels[0] if language == 'en' else 2 - e.labels[0]}" for e in texts(count, seed=seed)
            ]
            (folder / f"{split}-{language}.tsv").write_text("\n".join(["words\tlabel", *rows]) + "\n")
    store = tmp_path_factory.mktemp("store")
    tasks = (TOPICS, TOPICS.model_copy(update={"name": "transferred", "transfer": "en"}))
    tasks += (TOPICS.model_copy(update={"name": "measured", "metric": "macro_f1"}),)
    return Tasks(prepare_tasks(tasks, Location(str(store)), str(folder), None, tokenizer))


def test_each_language_has_its_own_model_or_that_of_another(topics, tokenizer):
    _, model = make_model(tokenizer, "bert")
    right = {}
    for name in ("topics", "transferred"):
        examples = {language: topics.examples(name, "test", language) for language in ("de", "en")}
        found = fine_tune_task(model, topics, name, examples, LEARNS, rate=FAST, seed=0)
        right[name] = {language: own.mean() for language, own in found.right.items()}
        assert found.outcomes == {"de": "completed", "en": "completed"}
    assert min(right["topics"].values()) > 0.9
    assert right["transferred"]["en"] > 0.9
    # What English calls 1, the other does too; all else it calls the opposite.
    assert 0.2 < right["transferred"]["de"] < 0.5


def test_a_task_is_measured_by_its_metric(topics, tokenizer):
    _, model = make_model(tokenizer, "bert")
    examples = {"en": topics.examples("measured", "test", "en")}
    found = fine_tune_task(model, topics, "measured", examples, LEARNS, rate=FAST, seed=0)
    plain = fine_tune_task(model, topics, "topics", examples, LEARNS, rate=FAST, seed=0)
    assert np.array_equal(found.right["en"], plain.right["en"])
    assert plain.metrics == {}
    assert 0.9 < found.metrics["en"] <= 1
    broken = fine_tune_task(model, topics, "measured", examples, SHORT, rate=1e25, seed=0)
    assert broken.outcomes == {"en": "diverged"}
    assert broken.metrics["en"] == topics.manifest.tasks["measured"].metric_chance["en"]


def test_one_model_may_learn_in_all_languages(topics):
    entry, languages = topics.manifest.tasks["topics"], ("de", "en")
    together = LEARNS.model_copy(update={"together": True})
    assert training_languages(entry, languages, LEARNS) == [(("de",), ("de",)), (("en",), ("en",))]
    assert training_languages(entry, languages, together) == [(languages, languages)]
    transferred = topics.manifest.tasks["transferred"]
    assert training_languages(transferred, languages, together) == [(("en",), languages)]
