"""Cluster definitions: where a study runs when one machine is not enough.

``aws.yaml`` and ``gcp.yaml`` are for Ray's cluster launcher (``ray up``), ``kuberay-raycluster.yaml`` and
``kuberay-rayjob.yaml`` for KubeRay on Kubernetes, ``skypilot.yaml`` for SkyPilot's managed jobs, ``slurm.sh`` for
``sbatch``. ``cluster.local`` starts an autoscaling cluster on this machine. The files are starting points: copy one
(``cluster.path("aws")`` says where it lies) and edit the copy.
"""

from pathlib import Path

from trainables.errors import InputError, nearest

_SUFFIXES = (".yaml", ".sh")


def names() -> list[str]:
    """Names of the shipped cluster definitions."""
    return sorted(_files())


def path(name: str) -> Path:
    """The file of a shipped cluster definition. Raises InputError if there is none of that name."""
    if name not in _files():
        raise InputError(f"no cluster definition is called '{name}'", remedy=nearest(name, names()))
    return _files()[name]


def _files() -> dict[str, Path]:
    return {file.stem: file for file in Path(__file__).parent.iterdir() if file.suffix in _SUFFIXES}
