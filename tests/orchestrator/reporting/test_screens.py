"""The dashboard on screens of fixed sizes, its keys, its replay, and the time left."""

from __future__ import annotations

import os
import pty
import re
import threading
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from orchestrator import formatting
from orchestrator.cli import main
from orchestrator.ledger.history import History
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import EndRecord, MeasureRecord, StopRecord, TrialRecord
from orchestrator.reporting import dashboard, replay
from orchestrator.reporting.dashboard import Screen, follow, found_of, render
from orchestrator.reporting.keys import Keys, Scroll
from orchestrator.reporting.now import in_order, now_of
from orchestrator.reporting.pace import Pace
from orchestrator.reporting.replay import Replay, speed_of
from orchestrator.reporting.sparklines import BARS, Curve, curves, sparkline
from tests.helpers.demonstration import records
from tests.helpers.ledgers import changed, measure, run, study, trial, write_ledger
from trainables.storage import Location

RECORDS = list(records())
MIDDLE = next(i for i, r in enumerate(RECORDS) if isinstance(r, EndRecord) and r.phase == "confirm") + 20
LONG = list(records(num_search=60))
LONG_MIDDLE = len(LONG) * 2 // 3
SIZES = [(80, 24), (110, 45), (200, 60)]


def console(width, height, *, encoding="utf-8", **settings):
    target = StringIO()
    if encoding != "utf-8":
        target = type("Target", (StringIO,), {"encoding": encoding})()
    options = {"force_terminal": True, "color_system": None, "_environ": {}} | settings
    return Console(width=width, height=height, file=target, **options)


def drawn(history, width, height, scroll=None, **settings):
    target = console(width, height, **settings)
    target.print(Screen(history, found_of(history), scroll=scroll or Scroll()))
    return target.file.getvalue()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (40, 24), (60, 12), (20, 8)])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
def test_it_fits_the_screen(width, height, share):
    lines = drawn(History.of(LONG[: max(1, int(len(LONG) * share))]), width, height).splitlines()
    assert len(lines) < height, "the last line is the cursor's"
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_answer_so_far_the_curves_and_the_time_left_are_on_every_screen(width, height):
    history = History.of(RECORDS[:MIDDLE])
    text = " ".join(drawn(history, width, height).replace("│", " ").split())
    (pair,) = found_of(history).comparison.pairs
    row = pair.yardsticks["recovery_accuracy"]
    low, high = row.interval
    assert f"headless – vanilla: undecided so far, {row.difference:+.3f} [{low:.3f}, {high:.3f}], n = 2 seeds" in text
    assert "too few to lean on the interval, 4 yet to end" in text
    assert f"{formatting.duration(history.worked(history.updated))} of work so far" in text, "pauses do not count"
    assert "left at this pace" in text
    assert text.count("mean of 2 runs") == 2, "a curve of each arm, and of how many runs it is"
    assert text.count("█") > 3
    for own in history.trials.values():
        assert not own.runs or f"{own.arm} seed {own.seed} " in text


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_fits_is_framed(width, height):
    text = drawn(History.of(RECORDS[:MIDDLE]), width, height)
    assert ("╭─ headless-vs-vanilla" in text) == (height > 24)
    assert ("at equal" in text) == (height > 24)


def test_every_trial_can_be_scrolled_to():
    history, scroll = History.of(LONG[:LONG_MIDDLE]), Scroll(has_keys=True)
    seen, titles = [], [trial.trial for trial in in_order(history)]
    for _ in range(60):
        text = drawn(history, 80, 24, scroll)
        assert "arrow keys scroll" in text
        found = [line.split()[:2] for line in text.splitlines() if line.startswith(("headless #", "vanilla #"))]
        seen += [f"search-{arm}-{int(number[1:]):03d}" for arm, number in found]
        scroll.press("page down")
    assert list(dict.fromkeys(seen)) == [name for name in titles if name.startswith("search")]
    last = drawn(history, 80, 24, scroll)
    scroll.press("up")
    assert drawn(history, 80, 24, scroll) != last, "one too many page downs do no harm"
    scroll.press("home")
    assert next(iter(in_order(history))).trial.endswith("0") or "1 to" in drawn(history, 80, 24, scroll)


