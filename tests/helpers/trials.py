"""Trials of a very small model, and what of their reports must be the same again."""

from __future__ import annotations

import itertools

from trainables.corpora.stream.token_stream import TokenStream
from trainables.evaluation import Score
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints
from trainables.training.config import MEASURED_UNITS, TrialConfig
from trainables.training.loop import Trial
from trainables.training.state import Measure, Spending, TrialState

NO_DROPOUT = {
    "mlm": {"hidden_dropout_prob": 0.0},
    "headless_mlm": {"hidden_dropout_prob": 0.0},
    "clm": {"hidden_dropout": 0.0},
    "headless_clm": {"hidden_dropout": 0.0},
}


def make_config(objective="mlm", *, budget=None, training=None, model=None, **changes):
    """A trial of a very small model with dropout, whose random state a resumed run must have too."""
    bert = "mlm" in objective
    config = {
        "model_type": "bert" if bert else "gpt_neox",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        **(
            {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0}
            if bert
            else {"hidden_dropout": 0.1, "attention_dropout": 0.0}
        ),
        **(model or {}),
    }
    return TrialConfig.model_validate(
        {
            "trial": "one",
            "objective": objective,
            "model": {"config": config},
            "training": {"learning_rate": 3e-3, "batch_sequences": 8, **(training or {})},
            "budget": budget or {"steps": 24},
            "seed": 11,
            "corpus": "unused",
            "alpha": 0.3,
            "maximum_repetition": 4.0,
            "evaluation": {"sequences_per_language": 4, "mask_rate": 0.3},
            "split": "validation",
            "yardsticks": ["recovery_mrr", "recovery_accuracy"],
            "rungs": [1 / 3, 2 / 3],
            "evaluations": [0.5],
            "reports": 6,
            **changes,
        }
    )


def make_trial(corpus, config, folder=None, **arguments):
    stream = TokenStream(corpus, config.seed, config.alpha, config.maximum_repetition)
    checkpoints = None if folder is None else Checkpoints(Location(folder))
    return Trial(config, stream, checkpoints, **arguments)


def run(corpus, config, folder=None, **arguments):
    return list(make_trial(corpus, config, folder, **arguments).run())


def comparable(reports):
    """All that must be the same again: everything but seconds, and where checkpoints are that of the last one."""
    kept = []
    for report in reports:
        measure = report.measure.model_dump(exclude={"overhead", "other_cpus", "checkpoint"})
        measure["spent"] = {unit: amount for unit, amount in measure["spent"].items() if unit not in MEASURED_UNITS}
        kept.append((report.status, measure))
    return kept


def make_measure():
    """A report's, of no trial in particular."""
    score = Score(overall=0.25, languages={"en": 0.5, "日本語": 0.0})
    return Measure(
        step=1,
        progress=1 / 3,
        spent=Spending(tokens=512, wall_seconds=0.1).record(),
        overhead={"startup": 0.2},
        loss=None,
        learning_rate=1e-3,
        digest="0" * 16,
        mix={"en": 3, "fr": 4},
        rung=0,
        yardsticks={"recovery_mrr": score},
    )


def make_state(**changes):
    """What a checkpoint has beside its tensors, of no trial in particular."""
    return TrialState(
        **{
            "restored": False,
            "micro_batch_sequences": None,
            "spent": Spending(),
            "next_sequence": 0,
            "digest": "0" * 16,
            "seen": (),
            "loss_sum": 0.0,
            "loss_steps": 0,
            "step_cost": 0.0,
            "reports": (),
            **changes,
        }
    )


def stop_after(calls):
    counter = itertools.count()
    return lambda: next(counter) >= calls


def newest_model(folder):
    """The model's tensors of a trial's newest checkpoint."""
    checkpoints = Checkpoints(Location(folder))
    return checkpoints.read_model(checkpoints.whole()[-1]).tensors["model"]
