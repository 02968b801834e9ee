"""Contrastive objectives: a position's target is told apart from the targets of the batch (arXiv 2309.08351).

A token w stands among the candidates as often as in the text, with probability q(w). So the loss is least where the
score of w in the context c is log p(w|c) - log q(w), up to a constant of c (Levy and Goldberg 2014, "Neural word
embedding as implicit matrix factorization", has the like of binary losses): the likeliest token is that of the
greatest score plus log q. With log q taken off in training the score itself is log p(w|c).
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.models.flops import loss_flops
from trainables.objectives.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from trainables.models.head import Head
    from trainables.objectives.candidates import CandidateSet, Pool
    from trainables.objectives.learner import Learner, MicroBatch, States
    from trainables.objectives.objective import Parts, Scorer

LOWEST_TEMPERATURE = 0.01  # a learned temperature stays above it, as in CLIP (arXiv 2103.00020, section 2.5)


class ContrastiveOptions(Config):
    """A contrastive loss against the targets of the batch (arXiv 2309.08351) and its variations."""

    temperature: float = Field(1.0, gt=0)
    """tau: similarities are divided by it. The paper's is 1."""
    learn_temperature: bool = False
    """tau is a parameter, and `temperature` where it starts."""
    negatives: int | None = Field(None, ge=1)
    """How many tokens to be told apart from, drawn from the batch's targets; null takes all, as the paper does."""
    beyond_batch: Literal["nothing", "vocabulary", "queue"] = "nothing"
    """Where negatives come from that the batch does not have: the vocabulary, by frequency, or the targets before."""
    log_q: bool = False
    """Take the log-frequency of a candidate off its score: frequent tokens are more often negatives."""
    gathered: bool = True
    """Candidates are the targets of the whole step, all workers' and micro-batches'; false: of each micro-batch."""

    @model_validator(mode="after")
    def _beyond_needs_a_number(self) -> ContrastiveOptions:
        if self.beyond_batch != "nothing" and self.negatives is None:
            raise ValueError("'beyond_batch' fills up to 'negatives': set it")
        return self


class TiedOptions(ContrastiveOptions):
    """Contrastive weight tying: candidates are scored by their input embeddings. The defaults are the paper's loss."""

    detached: bool = False
    """Candidates' embeddings learn nothing from being candidates."""


class Contrastive(Objective):
    """Cross-entropy of similarities to the targets of the batch, divided by a temperature."""

    Options = ContrastiveOptions
    options: ContrastiveOptions
    restorable = candidates_vary = True

    @property
    def gathered(self) -> bool:
        return self.options.gathered

    def candidates(self, pool: Pool) -> CandidateSet:
        from trainables.objectives.candidates import negatives_of, target_candidates

        options, target_P, beyond_E = self.options, pool.targets(), None
        missing = (options.negatives or 0) - len(target_P)
        if missing > 0 and options.beyond_batch == "vocabulary":
            beyond_E = pool.text.by_frequency.draw(missing, pool.rng)
        elif missing > 0 and options.beyond_batch == "queue":
            beyond_E = pool.targets_before(missing)
        chosen_P = negatives_of(target_P, options.negatives, pool.rng, beyond_E)
        return target_candidates(chosen_P, pool.text.by_frequency.log_probability_V if options.log_q else None)

    def most_candidates(self, num_targets: int, vocabulary_size: int, searched: Container[str] = ()) -> int:
        options, unique = self.options, min(num_targets, vocabulary_size)
        if "beyond_batch" in searched or ("negatives" in searched and options.beyond_batch != "nothing"):
            return vocabulary_size
        if options.negatives is None or "negatives" in searched:
            return unique
        if options.beyond_batch != "nothing":
            return min(max(options.negatives, num_targets), vocabulary_size)
        return min(options.negatives, unique) + 1

    def parts(self, config: PreTrainedConfig, embedding_VD: nn.Parameter) -> Parts:
        if not self.options.learn_temperature:
            return {}
        import torch

        start = math.log(max(self.options.temperature, LOWEST_TEMPERATURE))
        return {"log_temperature": torch.nn.Parameter(torch.tensor([start]))}  # FSDP refuses scalars

    def temperature(self, model: Learner) -> float | Tensor:
        if self.options.learn_temperature:
            return model.get_parameter("log_temperature").exp()
        return self.options.temperature

    def after_step(self, model: Learner) -> None:
        """A learned temperature stays in its range. A bound in the loss would leave it no gradient."""
        if self.options.learn_temperature:
            import torch

            with torch.no_grad():
                model.get_parameter("log_temperature").clamp_(min=math.log(LOWEST_TEMPERATURE))

    def whole_tables(self, model: Learner) -> tuple[nn.Parameter, ...]:
        return ()

    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        from trainables.objectives.loss import candidate_cross_entropy

        assert batch.candidates is not None
        temperature = self.temperature(model)
        return candidate_cross_entropy(
            batch.candidates, states.hidden_KD, states.candidate_CD / temperature, states.own_KD / temperature
        )

    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        return loss_flops(config.hidden_size, num_targets, num_candidates)

    @property
    def scorers(self) -> tuple[Scorer, ...]:
        return ("embedding", "embedding+unigram") if self.options.log_q else ("embedding+unigram", "embedding")

    def logits(self, model: Learner, hidden_KD: Tensor) -> Tensor:
        return hidden_KD @ self.candidate_table(model).T / self.temperature(model)

    def scoring_head(self, model: Learner) -> Head:
        """One made of the table. Raises InputError for an encoder whose last LayerNorm cannot be undone."""
        import torch

        from trainables.models.body import final_norm
        from trainables.models.head import Head

        with torch.no_grad():
            temperature = float(self.temperature(model))
        table_VD, norm = self.candidate_table(model), final_norm(model.body)
        bias_V = model.log_unigram_V if self.scorers[0] == "embedding+unigram" else None
        return Head.over(model.config, table_VD, temperature, norm, bias_V, learned=self.options.learn_temperature)


class Tied(Contrastive):
    """Contrastive weight tying: the input embedding scores tokens."""

    Options = TiedOptions
    options: TiedOptions
    headless = True

    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        if self.options.detached:
            states = states._replace(candidate_CD=states.candidate_CD.detach(), own_KD=states.own_KD.detach())
        return super().loss(model, batch, states)

    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        return loss_flops(config.hidden_size, num_targets, num_candidates, detached=self.options.detached)


class Untied(Contrastive):
    """A table of its own scores tokens."""

    def parts(self, config: PreTrainedConfig, embedding_VD: nn.Parameter) -> Parts:
        """The table, drawn as the embedding is."""
        import torch

        table_VD = torch.nn.Parameter(torch.empty_like(embedding_VD))
        torch.nn.init.normal_(table_VD, std=config.initializer_range)
        return {"table_VD": table_VD, **super().parts(config, embedding_VD)}

    def candidate_table(self, model: Learner) -> nn.Parameter:
        return model.get_parameter("table_VD")


class HeadlessMasked(Tied):
    """Contrastive weight tying of masked tokens."""

    name, task = "headless_mlm", "masked"


class HeadlessCausal(Tied):
    """Contrastive weight tying of next tokens."""

    name, task = "headless_clm", "causal"


class UntiedMasked(Untied):
    """Noise-contrastive estimation of masked tokens."""

    name, task = "nce_untied", "masked"


class UntiedCausal(Untied):
    """Noise-contrastive estimation of next tokens."""

    name, task = "nce_untied_clm", "causal"