def test_those_that_run_come_first():
    history = History.of(LONG[:LONG_MIDDLE])
    states = [trial.runs for trial in in_order(history)]
    assert states == sorted(states, reverse=True)
    assert 1 <= sum(states) <= 4


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_without_colour_and_in_ascii(width, height):
    history = History.of(RECORDS[:MIDDLE])
    assert "\x1b" not in drawn(history, width, height)
    text = drawn(history, width, height, encoding="ascii")
    assert text.isascii()
    assert "x search" in text
    assert "**" in text, "confirmation runs"
    plain = drawn(history, width, height, no_color=True, color_system="truecolor")
    assert not re.search("\x1b\\[[0-9;]*(3[0-9]|4[0-9]|38)[;m]", plain), "no colours; bold and italics are none"


def test_a_dumb_terminal_has_lines_as_a_pipe_has(tmp_path):
    write_ledger(tmp_path, RECORDS)
    dumb = console(80, 24, _environ={"TERM": "dumb"})
    assert dumb.is_terminal
    follow(Location(tmp_path), dumb)
    text = dumb.file.getvalue()
    assert "\x1b" not in text
    assert "phase    search begins" in text
    assert "verdict  headless is ahead of vanilla" in text


def test_narrow_screens_have_the_values_too():
    history, target = History.of(RECORDS[:MIDDLE]), console(40, 100)
    target.print(render(history))
    text = " ".join(target.file.getvalue().replace("│", " ").split())
    point = found_of(history).comparison.pairs[0].matched["tokens"]
    low, high = point.interval
    assert f"{point.mean_a:.3f}, {point.mean_b:.3f}, {point.difference:+.3f} [{low:.3f}, {high:.3f}], n = 2" in text


def test_an_interval_of_few_seeds_is_said_to_be_one():
    def panels(seeds):
        found = [study(seeds=8)]
        for seed in range(1, seeds + 1):
            found += [*run("headless", seed, 0.5 + 0.01 * seed), *run("vanilla", seed, 0.4)]
        target = console(100, 100)
        target.print(render(History.of(found)))
        return " ".join(target.file.getvalue().split())

    assert "n <= 3: do not lean on the interval" in panels(3)
    assert "too few to lean on the interval" in panels(3)
    assert "lean on" not in panels(4)
    assert "lean on" not in panels(1), "there is none"


def stopped_for(seconds):
    """The study, stopped in the middle, and gone on with after a while."""
    before, after = RECORDS[:MIDDLE], RECORDS[MIDDLE:]
    stop = StopRecord(status="end", time=before[-1].time + 1)
    again = changed(RECORDS[0], time=stop.time + seconds)
    runs = [trial for trial in History.of(before).trials.values() if trial.runs]
    begins = {r.trial: r for r in before if isinstance(r, TrialRecord)}
    tries = [changed(begins[own.trial], attempt=2, time=again.time) for own in runs]
    moved = [r.model_copy(update={"time": round(r.time + 1 + seconds, 3)}) for r in after]
    return [*before, stop, again, *tries, *moved]


@pytest.mark.parametrize("seconds", [0.0, 36_000.0])
def test_the_time_between_sessions_does_not_count(seconds):
    history = History.of(stopped_for(seconds))
    took = RECORDS[-1].time - RECORDS[0].time + 1
    assert history.worked(history.updated) == pytest.approx(took, abs=0.01)
    assert history.worked(history.updated + 900) == history.worked(history.updated), "it has ended"
    assert now_of(history, history.updated + 900).said[0] == f"finished after {formatting.duration(took)}"


def test_a_session_that_was_cut_off_ended_with_its_last_record():
    records_ = [r for r in stopped_for(36_000.0) if not isinstance(r, StopRecord)]
    history = History.of(records_)
    assert history.worked(history.updated) == pytest.approx(RECORDS[-1].time - RECORDS[0].time, abs=1.01)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.85])
