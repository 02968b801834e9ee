"""The KubeRay definitions, with each of their options, against KubeRay's own schemas and the rules of its operator."""

from __future__ import annotations

import copy
import functools
import gzip
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import cluster

SCHEMAS = Path(os.environ.get("H2H_TEST_DATA", "/nowhere")) / "kuberay"
needs_schemas = pytest.mark.skipif(not SCHEMAS.is_dir(), reason="H2H_TEST_DATA names no folder with kuberay/")

VARIANTS = [
    ("kuberay-raycluster", ()),
    ("kuberay-raycluster", ("redis",)),
    ("kuberay-raycluster", ("rocksdb",)),
    ("kuberay-raycluster", ("kueue",)),
    ("kuberay-raycluster", ("kueue", "redis")),
    ("kuberay-rayjob", ()),
    ("kuberay-rayjob", ("kueue",)),
]


def switched_on(name: str, options: tuple[str, ...]) -> dict[str, Any]:
    """The definition after the command that its own comment gives, once for each option."""
    text = cluster.path(name).read_text()
    (command,) = re.findall(r"^# +(sed .*) > mine\.yaml$", text, flags=re.MULTILINE)
    for option in options:
        assert f"#{option} " in text
        words = re.sub(r"#(redis|kueue) /", f"#{option} /", command).removesuffix(f"{name}.yaml")
        text = subprocess.run(["bash", "-c", words], input=text, capture_output=True, text=True, check=True).stdout
        assert not re.search(rf"^ *#{option} ", text, flags=re.MULTILINE)
    manifest: dict[str, Any] = yaml.safe_load(text)
    return manifest


def cluster_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]
    return spec.get("rayClusterSpec", spec)


def closed(schema: Any) -> Any:
    """A CRD's schema as JSON Schema, in which a field that the schema does not know is an error: Kubernetes drops it in
    silence."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: {name: closed(value) for name, value in content.items()} if key == "properties" else closed(content)
        for key, content in schema.items()
    }
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and not keeps_unknown:
        result["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable"):
        result = {"anyOf": [result, {"type": "null"}]}
    return result


@functools.cache  # a schema has ten thousand lines
def validator(kind: str, api_version: str) -> jsonschema.Draft202012Validator:
    definition = yaml.safe_load(gzip.decompress((SCHEMAS / f"ray.io_{kind.lower()}s.yaml.gz").read_bytes()))
    group, _, name = api_version.partition("/")
    assert definition["spec"]["group"] == group
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == name]
    assert version["served"]
    return jsonschema.Draft202012Validator(closed(version["schema"]["openAPIV3Schema"]))


def validate(manifest: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError if KubeRay's CRD refuses the manifest or would drop a part of it."""
    validator(manifest["kind"], manifest["apiVersion"]).validate(manifest)


@needs_schemas
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_the_definition_fits_kuberays_schema(name: str, options: tuple[str, ...]) -> None:
    validate(switched_on(name, options))


def misspell_a_field(spec: dict[str, Any]) -> None:
    spec["gcsFaultTolerance"] = {}


