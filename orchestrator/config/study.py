"""A study as its author writes it: one question, validated whole before anything starts."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated

from pydantic import Field, JsonValue

from orchestrator.config.arms import ArmSpec
from orchestrator.config.confirmation import ConfirmSpec, YardstickSpec
from orchestrator.config.resources import ResourcesSpec
from orchestrator.config.search import SearchSpec
from orchestrator.config.trackers import TrackerName
from search_spaces import Setting
from trainables.config import Config, Key
from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.models.config import ModelConfig
from trainables.training.config import BudgetConfig, CapConfig, TrainingConfig, Unit

StudyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class StudySpec(Config):
    """One study, one question."""

    name: StudyName
    """Also the name of its folder in the storage."""
    question: str = ""
    """What it is to answer."""
    seed: int = Field(0, ge=0, le=10**14)  # confirmation seeds come after it, and are Counts too
    """Of the search and of the confirmation runs."""
    corpora: CorporaConfig
    """The text."""
    tokenizer: TokenizerConfig = TokenizerConfig.model_validate({"train": {}})
    """Trained on the text, or a pretrained one."""
    model: ModelConfig
    """What every arm trains, unless it says otherwise."""
    training: TrainingConfig = TrainingConfig()
    """How models are trained."""
    arms: dict[Key, ArmSpec] = Field(min_length=1)
    """By name."""
    budget: BudgetConfig
    """Of each trial."""
    cap: CapConfig | None = None
    """Of the whole study; null: the search ends when its budget does, and all seeds are confirmed."""
    search: SearchSpec = SearchSpec()
    """Tuning."""
    confirm: ConfirmSpec = ConfirmSpec()
    """Comparing."""
    yardsticks: YardstickSpec = YardstickSpec()
    """Measuring."""
    resources: ResourcesSpec = ResourcesSpec()
    """Running."""
    storage: str = Field("studies", max_length=1000)
    """Folder or `s3://`, `gs://` location of studies and prepared corpora."""
    report_to: tuple[TrackerName, ...] = ()
    """Trackers that are shown the study while it runs, as by `h2h track`; where one fails, the study warns and goes
    on."""

    @property
    def confirm_budget(self) -> BudgetConfig:
        """Of a confirmation run."""
        return self.confirm.budget or self.budget

    def branch_share(self, arm: str, share: float) -> float:
        """Share of a confirmation run's budget that its branch at ``share`` spends by itself: the cooldown."""
        return share * (1.0 - self.training_of(arm).stable_share)

    def cooldown_share(self, arm: str) -> float:
        """What all branches of a confirmation run of an arm spend by themselves, in that run's budget."""
        return math.fsum(self.branch_share(arm, share) for share in self.confirm.anytime)

    @property
    def units_in_use(self) -> dict[str, Unit]:
        """The units that something is bound by, by key."""
        return {"budget": self.budget.unit} | ({} if self.cap is None else {"cap": self.cap.unit})

    @property
    def num_compared_pairs(self) -> int:
        """Pairs of arms that have the same task, of which one is the control, if there is one."""
        tasks = {name: arm.learned.task for name, arm in self.arms.items()}
        pairs = combinations(tasks, 2)
        return sum(tasks[a] == tasks[b] and self.confirm.control in (None, a, b) for a, b in pairs)

    def training_of(self, arm: str, configuration: Mapping[str, Setting] | None = None) -> TrainingConfig:
        """The training settings of an arm, with a configuration of the search on top."""
        fields = TrainingConfig.model_fields
        chosen = {name: value for name, value in (configuration or {}).items() if name in fields}
        own = self.arms[arm].training
        return TrainingConfig.model_validate({**self.training.model_dump(), **own, **chosen})


def study_schema() -> dict[str, JsonValue]:
    """The JSON Schema (2020-12) of a study file: by it an editor completes keys, and underlines what is wrong."""
    schema: dict[str, JsonValue] = StudySpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A headtohead study"}