def test_the_time_left_is_about_what_it_took(share):
    """Of a search, of which three in four trials are stopped early, the budget is an upper bound."""
    place = int(share * len(RECORDS))
    history = History.of(RECORDS[:place])
    took = RECORDS[-1].time - RECORDS[place].time
    left = Pace(history).study_left()
    assert not left.at_most
    unspent = 0.0
    if history.phases["search"] != "end":  # what the made-up search left unspent was foreseen, and not spent
        whole = History.of(RECORDS)
        design = whole.design
        unspent = sum(
            design.search_budget * design.amount - whole.spent("search", arm, "tokens") for arm in design.arms
        )
        unspent *= took / (sum(own.spent["tokens"] for own in whole.trials.values()) * (1 - share))
    assert left.seconds == pytest.approx(took + unspent, rel=0.25)


def test_a_trial_that_has_just_begun_takes_what_those_of_its_arm_took():
    history = History.of(RECORDS[:MIDDLE])
    young = [own for own in history.trials.values() if own.runs and len(own.measures) < 2]
    assert young
    ended = [own for own in History.of(RECORDS).trials.values() if own.phase == "confirm"]
    for own in young:
        took = [r.attempt_records[-1].ended - r.attempt_records[-1].asked for r in ended if r.arm == own.arm]
        expected = sum(took) / len(took) * (1 - own.progress)
        assert Pace(history).trial_seconds_left(own) == pytest.approx(expected, rel=0.25)


def test_arms_have_their_own_pace():
    """One arm takes a second a token, the other four: what is left is told by who has it left."""
    found = [study(seeds=2, confirm_amount=100.0, search_budget=0.0)]
    for arm, each in (("headless", 1.0), ("vanilla", 4.0)):
        begin = trial("confirm", arm, 1, amount=100.0, time=0.0)
        tokens = 100.0 if arm == "headless" else 50.0
        reports = [measure(begin, n, tokens * n / 400, time=each * tokens * n / 4) for n in range(1, 5)]
        found += [begin, *reports]
        if arm == "headless":
            found.append(EndRecord(phase="confirm", arm=arm, trial=begin.trial, attempt=1, outcome="completed",
                                   reason="", time=100.0))  # fmt: skip
    ordered = sorted(found[1:], key=lambda record: record.time)
    pace = Pace(History.of([found[0], *ordered]))
    # 100 tokens of headless at a second, 150 of vanilla at four; two ran side by side.
    assert pace.study_left().seconds == pytest.approx((100 + 4 * 150) / 2)


def test_stopping_when_it_is_answered_makes_it_at_most():
    begin = trial("confirm", "headless", 1, amount=100.0, time=0.0)
    reports = [measure(begin, n, 0.1 * n, time=10.0 * n) for n in (1, 2, 3)]
    history = History.of([study(seeds=8, minimum_seeds=4, confirm_amount=100.0, search_budget=0.0), begin, *reports])
    assert Pace(history).study_left().at_most
    assert any(said.startswith("at most about ") for said in now_of(history, 30.0).said)


def test_a_sparkline_is_the_curve():
    rising = Curve(((0.25, 0.0), (1.0, 1.0)), "seed 1")
    line = sparkline(rising, (0.0, 1.0), 8)
    assert line[:2] == "  ", "not known there"
    levels = [BARS.index(bar) for bar in line[2:]]
    assert levels == [min(7, int(8 * ((cell + 0.5) / 8 - 0.25) / 0.75)) for cell in range(2, 8)]
    half = Curve(((0.1, 0.5), (0.5, 0.5)), "seed 1")
    assert sparkline(half, (0.5, 0.5), 4) in (" ▅  ", "▅▅  ")


def test_curves_of_each_phase():
    shown = {share: curves(History.of(RECORDS[: int(len(RECORDS) * share)])) for share in (0.1, 0.35, 1.0)}
    assert shown[0.1] == {}
    assert shown[0.35]["vanilla"].of.startswith("best trial, #")
    assert [(arm, curve.of) for arm, curve in shown[1.0].items()] == [
        ("headless", "mean of 6 runs"),
        ("vanilla", "mean of 6 runs"),
    ]
    ended = History.of(RECORDS).trials_of("confirm", "vanilla")
    finals = [own.measures[-1].yardsticks["recovery_accuracy"].overall for own in ended]
    assert shown[1.0]["vanilla"].points[-1] == (1.0, pytest.approx(sum(finals) / len(finals)))


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 0.25
        return self.now


