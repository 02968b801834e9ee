"""The shipped search spaces, and what their loader refuses."""

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.config.files import load_study
from search_spaces import Categorical, Float, Integer, Space, space_names, space_path
from trainables.errors import InputError
from trainables.objectives import OBJECTIVES
from trainables.training.config import TrainingConfig


def test_there_is_a_space_for_every_objective():
    assert set(OBJECTIVES.names()) <= set(space_names())


@pytest.mark.parametrize("name", space_names())
def test_every_dimension_is_a_setting_of_its_objective(name):
    space = Space.model_validate(yaml.safe_load(space_path(name).read_text()))
    options = OBJECTIVES.find(name).Options.model_fields if name in OBJECTIVES.names() else {}  # else of any objective
    assert set(space.dimensions) <= {*options, *TrainingConfig.model_fields}
    for dimension in space.dimensions.values():
        assert isinstance(dimension, Categorical) or dimension.low < dimension.high


LOG = {"type": "float", "low": 1e-4, "high": 1e-2, "log": True}


@pytest.mark.parametrize(
    ("dimension", "value", "tried", "bound"),
    [
        (LOG, 0.00967, [], 1e-2),
        (LOG, 7.95e-3, [], 1e-2),  # 100^0.95 = 79.4
        (LOG, 7.9e-3, [], None),
        (LOG, 7.95e-3, [0.05], None),  # the range was widened, and it lies inside
        (LOG, 0.05, [0.05, 1e-3], 0.05),
        (LOG, 1.2e-4, [], 1e-4),
        (LOG | {"closed": "low"}, 1.2e-4, [], None),
        (LOG | {"closed": "low"}, 0.00967, [], 1e-2),
        (LOG | {"closed": "both"}, 0.00967, [], None),
        (LOG, 1e-3, [], None),
        ({"type": "float", "low": 0, "high": 1}, 0.951, [], 1),
        ({"type": "float", "low": 0, "high": 1}, 0.9, [], None),
        ({"type": "float", "low": 2, "high": 2}, 2.0, [], None),
        ({"type": "int", "low": 1, "high": 3}, 3, [], 3),
        ({"type": "int", "low": 1, "high": 3}, 2, [], None),
        ({"type": "choice", "choices": [64, 256, None]}, 64, [], 64),
        ({"type": "choice", "choices": [64, 256, None]}, 256, [], None),
        ({"type": "choice", "choices": [64, 256, None]}, None, [], None),
        ({"type": "choice", "choices": [512, 2048, 8192]}, 8192, [], 8192),
        ({"type": "choice", "choices": [512, 2048, 8192], "closed": "high"}, 8192, [], None),
        ({"type": "choice", "choices": [512, 2048, 8192], "closed": "high"}, 512, [], 512),
        ({"type": "choice", "choices": [512, 8192, 2048]}, 512, [], None),  # in no order
        ({"type": "choice", "choices": ["a", "b", "c"]}, "a", [], None),
        ({"type": "choice", "choices": [64, 256]}, 64, [], None),  # each of two is an end
    ],
)
def test_what_lies_at_a_bound(dimension, value, tried, bound):
    space = Space.model_validate({"dimensions": {"x": dimension}})
    assert space.dimensions["x"].bound_at(value, tried) == bound


def test_a_range_is_widened_by_strides_up_to_its_limit():
    declared = Space.model_validate({"dimensions": {"x": LOG | {"lowest": 1e-5, "highest": 0.1}, "y": LOG}})
    space = declared
    highs = []
    for best in (1e-3, 0.0099, 0.0099, 0.045, 0.099, 0.1):
        space = space.widened({"x": best, "y": best}, declared)
        highs.append(space.dimensions["x"].high)
    assert highs == pytest.approx([1e-2, 1e-2 * 100 ** (1 / 3), 1e-2 * 100 ** (1 / 3), 0.1, 0.1, 0.1])
    assert space.dimensions["x"].low == 1e-4
    assert space.dimensions["y"] == declared.dimensions["y"], "it declares no limits"
    assert space.widened({"x": 1e-4}, declared).dimensions["x"].low == pytest.approx(1e-4 / 100 ** (1 / 3))
    assert declared.widest.dimensions["x"].ends == (1e-5, 0.1)


