"""Fine-tuning in plain transformers, as one writes it by hand, on an exported model; and how far its losses are off.

Letters: N examples of a batch, L tokens each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)

from trainables.models.pretrained import quiet_transformers
from trainables.tasks.config import FineTuningConfig
from trainables.tasks.examples import Example
from trainables.tasks.fine_tuning import fine_tune, order
from trainables.tasks.kinds import Kind
from trainables.tasks.model import LanguageModel

IGNORED = -100


def transformers_loss_difference(
    model: LanguageModel,
    folder: str,
    kind: Kind,
    num_classes: int,
    train: Sequence[Example],
    settings: FineTuningConfig,
    *,
    rate: float,
    seed: int,
) -> float:
    """The largest difference of any step's loss between this project's fine-tuning of a model, pooled by its first
    token, and a plain loop's of the same model, exported to the folder."""
    tuned = fine_tune(model, kind, num_classes, train, settings, rate=rate, seed=seed)
    plain = list(plain_losses(folder, kind.of_words, num_classes, train, settings, rate=rate, seed=seed))
    assert len(plain) == len(tuned.losses) == settings.steps
    return max(abs(own - other) for own, other in zip(tuned.losses, plain, strict=True))


def plain_losses(
    folder: str,
    of_words: bool,
    num_classes: int,
    train: Sequence[Example],
    settings: FineTuningConfig,
    *,
    rate: float,
    seed: int,
) -> Iterator[float]:
    """Of every step."""
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    config.num_labels = num_classes
    config.classifier_dropout = next(
        getattr(config, name)
        for name in ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop")
        if hasattr(config, name)
    )
    auto_model: Any = AutoModelForTokenClassification if of_words else AutoModelForSequenceClassification
    torch.manual_seed(seed)
    with quiet_transformers():
        model = auto_model.from_pretrained(folder, config=config, dtype=torch.float32).train()
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate)
    schedule = get_linear_schedule_with_warmup(optimiser, settings.warmup_steps, settings.steps)
    rows = [_row(tokenizer, config.model_type == "bert", of_words, example) for example in train]
    for part in order(len(rows), settings, seed):
        loss = model(**_padded([rows[number] for number in part], tokenizer.pad_token_id, of_words)).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimiser.step()
        schedule.step()
        yield loss.item()


def _row(tokenizer: Any, is_encoder: bool, of_words: bool, example: Example) -> tuple[list[int], list[int]]:
    """Tokens and labels, of texts that are short enough: of words one at the last piece of each, of texts one."""
    separator = tokenizer.eos_token_id
    if not of_words:
        tokens = [separator]
        for text in example.texts:
            tokens += [*tokenizer(text)["input_ids"], separator]
        return (tokens if is_encoder else tokens[:-1]), list(example.labels)
    tokens, labels = [separator], [IGNORED]
    encoding = tokenizer(" ".join(example.texts))
    ends, end = [], -1
    for word in example.texts:
        end += 1 + len(word)
        ends.append(max(i for i in range(len(encoding["input_ids"])) if encoding.token_to_chars(i).start < end))
    for place, token in enumerate(encoding["input_ids"]):
        tokens.append(token)
        labels.append(example.labels[ends.index(place)] if place in ends else IGNORED)
    return ([*tokens, separator], [*labels, IGNORED]) if is_encoder else (tokens, labels)


def _padded(rows: Sequence[tuple[list[int], list[int]]], padding: int, of_words: bool) -> dict[str, torch.Tensor]:
    longest = max(len(tokens) for tokens, _ in rows)
    return {
        "input_ids": torch.tensor([tokens + [padding] * (longest - len(tokens)) for tokens, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(t) + [0] * (longest - len(t)) for t, _ in rows]),
        "labels": torch.tensor(
            [labels + [IGNORED] * (longest - len(labels)) if of_words else labels[0] for _, labels in rows]
        ),
    }
