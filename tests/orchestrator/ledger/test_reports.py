"""Reports of trials at rest: packed, and the same when they are read."""

from __future__ import annotations

import sys

from orchestrator.ledger.history import History
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import to_line
from orchestrator.ledger.reports import Reports
from tests.helpers.ledgers import begun, end, measure, study, trial
from trainables.storage import Location
from trainables.training.state import Environment

ASKED = trial("search", "vanilla", 0)


def reports_of(number: int) -> list:
    scored = [{} if i % 3 else {"accuracy": i / 10, "mrr": i / 20} for i in range(number)]
    return [measure(ASKED, i, i / number, scores=scores) for i, scores in enumerate(scored)]


def test_reports_are_the_same_packed() -> None:
    written = reports_of(7)
    reports = Reports(written)
    reports.pack()
    assert list(reports) == written == reports
    assert reports[-1] == written[-1]
    assert reports[2:4] == written[2:4]
    assert list(reversed(reports)) == written[::-1]
    assert len(reports) == 7
    assert (reports.progress, reports.spent) == (6 / 7, written[-1].spent)
    assert dict(reports.scores) == {"accuracy": 0.6, "mrr": 0.3}
    reports.append(measure(ASKED, 7, 1.0, scores={"accuracy": 0.9}))
    assert (len(reports), reports.progress) == (8, 1.0)
    assert dict(reports.scores) == {"accuracy": 0.9, "mrr": 0.3}, "the last value of each"


def test_what_a_line_has_in_common_with_another_is_not_kept_again() -> None:
    first, *others = reports_of(7)
    alone, beside = Reports(others[:1]), Reports(others[:1])
    alone.pack()
    beside.pack(to_line(first))
    assert list(beside) == list(alone) == others[:1]
    assert len(beside._packed) < len(alone._packed) / 2
    beside.append(others[1])
    beside.pack(to_line(first))
    assert list(beside) == others[:2]


def test_what_was_rolled_back_scores_no_more() -> None:
    reports = Reports(reports_of(7))
    reports.pack()
    kept = reports.kept(lambda report: report.step <= 4)
    assert [report.step for report in kept] == [0, 1, 2, 3, 4]
    assert dict(kept.scores) == {"accuracy": 0.3, "mrr": 0.15}
    assert kept.progress == 4 / 7
    nothing = reports.kept(lambda report: False)
    nothing.pack()
    assert (len(nothing), list(nothing), nothing.spent, nothing.progress) == (0, [], {}, 0.0)


def records_of(number: int, outcome: str) -> list:
    asked = trial("search", "vanilla", number)
    own = [measure(asked, i, i / 9, scores={"accuracy": 0.5} if i in (3, 9) else {}) for i in range(1, 10)]
    return [asked, *own, end(asked, outcome)]


def test_a_trial_at_rung_keeps_all_its_reports_and_one_that_has_ended_its_scores(tmp_path) -> None:
    """One at a rung may go on from before it: what it repeats is told from what is new by all of them."""
    recorder = Recorder(Location(tmp_path) / "ledger")
    for record in (study(), *records_of(0, "pruned"), *records_of(1, "completed")):
        recorder.record(record)
    stopped, ended = recorder.history.trials_of("search")
    assert [report.step for report in stopped.measures] == list(range(1, 10))
    assert [report.step for report in ended.measures] == [3, 9]
    recorder.close()
    again = Recorder(Location(tmp_path) / "ledger")  # a session that goes on keeps no more
    assert again.history == recorder.history
    again.close()


def test_what_trials_have_in_common_is_in_memory_once() -> None:
    history = History.of([study()])
    for number in range(2):
        asked = trial("search", "vanilla", number)
        history.apply(asked)
        made = Environment(versions={"python": "3.11"}, processor="one", threads=1)
        history.apply(begun(asked, environment=made))
    one, other = history.trials.values()
    assert one.environment is other.environment is not None
    assert one.attempt_records[0].start is other.attempt_records[0].start


def test_a_trial_at_rest_takes_little() -> None:
    """Its four reports less than a kilobyte; a record takes five."""
    reports = Reports(reports_of(4))
    reports.pack()
    packed = sum(sys.getsizeof(getattr(reports, name)) for name in ("_packed", "_records"))
    assert packed < 1000
