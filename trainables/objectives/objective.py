"""What a pretraining objective is. One is a class in a file of its own, and a line in the registry or an entry point.

An objective says what a model recovers, from which candidates it tells it apart, what it adds to a body, its loss and
the FLOPs of that. The stream, the step, workers, checkpoints, evaluation and export are the same for all.

Letters: N sequences, L tokens each, K target positions of a micro-batch, P targets that candidates are made of, D
hidden size, C candidates, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from trainables.config import Config
from trainables.errors import InputError
from trainables.models.config import Task

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from trainables.corpora.stream.manifest import Manifest
    from trainables.corpora.stream.token_stream import Batch
    from trainables.models.head import Head
    from trainables.objectives.candidates import CandidateSet, Pool
    from trainables.objectives.corruption import Corrupted
    from trainables.objectives.learner import Learner, MicroBatch, States

    Parts = dict[str, nn.Module | nn.Parameter]

Scorer = Literal["embedding", "embedding+unigram", "head"]
"""How the vocabulary is scored: by the table that candidates are looked up in, by that and the log-probability of each
token in the text trained on, or by the head."""


class NoOptions(Config):
    """Of an objective that has nothing to set."""


class Objective(ABC):
    """One pretraining objective, with its options, one of its ``Options``.

    Its module is read for every command: import torch, NumPy and transformers in the methods that need them.
    """

    name: ClassVar[str]
    """As a study writes it."""
    task: ClassVar[Task]
    """Which kind of model it trains."""
    Options: ClassVar[type[Config]] = NoOptions
    """Its settings."""
    headless: ClassVar[bool] = False
    """True: no vocabulary projection is trained; the input embedding scores tokens."""
    restorable: ClassVar[bool] = False
    """Whether a trial may end as the vanilla objective of its task, with the head that ``scoring_head`` gives."""
    candidates_vary: ClassVar[bool] = False
    """Whether the number of candidates depends on the text: FLOPs are then known at most, until a step is made."""

    def __init__(self, options: Config) -> None:
        self.options = options

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The objective with the options as a study writes them. Raises ValidationError for unknown or wrong ones."""
        return cls(cls.Options.model_validate(settings))

    def corrupt(self, batch: Batch, manifest: Manifest, seed: int, mask_rate: float) -> Corrupted:
        """What the model sees of clean sequences, and must recover: a pure function, as many targets for each."""
        from trainables.objectives.corruption import corrupt

        return corrupt(self.task, batch, manifest, seed, mask_rate)

    def targets_per_sequence(self, sequence_length: int, mask_rate: float) -> int:
        """How many targets :meth:`corrupt` gives a sequence."""
        from trainables.objectives.corruption import num_masked

        return num_masked(sequence_length, mask_rate) if self.task == "masked" else sequence_length - 1

    @property
    def gathered(self) -> bool:
        """Whether candidates are those of the whole step. False: of each micro-batch, whose size changes the loss."""
        return True

    def candidates(self, pool: Pool) -> CandidateSet | None:
        """What the positions of a step, or of a micro-batch, are told apart from; None where no candidates are chosen.

        A pure function of the pool: a step is the same wherever it is made.
        """
        return None

    def most_candidates(self, num_targets: int, vocabulary_size: int, searched: Container[str] = ()) -> int:
        """The most candidates, its own included, that a position can have, whatever a search varies of the options."""
        return vocabulary_size

    def parts(self, config: PreTrainedConfig, embedding_VD: nn.Parameter) -> Parts:
        """What the objective adds to a body, by name, newly drawn: its family's vocabulary projection, ``head``."""
        from trainables.models.head import Head

        return {"head": Head(config, embedding_VD)}

    def candidate_table(self, model: Learner) -> nn.Parameter:
        """The table whose rows are the candidates' weights, (V, D)."""
        return model.embedding_VD

    def whole_tables(self, model: Learner) -> tuple[nn.Parameter, ...]:
        """Tables that the loss uses beyond looking up candidates in them: their gradients have every row.

        Of other tables a step touches the rows of its inputs and candidates alone, and may update no more.
        """
        return (model.embedding_VD,)

    @abstractmethod
    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        """The loss summed over the micro-batch's target positions, a scalar."""

    @abstractmethod
    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        """FLOPs of the loss, forward and backward, in closed form: 2 a multiply-add, matrix products only.

        C has a position's own candidate too; it is 0 where no candidates are chosen.
        """

    def after_step(self, model: Learner) -> None:  # noqa: B027  # most have nothing to do
        """Called after every update of the weights."""

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        """How its models can score the vocabulary. The first is what the loss's optimum implies: by it yardsticks are
        taken, and models exported and restored. All have the same :meth:`logits`."""
        return ("embedding", "embedding+unigram") if self.headless else ("head",)

    def logits(self, model: Learner, hidden_KD: Tensor) -> Tensor:
        """Scores of the whole vocabulary without a unigram's, (K, V): the head's."""
        return model.required_head.logits(hidden_KD)

    def scoring_head(self, model: Learner) -> Head:
        """A head that scores as the first scorer, for export and restoration. Raises InputError where there is none."""
        if model.head is None:
            raise InputError(
                f"a model of the objective {self.name} cannot be given a vocabulary head",
                why="the objective does not say how: it has no scoring_head",
                remedy="an objective that has one, such as headless_mlm or mlm",
            )
        return model.head
