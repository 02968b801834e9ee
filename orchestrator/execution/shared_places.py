"""Whether all machines of a cluster see what a study names by local paths: its text, its storage, a model."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.config.study import StudySpec
from trainables.corpora.reading.portions import expand
from trainables.errors import InputError
from trainables.storage import Location, is_here

ANSWER_SECONDS = 60.0  # a machine that says nothing for so long is not waited for: its worker processes start in them

_FOLDER = "a folder that all machines mount under the same path"


class Place(NamedTuple):
    """What one key of a study names on this machine."""

    key: str
    sizes_bytes: Mapping[str, int | None]  # of each file by its path; None: of a folder
    remedy: str


def require_shared(spec: StudySpec, *, reads_text: bool) -> None:
    """Ask the machines of the cluster that this process is connected to. Raises InputError if one of them that runs
    tasks lacks a file or folder of this one that they will need. Machines that join later are not asked."""
    probe = Location(spec.storage) / f".h2h-shared-{uuid.uuid4().hex}"
    places = [*(_text(spec) if reads_text else []), *_models(spec)]
    if probe.local is not None:
        remedy = f"--set storage=s3://BUCKET/..., or gs://, or {_FOLDER}"
        places.append(Place("storage", {str(probe.local): 0}, remedy))
    if not places:
        return
    try:
        if probe.local is not None:
            probe.write_bytes(b"")
        lacking = _ask([place.sizes_bytes for place in places])
    finally:
        if probe.local is not None:
            probe.delete()
    for number, place in enumerate(places):
        without = {machine: paths[number] for machine, paths in lacking.items() if paths[number] is not None}
        if without:
            machine, path = next(iter(without.items()))
            named = spec.storage if place.key == "storage" else path
            raise InputError(
                "not all machines of the cluster see what this one does",
                where=place.key,
                why=f"{named} is not there, or is another file, on {machine}: {len(without)} of {len(lacking)} "
                "machines that run tasks lack something of it",
                remedy=f"{place.remedy}; or run on one machine: without --address and RAY_ADDRESS",
            )


def _text(spec: StudySpec) -> list[Place]:
    """The files and folders of the sources that are on this machine."""
    found = list[Place]()
    for number, source in enumerate(spec.corpora.sources):
        key = f"corpora.sources[{number}]"
        if source.files is not None:
            portions = [portion for portion in expand(source, key) if "://" not in portion.name]
            files = {portion.name: portion.size_bytes for portion in portions}
            found.append(
                Place(f"{key}.files", files, f"put the files on an object store (s3://, gs://), or in {_FOLDER}")
            )
        elif source.dataset is not None and is_here(source.dataset):
            found.append(Place(f"{key}.dataset", {source.dataset: None}, f"put it in {_FOLDER}, or on the hub"))
    return [place for place in found if place.sizes_bytes]


def _models(spec: StudySpec) -> list[Place]:
    """The folders of the pretrained models that are on this machine."""
    models = {"model": spec.model} | {f"arms.{name}.model": arm.model for name, arm in spec.arms.items() if arm.model}
    named = {key: model.pretrained for key, model in models.items() if model.pretrained and is_here(model.pretrained)}
    return [
        Place(f"{key}.pretrained", {name: None}, f"put it in {_FOLDER}, or on the hub") for key, name in named.items()
    ]


def _ask(places: Sequence[Mapping[str, int | None]]) -> dict[str, list[str | None]]:
    """Of each machine that has devices to run tasks on the first path of each place that it lacks, by its address. One
    that is lost meanwhile, or does not answer, is left out."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"] and any(map(node["Resources"].get, ("CPU", "GPU")))]
    task, asked = ray.remote(num_cpus=0, max_retries=0)(_lacking), ray.put(places)
    answers = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            asked
        ): node["NodeManagerAddress"]
        for node in nodes
    }
    done, _ = ray.wait(list(answers), num_returns=len(answers), timeout=ANSWER_SECONDS) if answers else ([], [])
    found = dict[str, list[str | None]]()
    for answer in done:
        try:
            found[answers[answer]] = ray.get(answer)
        except RayError:  # the machine is lost
            continue
    return found


def _lacking(places: Sequence[Mapping[str, int | None]]) -> list[str | None]:
    """The task on each machine."""
    return [next((path for path, size in place.items() if not _is_there(Path(path), size)), None) for place in places]


def _is_there(path: Path, size_bytes: int | None) -> bool:
    try:
        return path.is_dir() if size_bytes is None else path.stat().st_size == size_bytes
    except OSError:
        return False
