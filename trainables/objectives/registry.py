"""The objectives by name. A new one is a file, and a line here or an entry point of another package."""

from trainables.config import Registry
from trainables.models.config import Task
from trainables.objectives.combined import CombinedCausal, CombinedMasked
from trainables.objectives.contrastive import HeadlessCausal, HeadlessMasked, UntiedCausal, UntiedMasked
from trainables.objectives.cross_entropy import CausalLanguageModelling, MaskedLanguageModelling
from trainables.objectives.objective import NoOptions, Objective
from trainables.objectives.sampled_softmax import SampledSoftmaxCausal, SampledSoftmaxMasked

OBJECTIVES: Registry[Objective] = Registry(
    "objective",
    "headtohead.objectives",
    Objective,  # type: ignore[type-abstract]  # members are made of what is derived from it
    (
        MaskedLanguageModelling,
        HeadlessMasked,
        CausalLanguageModelling,
        HeadlessCausal,
        CombinedMasked,
        CombinedCausal,
        UntiedMasked,
        UntiedCausal,
        SampledSoftmaxMasked,
        SampledSoftmaxCausal,
    ),
)

find_objective = OBJECTIVES.find


def vanilla_objective(task: Task) -> Objective:
    """Cross-entropy against the whole vocabulary: what a model with a restored head goes on as."""
    return (MaskedLanguageModelling if task == "masked" else CausalLanguageModelling)(NoOptions())
