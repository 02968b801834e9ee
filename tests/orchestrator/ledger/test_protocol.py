"""What a study fixes before its first trial, and how extensions change it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.config.files import SHIPPED, dump_study, freeze, load_study, make_study, study_names
from orchestrator.ledger.protocol import design_of, protocol, protocols_after, study_of
from orchestrator.ledger.records import CorpusLanguage, CorpusRecord, ExtensionRecord, Record, parse_record, to_line
from orchestrator.ledger.trials import trial_name
from tests.helpers.ledgers import changed, trial
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


AMOUNTS = st.sampled_from([0, 1e-300, 1, 2000, 1e14, 1e30, 1e31, 1e300, 10**16]) | st.floats(allow_nan=False)
COUNTS = st.sampled_from([0, 1, 6, 100_000, 100_001, 10**14, 10**15, 10**16, 10**17, 2**63]) | st.integers()
NAMES = st.sampled_from(["v_", "_v", "-v", "a.b", "a+b", *("x" * n for n in (100, 101, 201))]) | st.text(max_size=4)
VALUES = {
    "seed": COUNTS,
    "arm": NAMES,
    "language": NAMES,
    "confirm.seeds": COUNTS,
    "confirm.margin": AMOUNTS,
    "confirm.budget.tokens": AMOUNTS,
    "confirm.stopping.minimum": COUNTS,
    "budget.tokens": AMOUNTS,
    "search.budget_per_arm": AMOUNTS,
    "search.parallel": COUNTS,
    "yardsticks.target": AMOUNTS,
    "resources.prices.gpu_hour": AMOUNTS,
    "resources.gpus_per_worker": COUNTS,
    "resources.workers": COUNTS,
}


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(VALUES)).flatmap(lambda key: st.tuples(st.just(key), VALUES[key])))
@example(("arm", "_v"))
@example(("arm", "-v"))
@example(("arm", "x" * 201))
@example(("language", "x" * 201))
@example(("confirm.seeds", 100_001))
@example(("seed", 10**16))
@example(("seed", 10**15))
@example(("budget.tokens", 1e31))
@example(("confirm.budget.tokens", 1e31))
@example(("confirm.margin", 1e31))
@example(("yardsticks.target", 1e31))
@example(("search.budget_per_arm", 1e31))
@example(("search.parallel", 10**17))
@example(("resources.prices.gpu_hour", 1e300))
def test_what_a_study_may_say_its_ledger_may_record(said):
    """Else a study fails at its first record, when Ray has started."""
    (key, value), content = said, yaml.safe_load((SHIPPED / "demo.yaml").read_text())
    content["resources"] = {"gpus_per_worker": 8, "prices": {"gpu_hour": 1}}
    if key == "arm":
        content["arms"] = {value: {"objective": "clm"}}
    elif key == "language":
        content["corpora"]["sources"][0]["language"] = value
    try:
        spec = make_study(content, [] if key in ("arm", "language") else [f"{key}={json.dumps(value)}"])
    except InputError:
        return
    price = spec.resources.usd_per_hour(spec.resources.gpus_per_worker)
    records: list[Any] = [changed(study_record(), design=design_of(spec), usd_per_hour=price)]
    for arm, seed in zip(spec.arms, (spec.seed, spec.seed + spec.confirm.seeds), strict=False):
        names = {"arm": arm, "trial": trial_name("confirm", arm, spec.confirm.seeds)}
        numbers = {"seed": seed, "amount": spec.budget.amount, "workers": spec.resources.workers}
        records.append(changed(trial("confirm", "a", 0), **names, **numbers))
    counts = CorpusLanguage(documents=1, tokens=1, sequences=1, target_share=1)
    languages = {source.language: counts for source in spec.corpora.sources}
    records.append(CorpusRecord(fingerprint="a", vocabulary_size=1, sequence_length=1, languages=languages))
    for record in records:
        assert parse_record(to_line(record)) == record


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
