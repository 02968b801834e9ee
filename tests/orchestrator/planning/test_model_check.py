"""The check of a study's models beside its text."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psutil
import pytest

from orchestrator.config.files import load_study
from orchestrator.config.study import StudySpec
from orchestrator.planning.arm_plan import checked_plans
from orchestrator.planning.model_check import ModelCheck
from orchestrator.planning.preflight import check_text
from trainables.errors import InputError


def demo(tmp_path: Path, *overrides: str) -> StudySpec:
    return load_study("demo", [f"storage={tmp_path}", *overrides])


def test_sound_models_say_nothing_however_often_they_are_asked(tmp_path: Path) -> None:
    with closing(ModelCheck(demo(tmp_path))) as models:
        models.require_sound()
        models.require_sound(waiting=False)


@pytest.mark.parametrize(
    "override",
    [
        "budget={flops: 1e5}",
        "model={config: {model_type: gpt2, n_embd: 77}}",
        "arms.vanilla.model={config: {model_type: gpt2, n_position: 7}}",
        "tokenizer={pretrained: ./nowhere}",
    ],
)
def test_a_refusal_is_that_of_the_plan(tmp_path: Path, override: str) -> None:
    spec = demo(tmp_path, override)
    with pytest.raises(InputError) as expected:
        checked_plans(spec)
    with closing(ModelCheck(spec)) as models, pytest.raises(InputError) as found:
        models.require_sound()
    assert vars(found.value) == vars(expected.value)


def test_what_is_known_before_the_tokenizer_is_trained_is_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = demo(tmp_path, "budget={flops: 1e5}")
    with closing(ModelCheck(spec)) as models:
        models._process.wait()
        monkeypatch.setattr("orchestrator.planning.preflight.make_tokenizer", pytest.fail)
        with pytest.raises(InputError, match="buys no training step"):
            check_text(spec, models)


def test_its_process_ends_with_the_study(tmp_path: Path) -> None:
    with closing(ModelCheck(demo(tmp_path))) as models:
        number = models._process.pid
        assert psutil.pid_exists(number)
    assert not psutil.pid_exists(number)


def test_a_check_that_crashes_is_no_sound_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(ModelCheck(demo(tmp_path))) as models, pytest.raises(Exception, match="exit status 3"):
        models.require_sound()
