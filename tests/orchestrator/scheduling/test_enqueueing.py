"""Configurations of a person's own in a search: each is tried once, whatever cuts the search off."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.chosen import chosen_configuration, settings_of
from orchestrator.config.extension import extended
from orchestrator.ledger.history import History
from orchestrator.ledger.layout import REQUESTS
from orchestrator.ledger.records import DecisionRecord, EnqueuedRecord
from orchestrator.ledger.requests import Inbox, Request, put
from orchestrator.scheduling.enqueueing import TakesUpRequests
from orchestrator.scheduling.extension import require_work
from orchestrator.scheduling.search import SearchPhase
from tests.helpers.phases import Driver, study
from tests.helpers.timed_phases import Recorded
from trainables.errors import InputError
from trainables.storage import Location

ALGORITHMS = ("tpe", "cma_es", "random", "qmc", "grid")
"""A Gaussian process takes half a second for a suggestion, and is asked as TPE is."""
RATES = (0.00037, 0.0021, 0.0055)


class Asked(Driver):
    """A search of which people ask for configurations once there are so many records."""

    def __init__(self, spec, folder, asks=(), **options):
        self.folder, self.asks, self.said, self.flushed = Location(folder), dict(asks), [], 0
        self.inbox = Inbox(self.folder, self.flush)
        self.inbox.look()
        super().__init__(spec, self.taking, trouble=False, **options)

    def flush(self):
        self.flushed += 1

    def taking(self, spec, history, corpus):
        search = SearchPhase(spec, history, corpus)
        return TakesUpRequests(search, self.inbox, spec, history, self.record, self.said.append)

    def advance(self, name):
        for due in [number for number in self.asks if number <= len(self.records)]:
            put(self.folder, self.asks.pop(due))
        self.inbox.look()
        super().advance(name)


def rate(value, arm="vanilla"):
    return Request(arm=arm, configuration={"learning_rate": value})


def enqueued(driver):
    return [record for record in driver.records if isinstance(record, EnqueuedRecord)]


def decided(records):
    return [own.number for own in records if isinstance(own, DecisionRecord) and own.arm == "vanilla"]


def work(driver):
    return {
        trial.trial: (trial.configuration, trial.outcome, trial.progress, trial.by_hand)
        for trial in driver.history.trials_of("search")
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_asked_for_is_the_arms_next_new_trial(tmp_path, algorithm):
    spec = study(f"search.algorithm={algorithm}", "search.budget_per_arm=6", "search.parallel=2")
    asks = {12: rate(RATES[0]), 20: rate(RATES[1]), 21: rate(RATES[2])}
    driver = Asked(spec, tmp_path, asks).run()
    found = {trial.number: trial.configuration for trial in driver.history.trials_of("search", "vanilla")}
    records = enqueued(driver)
    assert [record.configuration["learning_rate"] for record in records] == list(RATES)
    for record in records:
        assert found[record.number] == record.configuration
        place = driver.records.index(record)
        assert record.number not in decided(driver.records[:place])
        new = [number for number in decided(driver.records[place:]) if number >= record.number]
        assert new[0] == record.number, "nothing new begins before it"
    by_hand = [trial.number for trial in driver.history.trials_of("search") if trial.by_hand]
    assert by_hand == [record.number for record in records]
    assert driver.spent("vanilla") <= 6 + 1e-9, "the arm's budget pays for it"
    assert driver.spent("headless") <= 6 + 1e-9
    driver.inbox.look()
    assert list((tmp_path / REQUESTS).iterdir()) == [], "removed, once durable"
    assert driver.flushed


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(ALGORITHMS), st.sampled_from([1, 2, 5]))
def test_a_search_cut_off_goes_on_as_if_it_had_not_been(tmp_path_factory, seed, algorithm, parallel):
    """Cut off after any record from the last request on: one that comes later in a session may come to another place.
    The files of requests are still there or gone."""
    chance = random.Random(seed)
    spec = study(f"search.algorithm={algorithm}", "search.budget_per_arm=4", f"search.parallel={parallel}")
    asks = {chance.randrange(3, 60): rate(value) for value in RATES}
    whole = Asked(spec, tmp_path_factory.mktemp("whole"), asks, seed=seed, capacity=3).run()
    last = max((whole.records.index(record) for record in enqueued(whole)), default=1)
    cut = chance.randrange(last + 1, len(whole.records) + 1)
    folder = tmp_path_factory.mktemp("again")
    for record in enqueued(whole):  # the process ended before it could remove them
        if chance.random() < 0.5:
            file = folder / REQUESTS / record.request
            file.parent.mkdir(exist_ok=True)
            file.write_text(rate(record.configuration["learning_rate"]).model_dump_json())
    again = Asked(spec, folder, earlier=whole.records[:cut], seed=seed + 1, capacity=chance.choice([1, 4])).run()
    assert work(again) == work(whole)
    assert enqueued(again) == enqueued(whole), "none is taken up twice"


def test_a_grid_does_not_try_it_again(tmp_path):
    overrides = ("search.algorithm=grid", "search.grid_points=5", "search.budget_per_arm=30", "search.halving.rungs=1")
    spec = study(*overrides, "search.parallel=1")
    plain = Driver(spec, trouble=False, capacity=1).run().history.trials_of("search", "vanilla")
    points = [trial.configuration["learning_rate"] for trial in plain]
    driver = Asked(spec, tmp_path, {4: rate(points[-1]), 5: rate(0.0023)}, capacity=1).run()
    tried = [trial.configuration["learning_rate"] for trial in driver.history.trials_of("search", "vanilla")]
    assert sorted(tried) == sorted([*points, 0.0023])


def test_one_beyond_the_range_is_tried_where_the_search_may_widen_to_it(tmp_path):
    spec = study("search.budget_per_arm=4")
    low = spec.arms["vanilla"].search_space.dimensions["learning_rate"].low
    driver = Asked(spec, tmp_path, {8: rate(low / 2)}).run()
    (record,) = enqueued(driver)
    (trial,) = (t for t in driver.history.trials_of("search", "vanilla") if t.by_hand)
    assert trial.configuration == record.configuration == {"learning_rate": low / 2}


def test_files_that_ask_for_nothing_are_refused_and_removed(tmp_path):
    spec = study("search.budget_per_arm=3")
    folder = tmp_path / REQUESTS
    folder.mkdir()
    (folder / "0001-ab.json").write_text("{")
    (folder / "0002-ab.json").write_text('{"arm": "nobody", "configuration": {"learning_rate": 0.001}}')
    (folder / "0003-ab.json").write_text('{"arm": "vanilla", "configuration": {"learning_rate": 900}}')
    (folder / "0004-ab.json").write_text('{"arm": "vanilla", "configuration": {"learning_rate": 0.004}, "more": 1}')
    (folder / "notes.txt").write_text("mine")
    plain = Driver(spec, trouble=False).run()
    driver = Asked(spec, tmp_path).run()
    assert len(driver.said) == 4
    assert [word for word in ("no request", "nobody", "900") if not any(word in said for said in driver.said)] == []
    assert work(driver) == work(plain), "the search is as it was"
    driver.inbox.look()
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]


def test_what_is_no_request_keeps_none_after_it_waiting(tmp_path, monkeypatch):
    """A folder with a request's name, a name that the ledger would not take, and a file that cannot be removed."""
    folder = tmp_path / REQUESTS
    (folder / "0001-ab.json").mkdir(parents=True)
    (folder / "-ab.json").write_text(rate(RATES[0]).model_dump_json())
    (folder / "0002-ab.json").write_text(rate(RATES[1]).model_dump_json())
    inbox = Inbox(Location(tmp_path), lambda: None)
    inbox.look()
    ((name, _),) = inbox.take()
    assert name == "0002-ab.json"

    def fails(_):
        raise PermissionError("not yours")

    inbox.settle(name)
    put(Location(tmp_path), rate(RATES[2]))
    with monkeypatch.context() as patch:
        patch.setattr(Location, "delete", fails)
        inbox.look()
    ((_, request),) = inbox.take()
    assert request == rate(RATES[2])
    inbox.look()
    assert not (folder / name).exists(), "tried again"