def test_no_such_space(tmp_path):
    (tmp_path / "mine.yaml").write_text("")
    assert not space_path("clmm").exists()
    with pytest.raises(InputError, match="no search space 'clmm'") as caught:
        load_study("demo", ["arms.vanilla.space=clmm"])
    assert "did you mean 'clm'" in caught.value.remedy
    with pytest.raises(InputError, match="no search space") as caught:
        load_study("demo", [f"arms.vanilla.space={tmp_path}/mien.yaml"])
    assert "mine.yaml" in caught.value.remedy


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"dimensions: {learning_rate: {type: float, low: 2, high: 1}}", "above high"),
        (b"dimensions: [1", "not YAML"),
        (b"dimensions: {}\ndimensions: {}", "there twice"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "keys and values"),
        (b"dimensions: {warmup: {type: float, low: 0, high: 0.1}}\nfisrt: []", "did you mean 'first'"),
    ],
)
def test_a_file_that_is_no_space(tmp_path, content, why):
    file = tmp_path / "own.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_study("demo", [f"arms.vanilla.space={file}"])
    assert why in str(caught.value)
    assert f"--set arms.vanilla.space={file}" in caught.value.where


@pytest.mark.parametrize(
    ("dimension", "inside", "outside"),
    [
        (Float(type="float", low=0.1, high=2), [0.1, 1, 2.0], [0.0999, 2.001, "1", None]),
        (Integer(type="int", low=1, high=8), [1, 8], [0, 9, 2.5, "2", None]),
        (Categorical(type="choice", choices=(None, "x", 3)), [None, "x", 3], ["y", 4, "None"]),
    ],
)
def test_what_a_dimension_contains(dimension, inside, outside):
    assert all(dimension.contains(value) for value in (*inside, *dimension.ends))
    assert not any(dimension.contains(value) for value in outside)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dimensions": {}}, "at least 1"),
        ({"dimensions": {"a": {"type": "float", "low": 2, "high": 1}}}, "above high"),
        ({"dimensions": {"a": {"type": "float", "low": 0, "high": 1, "log": True}}}, "low above 0"),
        ({"dimensions": {"a": {"type": "float", "low": 1, "high": 9, "highest": 8}}}, "inside the range"),
        ({"dimensions": {"a": {"type": "float", "low": 1, "high": 9, "lowest": 2}}}, "inside the range"),
        ({"dimensions": {"a": {"type": "float", "low": 1, "high": 9, "log": True, "lowest": 0}}}, "lowest above 0"),
        ({"dimensions": {"a": {"type": "flaot", "low": 0, "high": 1}}}, "flaot"),
        ({"dimensions": {"a": {"type": "choice", "choices": []}}}, "at least 1"),
        ({"dimensions": {"a": {"type": "int", "low": 0, "high": 1}}, "first": [{"b": 1}]}, "no dimensions: b"),
    ],
)
def test_what_is_no_space(content, message):
    with pytest.raises(ValidationError, match=message):
        Space.model_validate(content)


@pytest.mark.parametrize(
    ("dimensions", "first", "message"),
    [
        ({"learning_rate": {"type": "float", "low": -1, "high": 1}}, [], "must be above 0"),
        ({"batch_sequences": {"type": "float", "low": 8, "high": 16}}, [], "whole number"),
        ({"schedule": {"type": "choice", "choices": ["linear", "cosin"]}}, [], "must be 'linear'"),
        ({"learning_rate": {"type": "float", "low": 0.1, "high": 1}}, [{"learning_rate": 2.0}], "outside"),
        ({"temperature": {"type": "float", "low": 0.1, "high": 1}}, [], "clm does not have: 'temperature'"),
    ],
)
def test_a_space_whose_values_no_trial_could_have(tmp_path, dimensions, first, message):
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"dimensions": dimensions, "first": first}))
    with pytest.raises(InputError, match=message) as caught:
        load_study("demo", [f"arms.vanilla.space={file}"])
    assert f"space ({file})" in caught.value.where


def test_searched_batches_are_shared_out_evenly(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("dimensions: {batch_sequences: {type: choice, choices: [16, 17]}}")
    load_study("demo", [f"arms.vanilla.space={file}"])
    with pytest.raises(InputError, match="17 sequences cannot be shared out evenly among 2"):
        load_study("demo", [f"arms.vanilla.space={file}", "resources.workers=2"])
