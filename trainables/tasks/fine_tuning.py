"""Fine-tuning: a copy of a body and a new classifier on top of it, trained together on a task's examples.

The classifier is that of transformers' ``ForSequenceClassification`` and ``ForTokenClassification``. Of texts, an
encoder's pooled state goes through a dense layer with tanh, a dropout and the output, a decoder's last state through an
output without bias; of words, each word's last piece through a dropout and an output. With ``pooling: first`` every
loss equals that of a plain loop with these classes. Nothing here knows of Ray.

Letters: I examples, N of a batch, L tokens each, K labels, D hidden size, C classes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, get_linear_schedule_with_warmup

from trainables.corpora.tokenizers import separator_token
from trainables.errors import InputError
from trainables.evaluation.held_out import batches
from trainables.hashing import hash_uint64, permute
from trainables.models.body import ATTENTION
from trainables.models.config import TASKS
from trainables.models.flops import any_body_flops, body_flops, classifier_flops
from trainables.tasks.config import FineTuningConfig, Pooling
from trainables.tasks.examples import Example
from trainables.tasks.kinds import KINDS, Kind
from trainables.tasks.metrics import NOTHING, metric_of, right_of
from trainables.tasks.model import LanguageModel
from trainables.tasks.prepared import TaskEntry, Tasks

Ints = NDArray[np.int64]
Outcome = Literal["completed", "diverged"]

_DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop")  # of hidden states, as families name it


class Encoded(NamedTuple):
    """An example as the model sees it."""

    token_L: Ints
    place_K: Ints
    """Where each label is told: at a word's last piece, or -1 where that was cut off; of texts at the first token, or a
    decoder's last."""
    label_K: Ints


def encode(model: LanguageModel, kind: Kind, examples: Sequence[Example], most_tokens: int) -> list[Encoded]:
    """Texts between the model's separators; two are joined by one, and where both are too long the longer one is cut,
    at its end. Words are joined by spaces."""
    room = min(model.room, most_tokens - len(model.framed([])))
    of_example = _words if kind.of_words else _texts
    return [of_example(model, example, room) for example in examples]