class Silent:
    """A folder of a store that does not answer."""

    def names(self):
        raise OSError("no answer")


def test_a_store_that_does_not_answer_is_asked_again(tmp_path, monkeypatch):
    inbox = Inbox(Location(tmp_path), lambda: None)
    put(Location(tmp_path), rate(0.001))
    with monkeypatch.context() as patch:
        patch.setattr(inbox, "_folder", Silent())
        inbox.look()
        assert inbox.take() == []
    inbox.look()
    ((name, request),) = inbox.take()
    assert request == rate(0.001)
    inbox.settle(name)

    def fails():
        raise InputError("another process leads the study", remedy="")

    lost = Inbox(Location(tmp_path), fails)
    lost.look()
    ((name, _),) = lost.take()
    lost.settle(name)
    lost.look()
    assert [file.name for file in (tmp_path / REQUESTS).iterdir()] == [name], "its record may be nowhere"
    inbox.look()
    assert list((tmp_path / REQUESTS).iterdir()) == []


REFUSALS = {
    ("vanila", "learning_rate=0.001"): ("no arm is called 'vanila'", "vanilla"),
    ("vanilla", "learning_rat=0.001"): ("does not vary 'learning_rat'", "learning_rate"),
    ("vanilla", "learning_rate=7"): ("learning_rate cannot be 7", "a number from"),
    ("vanilla", "learning_rate=-0.001"): ("cannot be -0.001", "a number from"),
    ("vanilla", "learning_rate=.nan"): ("cannot be nan", "a number from"),
    ("vanilla", "learning_rate=.inf"): ("cannot be inf", "a number from"),
    ("vanilla", "learning_rate=true"): ("cannot be True", "a number from"),
    ("vanilla", "learning_rate=[1]"): ("cannot be of type list", "a number from"),
    ("vanilla", "learning_rate="): ("cannot be null", "a number from"),
    ("vanilla", "learning_rate=fast"): ("cannot be 'fast'", "a number from"),
    ("vanilla", "learning_rate='0.002'"): ("cannot be '0.002'", "a number from"),
    ("vanilla", "learning_rate=0.10000001"): ("cannot be 0.10000001", "to 0.1"),
    ("vanilla", "learning_rate: 0.1"): ("is not key=value", "learning_rate=0.002"),
    ("vanilla", "=0.1"): ("is not key=value", "learning_rate=0.002"),
    ("vanilla", "learning_rate=0.001", "learning_rate=0.002"): ("given twice", "one value"),
    ("headless", "negatives=77"): ("negatives cannot be 77", "one of"),
    ("headless", "negatives={"): ("negatives={", ""),
}