def test_a_replay_hands_out_what_was_written_when_it_was(tmp_path, monkeypatch):
    written = stopped_for(36_000.0)
    write_ledger(tmp_path, written)
    clock = Clock()
    monkeypatch.setattr(replay, "time", clock)
    source, whole = Replay(Location(tmp_path) / "ledger", speed=100.0), History.of(written)
    came = []
    while not source.ended:
        came += [(clock.now, record) for record in source.heard()]
        assert source.now() <= whole.updated
    assert [record for _, record in came] == written
    assert came[-1][0] == pytest.approx(whole.worked(whole.updated) / 100, abs=1.0), "ten hours of pause are left out"
    assert len({moment for moment, _ in came}) > 20, "little by little"
    at_half = [record for moment, record in came if moment <= came[-1][0] / 2]
    assert at_half[-1].time - written[0].time == pytest.approx(whole.worked(whole.updated) / 2, rel=0.1)


def test_a_replay_takes_a_minute_unless_it_was_shorter():
    history = History.of(RECORDS)
    assert speed_of(history) == pytest.approx((RECORDS[-1].time - RECORDS[0].time) / 60)
    assert speed_of(History.of(RECORDS[:5])) == 1.0


def test_watching_a_replay(tmp_path, capsys):
    write_ledger(tmp_path, RECORDS)
    (tmp_path / "study.yaml").write_text("name: a\n")
    assert main(["watch", str(tmp_path), "--replay", "1e6"]) == 0
    printed = capsys.readouterr().out
    assert "start    search-vanilla-000" in printed
    assert "verdict  headless is ahead of vanilla" in printed
    for wrong in ("0", "fast", "-1", "nan"):
        with pytest.raises(SystemExit) as ended:
            main(["watch", str(tmp_path), f"--replay={wrong}"])
        assert ended.value.code == 2
        assert f"'{wrong}' is no speed" in capsys.readouterr().err


@pytest.mark.parametrize("is_led", [False, True])
def test_watch_waits_for_a_study_that_is_to_begin(tmp_path, monkeypatch, capsys, is_led):
    """While a process that leads it starts Ray, too: then there is a ledger without a record."""
    folder = tmp_path / "later"
    if is_led:
        Recorder(Location(folder / "ledger")).close()
        assert main(["show", str(folder)]) == 2
        assert "has not begun" in capsys.readouterr().err

    def write():
        write_ledger(folder, RECORDS)

    begins = threading.Timer(1.0, write)
    begins.start()
    assert main(["watch", str(folder)]) == 0
    begins.join()
    printed = capsys.readouterr().out
    assert "waiting for a study to begin in" in printed
    assert "verdict  headless is ahead of vanilla" in printed
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "dmeo"]) == 2, "a name is none of a folder"
    assert "demo" in capsys.readouterr().err


def test_keys_scroll_and_leave():
    ours, theirs = pty.openpty()
    try:
        with Keys(theirs) as keys:
            scroll = Scroll(has_keys=True)
            assert scroll.show(room=5, length=20) == 0
            for sent, first in ((b"\x1b[B", 1), (b"\x1b[6~", 6), (b"j", 7), (b"\x1b[A", 6), (b"G", 15), (b"g", 0)):
                os.write(ours, sent)
                assert not keys.scrolled(scroll, 5.0)
                assert scroll.show(room=5, length=20) == first
            os.write(ours, b"xyz\x1b[Z")
            assert not keys.scrolled(scroll, 0.1)
            assert scroll.show(room=5, length=20) == 0
            os.write(ours, b"q")
            assert keys.scrolled(scroll, 5.0)
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_takes_long_is_not_computed_at_every_look(tmp_path, monkeypatch):
    """While reports of a search come in, nothing of the answer can change."""
    asked = []
    monkeypatch.setattr(dashboard, "found_of", lambda history: asked.append(1) or found_of(history))
    place = next(i for i, r in enumerate(RECORDS) if isinstance(r, MeasureRecord)) + 2
    write_ledger(tmp_path, RECORDS[:place])
    turns = iter(range(8))

    def until():
        write_ledger(tmp_path, [RECORDS[place]])
        return next(turns) == 6

    monkeypatch.setattr(dashboard, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(dashboard, "DRAW_SECONDS", 0.0)
    follow(Location(tmp_path), console(80, 24), until)
    assert len(asked) <= 2, "once, and once at the end"
