"""One side of the comparison: an objective, what of it is fixed, and what the search varies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pydantic import Field, field_validator, model_validator

from orchestrator.config.errors import validated
from orchestrator.config.yaml_text import parse_yaml
from search_spaces import Float, Setting, Space, space_names, space_path
from trainables.config import Config
from trainables.errors import InputError, nearest
from trainables.models.config import ModelConfig
from trainables.objectives import OBJECTIVES, Objective, find_objective
from trainables.training.config import TrainingConfig


class ArmSpec(Config):
    """One side of the comparison."""

    objective: str
    """`h2h list` shows them."""
    space: str | Space | None = None
    """Search space: a shipped one's name, a YAML file, or the space itself; null: the one named as the objective. In a
    study that has begun it is the space itself."""
    options: dict[str, Setting] = Field(default_factory=dict)
    """Settings of the objective that are fixed for this arm, as `temperature`."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Training settings that this arm has otherwise than the study."""
    model: ModelConfig | None = None
    """Another model than the study's."""

    @field_validator("objective")
    @classmethod
    def _known_objective(cls, name: str) -> str:
        return find_objective(name).name

    @model_validator(mode="after")
    def _known_settings(self) -> ArmSpec:
        options = self.learned.Options
        if self.options and not options.model_fields:
            name = next(iter(self.options))
            having = [one.name for one in OBJECTIVES if name in one.Options.model_fields]
            raise InputError(
                f"the objective {self.objective} has no option '{name}'",
                where=f"options.{name}",
                why="it has none at all",
                remedy=f"an objective that has it: {', '.join(having)}" if having else "leave it out",
            )
        validated(options, self.options, key="options")
        validated(TrainingConfig, self.training, key="training")
        self._check_space(options)
        return self

    def _check_space(self, options: type[Config]) -> None:
        """Every value that the search may suggest is one that the setting can have."""
        space, key = self.search_space, self._space_key
        fields = {**TrainingConfig.model_fields, **options.model_fields}
        for name, dimension in space.dimensions.items():
            if name not in fields:
                what = f"the search space varies what {self.objective} does not have: '{name}'"
                raise InputError(what, where=key, remedy=nearest(name, fields))
            owner = options if name in options.model_fields else TrainingConfig
            types = get_args(fields[name].annotation) or (fields[name].annotation,)
            if int in types and float not in types and isinstance(dimension, Float):
                raise InputError(f"'{name}' is a whole number", where=key, remedy=f"{name}: {{type: int, ...}}")
            for value in dimension.ends:
                validated(owner, {name: value}, key=key)
        for configuration in space.first:
            for name, value in configuration.items():
                if not space.dimensions[name].contains(value):
                    raise InputError(f"'first' has a {name} outside its dimension: {value}", where=key)

    @property
    def learned(self) -> type[Objective]:
        """What is learned."""
        return find_objective(self.objective)

    @cached_property
    def search_space(self) -> Space:
        """What the search varies. Raises InputError if there is no such space, or its file is wrong."""
        if isinstance(self.space, Space):
            return self.space
        name, key = self.space or self.objective, self._space_key
        try:
            content = space_path(name).read_bytes()
        except (OSError, ValueError) as error:  # a name of a thousand characters, one with a NUL
            if not isinstance(error, FileNotFoundError):
                raise InputError("the search space cannot be read", where=key, why=str(error)) from error
            beside = Path(name).parent.glob("*.yaml") if name.endswith((".yaml", ".yml")) else ()
            remedy = nearest(name, [*space_names(), *(path.name for path in beside)])
            raise InputError(f"no search space '{name}'", where="space", remedy=remedy) from error
        return validated(Space, parse_yaml(content, key, "compare it with docs/study.md"), key=key)

    @property
    def _space_key(self) -> str:
        return "space" if isinstance(self.space, Space) else f"space ({self.space or self.objective})"

    def options_with(self, configuration: Mapping[str, Setting]) -> dict[str, Setting]:
        """The objective's options, with a configuration of the search on top."""
        fields = self.learned.Options.model_fields
        return self.options | {name: value for name, value in configuration.items() if name in fields}
