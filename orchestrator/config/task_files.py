"""Which downstream tasks a study takes: their definitions, and suites of them, shipped by name, or others by path."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, JsonValue, field_validator, model_validator

from orchestrator.config.errors import validated
from orchestrator.config.yaml_text import parse_yaml
from trainables.config import Config, Key
from trainables.errors import InputError, nearest
from trainables.storage import local_path
from trainables.tasks.config import FineTuningConfig, TaskConfig
from trainables.tasks.kinds import KINDS

TASKS = Path(__file__).parent / "tasks"
SUITES = Path(__file__).parent / "suites"


class SuiteConfig(Config):
    """A suite as a YAML file has it."""

    description: str = ""
    """What it is for."""
    tasks: tuple[str, ...]
    """Names of tasks."""
    fine_tuning: FineTuningConfig | None = None
    """How models are fine-tuned to them, where a study does not say it."""


class TasksSpec(Config):
    """Downstream tasks that models are asked when their training ends."""

    suite: str | tuple[str | TaskConfig, ...] = Field("quick", min_length=1)
    """A shipped suite, or tasks: shipped ones by name, your own by the path of their YAML file."""
    folder: str | None = None
    """The folder that holds the files of shipped tasks; null: they are read from the Hugging Face hub."""
    fine_tuning: FineTuningConfig | None = None
    """Also fine-tune the confirmation's models to the tasks that have training examples; null: probe them alone. Left
    out: as the suite says."""
    fine_tuned: tuple[Key, ...] | None = None
    """To which of the suite's tasks; null: all that have training examples."""

    @field_validator("suite")
    @classmethod
    def _known(cls, suite: str | tuple[str | TaskConfig, ...]) -> str | tuple[str | TaskConfig, ...]:
        load_tasks(suite, "suite")
        return suite

    @model_validator(mode="after")
    def _as_the_suite_says(self) -> Self:
        if "fine_tuning" not in self.model_fields_set and isinstance(self.suite, str) and self.suite in suite_names():
            object.__setattr__(self, "fine_tuning", load_suite(self.suite).fine_tuning)  # frozen from here on
        return self

    @model_validator(mode="after")
    def _fine_tuned(self) -> Self:
        learned = self._learned
        for name in self.fine_tuned or ():
            if name not in learned:
                raise InputError(
                    f"models cannot be fine-tuned to '{name}'",
                    where="fine_tuned",
                    why="it is no task of the suite, or one without training examples",
                    remedy=nearest(name, learned),
                )
        if self.fine_tuning is not None and not learned:
            raise InputError("no task of the suite has training examples", where="fine_tuning", remedy="leave it out")
        return self

    @property
    def probes(self) -> bool:
        """Whether a task has training examples."""
        return bool(self._learned)

    @property
    def _learned(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks if KINDS.find(task.kind).learns)

    def tuned(self, prepared: Collection[str]) -> tuple[str, ...]:
        """The tasks that models are fine-tuned to, of those that were prepared. Raises InputError for one that is named
        and was not."""
        if self.fine_tuning is None:
            return ()
        for name in self.fine_tuned or ():
            if name not in prepared:
                raise InputError(
                    f"models cannot be fine-tuned to '{name}'",
                    where="yardsticks.tasks.fine_tuned",
                    why="the text has none of its languages",
                    remedy="leave it out",
                )
        return self.fine_tuned or tuple(name for name in self._learned if name in prepared)

    def tasks_in(self, languages: Collection[str]) -> tuple[TaskConfig, ...]:
        """Their definitions: of a shipped suite those alone that have one of these languages. Raises InputError where
        none has."""
        if not (isinstance(self.suite, str) and self.suite in suite_names()):
            return self.tasks
        found = tuple(task for task in self.tasks if not set(task.languages).isdisjoint(languages))
        if not found:
            raise InputError(
                f"no task of the suite {self.suite} has one of the text's languages",
                where="yardsticks.tasks.suite",
                why=f"the text has {', '.join(languages)}"[:300],
                remedy="name tasks that have: h2h list shows them",
            )
        return found

    @property
    def tasks(self) -> tuple[TaskConfig, ...]:
        """Their definitions."""
        return load_tasks(self.suite, "yardsticks.tasks.suite")


def task_names() -> list[str]:
    """Names of the shipped tasks."""
    return sorted(path.stem for path in TASKS.glob("*.yaml"))


def suite_names() -> list[str]:
    """Names of the shipped suites."""
    return sorted(path.stem for path in SUITES.glob("*.yaml"))


def load_suite(name: str) -> SuiteConfig:
    """A shipped suite."""
    file = SUITES / f"{name}.yaml"
    return validated(SuiteConfig, parse_yaml(file.read_bytes(), str(file)), str(file))


def load_tasks(names: str | Sequence[str | TaskConfig], where: str) -> tuple[TaskConfig, ...]:
    """The tasks of a suite, or by names and paths of their own YAML files. Raises InputError: one is unknown, is no
    definition, or there are two of one name."""
    if isinstance(names, str):
        names = load_suite(names).tasks if names in suite_names() else (names,)
    found: dict[str, TaskConfig] = {}
    for name in names:
        task = name if isinstance(name, TaskConfig) else load_task(name, where)
        if task.name in found:
            raise InputError(f"there are two tasks called '{task.name}'", where=where, remedy="give one another name")
        found[task.name] = task
    return tuple(found.values())


def load_task(name_or_path: str, where: str) -> TaskConfig:
    """A shipped task by its name, any other by the path of its YAML file. Raises InputError."""
    file = TASKS / f"{name_or_path}.yaml"
    if name_or_path not in task_names():
        file = local_path(name_or_path)
        if not (file.suffix in (".yaml", ".yml") and file.is_file()):
            raise InputError(
                f"no task '{name_or_path}'",
                where=where,
                why="there is no shipped task or suite of that name, nor a YAML file",
                remedy=nearest(name_or_path, [*suite_names(), *task_names()]),
            )
    content: JsonValue = parse_yaml(file.read_bytes(), str(file))
    task = validated(TaskConfig, content, str(file))
    return task if file.parent == TASKS else task.beside(str(file.parent.absolute()))
