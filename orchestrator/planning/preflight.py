"""Everything that can be refused is refused here, before Ray starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.planning.machine import Machine, require_whole_ray
from orchestrator.planning.model_check import ModelCheck
from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.preparation.splits import grouped, split_of
from trainables.corpora.preparation.tokenizer_sample import documents_in_turn, make_tokenizer
from trainables.corpora.reading.check import check_sources, languages_present
from trainables.corpora.reading.documents import Allowance, read_documents
from trainables.corpora.reading.portions import expand
from trainables.corpora.reading.tally import Document
from trainables.corpora.stream.manifest import SPLITS
from trainables.errors import InputError
from trainables.storage import Location, is_here

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


QUICK_CHARACTERS = 1 << 22  # a tokenizer is trained on so many in seconds; on more, once the models are sound


def check_study(spec: StudySpec) -> PreTrainedTokenizerFast:
    """Check sources, models, storage, the cap, and make the tokenizer: training it shows whether the text supports its
    vocabulary. Raises InputError if something is wrong."""
    with closing(ModelCheck(spec)) as models:
        check_places(spec)
        tokenizer = make_tokenizer(
            spec.corpora, spec.tokenizer, lambda characters: models.require_sound(waiting=characters > QUICK_CHARACTERS)
        )
        models.require_sound()
    Location(spec.storage).require_writable()  # last: it may make the folder
    return tokenizer


def check_places(spec: StudySpec, *, network: bool = True) -> CorporaConfig:
    """Check the storage by its rights, and the sources with their splits. Without the network, data sets on the hub are
    not asked for, nor other sources beside them. Gives the text's settings with the groups of its text files, where
    they were looked at. Raises InputError if something is wrong."""
    Location(spec.storage).require_writable(trying=False)
    datasets = [source.dataset for source in spec.corpora.sources if source.dataset is not None]
    if network or all(map(is_here, datasets)):
        check_sources(spec.corpora.sources, spec.corpora.malformed_share)
        return check_splits(spec.corpora)
    return spec.corpora


CHECK_CHARACTERS = 1 << 26  # of each language's sources at most so much is read to see that no split is empty


def check_splits(corpora: CorporaConfig) -> CorporaConfig:
    """The settings with the groups of text files. Raises InputError if a language has no document in a split; reads as
    many as it takes to see. Where :data:`CHECK_CHARACTERS` do not show it, as of a language that is rare in its files,
    the preparation does."""
    corpora = grouped(corpora)
    sources: dict[str, list[tuple[SourceConfig, str]]] = {}
    for number, source in enumerate(corpora.sources):
        sources.setdefault(source.language, []).append((source, f"corpora.sources[{number}]"))
    for language, own in sources.items():
        found: set[str] = set()
        num_documents = 0
        allowance = Allowance(CHECK_CHARACTERS)
        for num_documents, document in enumerate(_documents(own, allowance), 1):  # noqa: B007
            found.add(split_of(document.group, corpora.validation_share, corpora.test_share))
            if len(found) == len(SPLITS):
                break
        else:
            if allowance.characters <= 0:
                continue
            missing = next(split for split in SPLITS if split not in found)
            if num_documents == 0 and own[0][0].language_column is not None:
                raise InputError(
                    f"there is no document of '{language}'",
                    where=own[0][1],
                    why=languages_present(*own[0]),
                    remedy="name the language as the column does, or another language_column",
                )
            has_groups = any(source.group_column or source.group_bytes not in (None, 1) for source, _ in own)
            raise InputError(
                f"no document of '{language}' is in the {missing} split",
                where=own[0][1],
                why=f"there are {num_documents}, and whole {'groups' if has_groups else 'documents'} are held out",
                remedy=("smaller groups, " if has_groups else "")
                + "more and shorter documents: blank lines separate those of a .txt file (if each of its lines "
                "is one: sed G OLD > NEW)"
                + ("" if missing == "train" else f", or a larger share: --set corpora.{missing}_share=0.1"),
            )
    return corpora


def _documents(sources: list[tuple[SourceConfig, str]], allowance: Allowance) -> Iterator[Document]:
    for source, where in sources:
        portions = expand(source, where)
        if source.language_column is not None:  # the head of a file may have none of the language
            yield from documents_in_turn([(source, portion) for portion in portions], allowance)
            continue
        for portion in portions:
            yield from read_documents(portion, source, where, allowance=allowance)


def require_placeable(spec: StudySpec, machine: Machine) -> None:
    """Raises InputError if a trial needs more than this machine has, or a unit is not measured here."""
    gpus = machine.gpus_per_worker(spec.resources)
    check_resources(spec, machine, gpus)
    require_measurable(spec, gpus)


def check_resources(spec: StudySpec, machine: Machine, gpus_per_worker: int) -> None:
    """Raises InputError if a trial needs more than there is, and would wait for ever, or a part of Ray that is not
    installed."""
    resources = spec.resources
    if machine.launcher(resources) == "ray_train":
        require_whole_ray("Ray Train, which runs trials of several workers or on GPUs,", "resources")
    for kind, per_worker, available in (
        ("CPU", resources.cpus_per_worker, machine.cpus),
        ("GPU", gpus_per_worker, machine.gpus),
    ):
        needed = resources.workers * per_worker
        if needed > available:
            fitting = available // per_worker
            fewer = f"workers={fitting}" if fitting else f"{kind.lower()}s_per_worker={available}"
            raise InputError(
                f"a trial needs {formatting.plural(needed, kind)}, and there are {available}",
                where=f"resources.workers = {resources.workers}, resources.{kind.lower()}s_per_worker = {per_worker}",
                why="it would wait for ever",
                remedy=f"--set resources.{fewer}, or a larger cluster (--address)",
            )


def require_measurable(
    spec: StudySpec, gpus_per_worker: int, energy_problem: Callable[[int, int], InputError | None] | None = None
) -> None:
    """Raises InputError if a budget or a cap has no price, or no energy counter where the trials will run: as
    ``energy_problem`` says there, else on this machine."""
    for key, unit in spec.units_in_use.items():
        if unit == "usd" and spec.resources.usd_per_hour(gpus_per_worker) is None:
            kind = "gpu_hour" if gpus_per_worker else "cpu_hour"
            raise InputError(
                f"a {key} in usd needs the price of what the trials run on",
                where=f"resources.prices.{kind}",
                why=f"a worker has {gpus_per_worker} GPUs",
                remedy=f"--set resources.prices.{kind}=PRICE",
            )
        if unit == "joules":
            ask = energy_problem or energy_problem_here
            problem = ask(gpus_per_worker, spec.resources.cpus_per_worker)
            if problem:
                raise InputError(problem.what, where=f"{key}.joules", why=problem.why, remedy=problem.remedy)


def energy_problem_here(gpus_per_worker: int, cpus: int) -> InputError | None:
    """Why a worker on this machine has no energy counter; None where it has one."""
    import torch

    from trainables.training.energy import energy_counter

    try:
        energy_counter(torch.device("cuda" if gpus_per_worker else "cpu"), cpus)
    except InputError as error:
        return error
    return None
