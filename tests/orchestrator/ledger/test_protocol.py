"""What a study fixes before its first trial, and how extensions change it."""

from __future__ import annotations

import json

import pytest
import yaml

from orchestrator.config.files import dump_study, freeze, load_study, make_study, study_names
from orchestrator.ledger.protocol import design_of, protocol, protocols_after, study_of
from orchestrator.ledger.records import ExtensionRecord, Record
from tests.helpers.ledgers import changed
from tests.helpers.ledgers import study as study_record
from trainables.errors import InputError


@pytest.mark.parametrize("name", study_names())
def test_the_protocol_is_that_of_the_frozen_file(name, tmp_path, monkeypatch):
    """However often it is loaded and wherever: a job of a cluster resumes what another folder began."""
    monkeypatch.chdir(tmp_path)
    spec = load_study(name)
    file = dump_study(freeze(spec))
    fixed = protocol(yaml.safe_load(file))
    monkeypatch.chdir("/")
    again = dump_study(freeze(make_study(yaml.safe_load(file))))
    assert protocol(yaml.safe_load(again)) == fixed == json.loads(json.dumps(fixed))
    confirm, design = spec.confirm, design_of(study_of(fixed))
    assert design == design_of(spec)
    assert (design.unit, design.amount) == (spec.budget.unit, spec.budget.amount)
    assert design.confirm_amount == spec.confirm_budget.amount
    assert (design.seeds, design.margin) == (confirm.seeds, confirm.margin)
    assert design.yardsticks.names == spec.yardsticks.names
    assert {arm: own.objective for arm, own in design.arms.items()} == {
        arm: own.objective for arm, own in spec.arms.items()
    }


def test_protocols_after_extensions():
    """The study goes on as before or as an extension says, whose resources are not in the protocol."""
    fixed = {"confirm": {"seeds": 3, "stopping": None}, "cap": None}
    changes = {"confirm.stopping": (None, {"minimum": 2}), "cap": (None, {"usd": 1})}
    records: list[Record] = [
        changed(study_record(), protocol=fixed),
        ExtensionRecord(changes={"resources.workers": (1, 2)}),
        ExtensionRecord(changes=changes),
    ]
    after = {"confirm": {"seeds": 3, "stopping": {"minimum": 2}}, "cap": {"usd": 1}}
    assert protocols_after(records) == [fixed, fixed, after]
    with pytest.raises(InputError, match=r"changes 'nothing\.there', which the protocol does not have"):
        protocols_after([records[0], ExtensionRecord(changes={"nothing.there": (1, 2)})])
