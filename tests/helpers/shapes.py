"""Every shipped shape that fits an objective, for models without memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.helpers.corpus import LENGTH, VOCABULARY
from trainables.models.body_config import body_config
from trainables.models.config import SHAPES, ModelConfig
from trainables.objectives import Objective


def full_size_configs(objective: Objective) -> Iterator[tuple[str, Any]]:
    """Names of shapes, and the bodies' configurations."""
    for shape, kinds in SHAPES.items():
        if objective.task in kinds:
            yield (
                shape,
                body_config(
                    ModelConfig(shape=shape), objective.task, vocabulary_size=VOCABULARY, sequence_length=LENGTH
                ),
            )
