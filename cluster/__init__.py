"""Cluster definitions: where a study runs when one machine is not enough.

``aws.yaml`` and ``gcp.yaml`` are for Ray's cluster launcher (``ray up``), ``kuberay-raycluster.yaml`` and
``kuberay-rayjob.yaml`` for KubeRay on Kubernetes. ``cluster.local`` starts an autoscaling cluster on this machine. The
YAMLs are starting points: copy one (``cluster.path("aws")`` says where it lies) and edit the copy.
"""

from pathlib import Path

from trainables.errors import InputError, nearest


def names() -> list[str]:
    """Names of the shipped cluster definitions."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.yaml"))


def path(name: str) -> Path:
    """The file of a shipped cluster definition. Raises InputError if there is none of that name."""
    if name not in names():
        raise InputError(f"no cluster definition is called '{name}'", remedy=nearest(name, names()))
    return Path(__file__).parent / f"{name}.yaml"