def _texts(model: LanguageModel, example: Example, room: int) -> Encoded:
    first, *others = model.tokenizer(list(example.texts), add_special_tokens=False)["input_ids"]
    kept = first[:room]
    for second in others:
        room -= 1  # the separator
        kept = first[: max(room - len(second), (room + 1) // 2)]
        kept = [*kept, separator_token(model.tokenizer), *second[: room - len(kept)]]
    token_L = model.framed(kept)
    place = 0 if model.task == "masked" else len(token_L) - 1
    return Encoded(token_L, np.array([place]), np.array(example.labels))


def _words(model: LanguageModel, example: Example, room: int) -> Encoded:
    words = example.texts
    found = model.tokenizer(" ".join(words), add_special_tokens=False, return_offsets_mapping=True)
    # The word of each character; -1 of the spaces between words.
    word_c = np.concatenate([[number] * len(word) + [-1] for number, word in enumerate(words)]).astype(np.int64)
    place_K = np.full(len(words), -1)
    for place, (_, end) in enumerate(found["offset_mapping"][:room], start=model.num_before):
        if end > 0 and word_c[end - 1] >= 0:
            place_K[word_c[end - 1]] = place
    return Encoded(model.framed(found["input_ids"][:room]), place_K, np.array(example.labels))


class Classifier(nn.Module):
    """A body with a classifier on top of it, whose weights are drawn from torch's generator."""

    def __init__(self, body: nn.Module, num_classes: int, *, of_words: bool, pooling: Pooling | None) -> None:
        super().__init__()
        config = _config_of(body)
        D, dropout = int(config.hidden_size), next((getattr(config, n) for n in _DROPOUTS if hasattr(config, n)), 0.0)
        self.body, self.of_words, self.pooling = body, of_words, pooling
        is_dense = pooling is not None and not of_words
        self.dense = _linear(D, D, config) if is_dense else None
        self.dropout = nn.Dropout(dropout)
        self.output = _linear(D, num_classes, config, bias=of_words or is_dense)

    def forward(self, token_NL: Tensor, mask_NL: Tensor, row_K: Tensor, place_K: Tensor) -> Tensor:
        """Scores of the classes, (K, C), of the states at these places."""
        hidden_NLD: Tensor = self.body(input_ids=token_NL, attention_mask=mask_NL).last_hidden_state
        if self.of_words:
            words: Tensor = self.output(self.dropout(hidden_NLD)[row_K, place_K])
            return words
        if self.pooling == "mean":
            hidden_ND = (hidden_NLD * mask_NL[:, :, None]).sum(1) / mask_NL.sum(1)[:, None]
        else:
            hidden_ND = hidden_NLD[row_K, place_K]
        if self.dense is not None:
            hidden_ND = self.dropout(torch.tanh(self.dense(hidden_ND)))
        texts: Tensor = self.output(hidden_ND)
        return texts


def _config_of(body: nn.Module) -> PreTrainedConfig:
    config = body.config
    assert isinstance(config, PreTrainedConfig)
    return config


def _linear(inputs: int, outputs: int, config: PreTrainedConfig, *, bias: bool = True) -> nn.Linear:
    """Drawn as transformers draws it, from as many random numbers."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    nn.init.normal_(layer.weight, std=config.initializer_range)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class TunedModel:
    """A model after its fine-tuning, and what that took."""

    def __init__(
        self,
        classifier: Classifier,
        model: LanguageModel,
        kind: Kind,
        settings: FineTuningConfig,
        losses: Sequence[float],
        flops: int,
        device_seconds: float,
    ) -> None:
        self.classifier, self.losses = classifier, tuple(losses)
        self.flops, self.device_seconds = flops, device_seconds
        self._model, self._kind, self._settings = model, kind, settings

    @property
    def outcome(self) -> Outcome:
        """Diverged: a loss or a weight is no finite number."""
        finite = np.isfinite(self.losses).all() and all(bool(p.isfinite().all()) for p in self.classifier.parameters())
        return "completed" if finite else "diverged"

    @torch.no_grad()
    def told(self, examples: Sequence[Example]) -> Ints:
        """The class that is told of each label, (K,), example by example: :data:`NOTHING` of a word that was cut
        off."""
        encoded = encode(self._model, self._kind, examples, self._settings.sequence_tokens)
        told = [np.full(len(own.label_K), NOTHING) for own in encoded]
        for part in batches([len(own.token_L) for own in encoded]):
            batch = _batch([encoded[number] for number in part], self.classifier.output.weight.device)
            with _autocast(self.classifier.output.weight.device):
                best_K = self.classifier(*batch.inputs).argmax(1).cpu().numpy()
            ends = np.cumsum([(encoded[number].place_K >= 0).sum() for number in part])[:-1]
            for number, best in zip(part, np.split(best_K, ends), strict=True):
                told[number][encoded[number].place_K >= 0] = best
        return np.concatenate(told)


class _Batch(NamedTuple):
    """On the device."""

    token_NL: Tensor
    mask_NL: Tensor
    row_K: Tensor
    place_K: Tensor
    label_K: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All but the labels."""
        return self[:4]


def _batch(examples: Sequence[Encoded], device: torch.device) -> _Batch:
    token_NL = pad_sequence([torch.from_numpy(own.token_L) for own in examples], batch_first=True)
    length_N = torch.tensor([len(own.token_L) for own in examples])
    mask_NL = (torch.arange(token_NL.shape[1]) < length_N[:, None]).long()
    place_K = np.concatenate([own.place_K for own in examples])
    row_K = np.repeat(np.arange(len(examples)), [len(own.place_K) for own in examples])
    label_K = np.concatenate([own.label_K for own in examples])
    known_K = np.flatnonzero(place_K >= 0)
    labels = (torch.from_numpy(values[known_K]) for values in (row_K, place_K, label_K))
    return _Batch(*(values.to(device) for values in (token_NL, mask_NL, *labels)))


def fine_tune(
    model: LanguageModel,
    kind: Kind,
    num_classes: int,
    train: Sequence[Example],
    settings: FineTuningConfig,
    *,
    rate: float,
    seed: int,
) -> TunedModel:
    """Train a copy of the model's body with a new classifier; the model stays as it was, and so does torch's random
    state. The seed decides all: the classifier's weights, the order of the examples, and what is dropped.

    A run whose loss is no finite number ends there. Raises InputError: there are no two classes, or no example with a
    label that is not cut off.
    """
    encoded = [e for e in encode(model, kind, train, settings.sequence_tokens) if (e.place_K >= 0).any()]
    if num_classes < 2 or not encoded:
        raise InputError(
            "a model cannot be fine-tuned to this task",
            why=f"it has {num_classes} classes, and {len(encoded)} examples to train on that have a label",
            remedy="a task of two classes at least, and examples of them in its training split",
        )
    device = next(model.body.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        pooling = settings.pooling if model.task == "masked" else None
        classifier = Classifier(_own_body(model.body), num_classes, of_words=kind.of_words, pooling=pooling)
        classifier = classifier.to(device).train()
        started = time.perf_counter()
        losses, flops = list[float](), 0
        for batch, loss in _steps(classifier, encoded, order(len(encoded), settings, seed), settings, rate):
            losses.append(loss)
            flops += _step_flops(classifier, batch.token_NL.shape, len(batch.label_K))
        seconds = time.perf_counter() - started
    return TunedModel(classifier.eval(), model, kind, settings, losses, flops, seconds)


class TaskTuning(NamedTuple):
    """All that one fine-tuning of a model to a task found, by language, and what it took."""

    right: Mapping[str, NDArray[np.float64]]
    """Of each example how much is right, (I,)."""
    metrics: Mapping[str, float]
    """What the task's metric comes to, where it is not accuracy."""
    outcomes: Mapping[str, Outcome]
    flops: int
    device_seconds: float


def fine_tune_task(
    model: LanguageModel,
    tasks: Tasks,
    name: str,
    examples: Mapping[str, Sequence[Example]],
    settings: FineTuningConfig,
    *,
    rate: float,
    seed: int,
) -> TaskTuning:
    """Fine-tune a model to a prepared task, as often as :func:`training_languages` says, and ask it these examples of
    its languages. Of training examples it reads no more than it has steps for. Raises InputError as
    :func:`fine_tune`."""
    entry = tasks.manifest.tasks[name]
    kind, right = KINDS.find(entry.kind)(), dict[str, NDArray[np.float64]]()
    metrics, outcomes, flops, seconds = dict[str, float](), dict[str, Outcome](), 0, 0.0
    for learned, asked in training_languages(entry, tuple(examples), settings):
        most = -(-settings.steps * settings.batch_examples // len(learned))
        train = [example for language in learned for example in tasks.first(name, "train", language, most)]
        tuned = fine_tune(model, kind, len(entry.classes), train, settings, rate=rate, seed=seed)
        flops, seconds = flops + tuned.flops, seconds + tuned.device_seconds
        outcomes |= dict.fromkeys(asked, tuned.outcome)
        for language in asked:
            right[language], metric = answers(tuned, entry, language, examples[language])
            if metric is not None:
                metrics[language] = metric
    return TaskTuning(right, metrics, outcomes, flops, seconds)


def answers(
    tuned: TunedModel, entry: TaskEntry, language: str, examples: Sequence[Example]
) -> tuple[NDArray[np.float64], float | None]:
    """Of each example how much is right, (I,), from 0 to 1, of words their share, those that were cut off being wrong;
    and what the task's metric comes to, None where that is accuracy. Of a run that diverged it is in each what chance
    gets right of all, and what one answer to all comes to."""
    has_metric = entry.metric != "accuracy"
    if tuned.outcome == "diverged":
        chance_I = np.full(len(examples), entry.chance[language])
        return chance_I, entry.metric_chance[language] if has_metric else None
    told_K = tuned.told(examples)
    return right_of(examples, told_K), metric_of(entry, examples, told_K) if has_metric else None


def training_languages(
    entry: TaskEntry, languages: Sequence[str], settings: FineTuningConfig
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each model to be fitted, the languages of its training examples, and those that it is asked in.

    A task with ``transfer`` has one, for all languages: zero-shot transfer. Any other has one a language, trained in it
    (of XNLI: translate-train), or with ``together`` one that is trained in all (translate-train-all, arXiv 1911.02116).
    """
    if entry.transfer is not None:
        return [((entry.transfer,), tuple(languages))]
    if settings.together:
        return [(tuple(languages), tuple(languages))]
    return [((language,), (language,)) for language in languages]


def _own_body(body: nn.Module) -> nn.Module:
    """A copy that can be trained, and runs as any model of transformers'."""
    own = copy.deepcopy(body).float().requires_grad_(True)
    if _config_of(own)._attn_implementation == ATTENTION:  # which needs masks that only this project makes
        own.set_attn_implementation("sdpa")  # type: ignore[operator]
    _config_of(own).use_cache = False
    own.get_input_embeddings().padding_idx = None  # type: ignore[operator]  # else its row would have no gradient
    return own


def _steps(
    classifier: Classifier, encoded: Sequence[Encoded], order_SN: Ints, settings: FineTuningConfig, rate: float
) -> Iterator[tuple[_Batch, float]]:
    """Batches and losses, step by step, to the last or to one that is no finite number."""
    parameters, device = list(classifier.parameters()), classifier.output.weight.device
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=rate, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, settings.warmup_steps, settings.steps)
    for part in order_SN:
        batch = _batch([encoded[number] for number in part], device)
        with _autocast(device):
            loss = F.cross_entropy(classifier(*batch.inputs).float(), batch.label_K)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
        optimiser.step()
        schedule.step()
        yield batch, loss.item()
        if not loss.isfinite():
            return


@contextmanager
def _autocast(device: torch.device) -> Iterator[None]:
    """Products in bfloat16 on a GPU, as in pretraining."""
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        yield


def order(num_examples: int, settings: FineTuningConfig, seed: int) -> Ints:
    """The numbers of each step's examples, (steps, batch): all of them in a new order, again and again."""
    place = np.arange(settings.steps * settings.batch_examples)
    epoch, own = np.divmod(place, num_examples)
    found = np.empty_like(place)
    for number in range(int(epoch[-1]) + 1):
        found[epoch == number] = permute(own[epoch == number], num_examples, seed, number)
    return found.reshape(settings.steps, settings.batch_examples)


def tuning_seed(pretraining_seed: int, number: int) -> int:
    """The seed of a model's fine-tuning of this number: another for each pretraining seed, in which it is nested, and
    the same for all arms."""
    return int(hash_uint64(np.array([number], dtype=np.uint64), pretraining_seed)[0] >> np.uint64(2))


def _step_flops(classifier: Classifier, shape: Sequence[int], num_labels: int) -> int:
    config, (num_sequences, length) = _config_of(classifier.body), shape
    if config.model_type in TASKS:
        body = body_flops(config, num_sequences, length, num_sequences * length)
    else:
        body = any_body_flops(classifier.body, num_sequences * length)
    num_classes, is_dense = classifier.output.out_features, classifier.dense is not None
    return body + classifier_flops(int(config.hidden_size), num_labels, num_classes, dense=is_dense)


def most_flops(config: PreTrainedConfig, settings: FineTuningConfig) -> int:
    """What one fine-tuning takes at most, but for the classifier's output: all examples being as long as they may."""
    length = min(settings.sequence_tokens, int(config.max_position_embeddings))
    step = body_flops(config, settings.batch_examples, length, settings.batch_examples * length)
    dense = classifier_flops(config.hidden_size, settings.batch_examples, 0, dense=True)
    return settings.steps * (step + dense)


def require_affordable(
    config: PreTrainedConfig, settings: FineTuningConfig, tunings: Mapping[str, int], pretraining_flops: float
) -> None:
    """Raises InputError: a model's fine-tunings, so many of each task with one seed, may take more than their share of
    its pretraining's FLOPs."""
    planned = most_flops(config, settings) * settings.seeds * sum(tunings.values())
    if planned > settings.share * pretraining_flops:
        raise InputError(
            f"fine-tuning a model may take {planned / pretraining_flops:.3g} times what its pretraining takes",
            where="fine_tuning.share",
            why=f"{settings.share:g} is the most. {settings.steps} steps of {settings.batch_examples} examples, with "
            f"{settings.seeds} seeds, of {', '.join(f'{task} ({count})' for task, count in tunings.items())}",
            remedy="fewer steps, seeds or tasks, shorter sequences, or a larger share",
        )