@pytest.mark.parametrize("words", REFUSALS)
def test_what_the_search_may_not_try_is_refused(words):
    spec = study()
    with pytest.raises(InputError) as caught:
        chosen_configuration(spec, words[0], settings_of(words[1:]))
    for fragment in REFUSALS[words]:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("value", [np.float32(0.002), np.float64(0.002)])
def test_numbers_of_numpy_are_numbers(value):
    found = chosen_configuration(study(), "headless", {"learning_rate": value, "negatives": np.int64(256)})
    assert (type(found["learning_rate"]), type(found["negatives"])) == (float, int)
    assert (found["learning_rate"], found["negatives"]) == (value, 256)


OTHER_VALUES = (np.array([256, 64]), np.array([256]), 10**5000, b"64", np.True_, [256], {})


@pytest.mark.parametrize("value", OTHER_VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["learning_rate", "negatives"])
def test_other_values_are_refused_in_words(name, value):
    with pytest.raises(InputError, match=f"{name} cannot be (of type|so large)"):
        chosen_configuration(study(), "headless", {name: value})


def test_what_is_left_out_is_as_in_the_first_configuration():
    spec = study()
    first = spec.arms["headless"].search_space.first[0]
    found = chosen_configuration(spec, "headless", settings_of(["learning_rate=2e-3"]))
    assert found == {**first, "learning_rate": 0.002}
    assert list(found) == list(spec.arms["headless"].search_space.dimensions)


def test_without_a_first_configuration_all_has_to_be_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(
        "dimensions:\n  learning_rate: {type: float, low: 0.001, high: 0.1}\n"
        "  batch_sequences: {type: int, low: 8, high: 64}\n"
    )
    spec = study("arms.vanilla.space=own.yaml")
    with pytest.raises(InputError, match=r"a value is missing: batch_sequences(?s:.*)batch_sequences=VALUE"):
        chosen_configuration(spec, "vanilla", {"learning_rate": 0.01})
    found = chosen_configuration(spec, "vanilla", {"learning_rate": 0.01, "batch_sequences": 16.0})
    assert found == {"learning_rate": 0.01, "batch_sequences": 16}
    assert isinstance(found["batch_sequences"], int)
    with pytest.raises(InputError, match="a whole number from 8 to 64"):
        chosen_configuration(spec, "vanilla", {"learning_rate": 0.01, "batch_sequences": 16.5})


def test_a_grid_that_was_gone_through_can_be_extended_by_what_is_asked_for(tmp_path):
    grid = ("search.algorithm=grid", "search.grid_points=3", "search.budget_per_arm=12", "search.halving.rungs=1")
    driver = Recorded(study(*grid)).study()
    spec, changes = extended(driver.spec, ["search.budget_per_arm=20"], "")
    inbox = Inbox(Location(tmp_path), lambda: None)
    with pytest.raises(InputError, match="leaves nothing to run"):
        require_work(spec, History.of(driver.records), changes, inbox)
    put(Location(tmp_path), rate(0.0023))
    inbox.look()
    require_work(spec, History.of(driver.records), changes, inbox)
    assert len(list((tmp_path / REQUESTS).iterdir())) == 1
