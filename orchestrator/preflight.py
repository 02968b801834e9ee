"""Everything that can be refused is refused here, before Ray starts."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from orchestrator.spec import StudySpec
from trainables.corpora.preparation import make_tokenizer
from trainables.corpora.sources import check_sources
from trainables.errors import InputError
from trainables.models.shapes import body_config
from trainables.objectives import find_objective
from trainables.storage import Location


class Machine(NamedTuple):
    """What a cluster, or this machine, has."""

    cpus: int
    gpus: int

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        return cls(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
                   torch.cuda.device_count())


def check_study(spec: StudySpec) -> PreTrainedTokenizerFast:
    """Check sources, models, storage; make the tokenizer.

    Returns:
        The tokenizer: training it shows whether the text supports its vocabulary.

    Raises:
        InputError: something is wrong.
    """
    for name, arm in spec.arms.items():
        body_config(
            arm.model or spec.model,
            find_objective(arm.objective).task,
            vocabulary_size=1000,
            sequence_length=spec.corpora.sequence_length,
            where=f"arms.{name}.model" if arm.model else "model",
        )
    Location(spec.storage).require_writable()
    check_sources(spec.corpora.sources)
    return make_tokenizer(spec.corpora, spec.tokenizer)


def check_resources(spec: StudySpec, machine: Machine, gpus_per_worker: int) -> None:
    """Refuse what would wait for ever.

    Raises:
        InputError: a trial needs more than there is.
    """
    resources = spec.resources
    for kind, per_worker, available in (
        ("CPU", resources.cpus_per_worker, machine.cpus),
        ("GPU", gpus_per_worker, machine.gpus),
    ):
        needed = resources.workers * per_worker
        if needed > available:
            raise InputError(
                f"a trial needs {needed} {kind}s, and there are {available}",
                where=f"resources.workers = {resources.workers}, resources.{kind.lower()}s_per_worker = {per_worker}",
                why="it would wait for ever",
                remedy=f"--set resources.workers={max(1, available // max(per_worker, 1))}, or a larger cluster "
                "(--address)",
            )
