"""The shipped search spaces, and what their loader refuses."""

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.config.files import load_study
from search_spaces import Categorical, Space, load_space, space_names
from trainables.errors import InputError
from trainables.objectives import OBJECTIVES
from trainables.training.optimiser import TrainingConfig


def test_there_is_a_space_for_every_objective():
    assert set(OBJECTIVES) <= set(space_names())


@pytest.mark.parametrize("name", space_names())
def test_every_dimension_is_a_setting_of_its_objective(name):
    space = load_space(name)
    assert set(space.dimensions) <= {*OBJECTIVES[name].options.model_fields, *TrainingConfig.model_fields}
    for dimension in space.dimensions.values():
        assert isinstance(dimension, Categorical) or dimension.low < dimension.high


def test_no_such_space():
    with pytest.raises(FileNotFoundError):
        load_space("clmm")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dimensions": {}}, "at least 1"),
        ({"dimensions": {"a": {"type": "float", "low": 2, "high": 1}}}, "above high"),
        ({"dimensions": {"a": {"type": "float", "low": 0, "high": 1, "log": True}}}, "low above 0"),
        ({"dimensions": {"a": {"type": "flaot", "low": 0, "high": 1}}}, "flaot"),
        ({"dimensions": {"a": {"type": "choice", "choices": []}}}, "at least 1"),
        (
            {"dimensions": {"a": {"type": "int", "low": 0, "high": 1}}, "first": [{"b": 1}]},
            "no dimensions: b",
        ),
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