def misspell_deep_in_a_pod(spec: dict[str, Any]) -> None:
    spec["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["imagePullPolcy"] = "Always"


def misspell_in_an_affinity(spec: dict[str, Any]) -> None:
    spec["headGroupSpec"]["template"]["spec"]["affinity"]["nodeAffinity"]["required"] = {}


def unknown_autoscaler(spec: dict[str, Any]) -> None:
    spec["autoscalerOptions"]["version"] = "v3"


def text_for_a_number(spec: dict[str, Any]) -> None:
    spec["workerGroupSpecs"][0]["maxReplicas"] = "8"


def no_quantity(spec: dict[str, Any]) -> None:
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "much"


def neither_number_nor_text(spec: dict[str, Any]) -> None:
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = ["4"]


def no_workers_group_name(spec: dict[str, Any]) -> None:
    del spec["workerGroupSpecs"][0]["groupName"]


@needs_schemas
@pytest.mark.parametrize("name", ["kuberay-raycluster", "kuberay-rayjob"])
@pytest.mark.parametrize(
    "damage",
    [
        misspell_a_field,
        misspell_deep_in_a_pod,
        misspell_in_an_affinity,
        unknown_autoscaler,
        text_for_a_number,
        no_quantity,
        neither_number_nor_text,
        no_workers_group_name,
    ],
)
def test_the_schema_finds_what_is_wrong(name: str, damage: Callable[[dict[str, Any]], None]) -> None:
    manifest = copy.deepcopy(switched_on(name, ()))
    damage(cluster_of(manifest))
    with pytest.raises(jsonschema.ValidationError):
        validate(manifest)


@needs_schemas
def test_a_quantity_may_be_a_number_or_text() -> None:
    manifest = switched_on("kuberay-raycluster", ())
    limits = manifest["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    for cpu in (4, "4", "4500m"):
        limits["cpu"] = cpu
        validate(manifest)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_the_second_autoscaler_restarts_no_pod(name: str, options: tuple[str, ...]) -> None:
    """KubeRay's operator refuses another restart policy with it, and in sidecar mode for the head."""
    spec = cluster_of(switched_on(name, options))
    assert spec["autoscalerOptions"]["version"] == "v2"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["template"]["spec"].get("restartPolicy", "Never") == "Never"
        assert "labels" not in group["rayStartParams"], "labels have a field of their own"


@pytest.mark.parametrize("name", ["kuberay-raycluster", "kuberay-rayjob"])
def test_workers_are_spot_and_the_head_is_on_none_of_their_nodes(name: str) -> None:
    spec = cluster_of(switched_on(name, ()))
    head, (workers,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert head["labels"]["ray.io/market-type"] == "on-demand"
    assert workers["labels"]["ray.io/market-type"] == "spot"

    def terms(group: dict[str, Any]) -> list[list[dict[str, Any]]]:
        affinity = group["template"]["spec"]["affinity"]["nodeAffinity"]
        required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        return [term["matchExpressions"] for term in required["nodeSelectorTerms"]]

    (none_of,) = terms(head)  # all expressions of a term hold, and one term of several
    any_of = [expression for (expression,) in terms(workers)]
    assert {expression["operator"] for expression in none_of} == {"NotIn"}
    assert [{**expression, "operator": "In"} for expression in none_of] == any_of


def test_the_rayjob_submits_from_the_heads_pod_and_tries_again() -> None:
    spec = switched_on("kuberay-rayjob", ())["spec"]
    assert spec["submissionMode"] == "SidecarMode"
    assert not {"submitterPodTemplate", "clusterSelector"} & set(spec), "the operator refuses them in sidecar mode"
    assert spec["backoffLimit"] > 0
    assert "--resume" in spec["entrypoint"].split(), "else a new try would be refused"


def test_the_rayjobs_cluster_is_deleted_after_success_and_after_the_last_failure() -> None:
    spec = switched_on("kuberay-rayjob", ())["spec"]
    assert not {"shutdownAfterJobFinishes", "ttlSecondsAfterFinished"} & set(spec), "the operator refuses both"
    conditions = [rule["condition"] for rule in spec["deletionStrategy"]["deletionRules"]]
    # Each names one status, as the schema's rules in CEL demand, which are not evaluated here.
    assert [condition.get("jobStatus") for condition in conditions] == ["SUCCEEDED", None]
    assert [condition.get("jobDeploymentStatus") for condition in conditions] == [None, "Failed"]
    assert all(condition["ttlSeconds"] > 0 for condition in conditions)
    assert {rule["policy"] for rule in spec["deletionStrategy"]["deletionRules"]} == {"DeleteCluster"}


@pytest.mark.parametrize("name", ["kuberay-raycluster", "kuberay-rayjob"])
def test_kueue_has_its_queue_its_annotation_and_a_cluster_that_ends(name: str) -> None:
    manifest = switched_on(name, ("kueue",))
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "user-queue"}
    # Without it Kueue refuses a cluster that scales itself.
    assert manifest["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    spec = cluster_of(manifest)
    assert spec["enableInTreeAutoscaling"] is True
    assert len(spec["workerGroupSpecs"]) <= 7
    assert "head" not in {group["groupName"] for group in spec["workerGroupSpecs"]}, "Kueue's name of the head"
    assert "suspend" not in manifest["spec"], "Kueue sets it"
    if name == "kuberay-rayjob":
        assert manifest["spec"]["shutdownAfterJobFinishes"] is True
        assert "deletionStrategy" not in manifest["spec"]


@pytest.mark.parametrize("option", ["redis", "rocksdb"])
def test_fault_tolerance_keeps_its_password_in_a_secret(option: str) -> None:
    given = switched_on("kuberay-raycluster", (option,))["spec"]["gcsFaultToleranceOptions"]
    if option == "redis":
        assert set(given) == {"redisAddress", "redisPassword"}
        assert set(given["redisPassword"]["valueFrom"]) == {"secretKeyRef"}
    else:
        assert given == {"backend": "rocksdb", "storage": {"size": "10Gi"}}
