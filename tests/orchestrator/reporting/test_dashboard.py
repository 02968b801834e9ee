"""The dashboard, drawn on consoles of fixed widths, and its plain lines."""

import itertools
import re
import threading
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from orchestrator import formatting
from orchestrator.analysis.compare import compare
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, MeasureRecord, StopRecord, TrialRecord, WaitingRecord
from orchestrator.reporting import dashboard, pace
from orchestrator.reporting.dashboard import follow, print_results, render
from orchestrator.reporting.listening import Stage
from orchestrator.reporting.log_lines import lines_of, standing, time_left
from orchestrator.reporting.pace import Pace
from orchestrator.reporting.panels import pair_panel
from orchestrator.reporting.result_tables import arms_table
from orchestrator.reporting.table import on_terminal
from tests.helpers.demonstration import START, records, with_branches
from tests.helpers.ledgers import NOISE, changed, end, event, run_with_branches, study, write_ledger
from trainables.storage import Location

RECORDS = list(records())
MIDDLE = next(i for i, r in enumerate(RECORDS) if isinstance(r, EndRecord) and r.phase == "confirm") + 20


def console(width, terminal=True):
    return Console(width=width, force_terminal=terminal, file=StringIO(), color_system=None, _environ={})


def drawn(renderable, width):
    target = console(width)
    target.print(renderable)
    return target.file.getvalue()


def squeezed(text):
    """Without borders, and a run of blanks as one."""
    return re.sub(r"[│\s]+", " ", text)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 1.0])
def test_every_line_fits_and_every_drawing_is_alike(width, share):
    history = History.of(RECORDS[: int(len(RECORDS) * share)])
    text = drawn(render(history, stage="reading the text"), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert text == drawn(render(history, stage="reading the text"), width)
    running = any(trial.runs for trial in history.trials.values())
    assert ("reading the text ..." in text) != running, "told while no trial runs"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_middle_of_confirm(width):
    history = History.of(RECORDS[:MIDDLE])
    text = squeezed(drawn(render(history), width))
    assert "headless-vs-vanilla" in text
    assert "Does headless pretraining recover tokens better at the same compute?" in text
    assert "✓ search ● confirm ○ compare" in text
    assert "headless headless_mlm" in text
    assert "CPU 8/16 · GPU 4/4" in text
    trials = history.trials_of("search", "vanilla")
    pruned = sum(trial.outcome == "pruned" for trial in trials)
    assert f"{pruned} pruned · 1 diverged" in text
    best = max((t for t in trials if t.outcome == "completed"), key=lambda t: t.score("recovery_accuracy"))
    assert f"{best.score('recovery_accuracy'):.3f} recovery_accuracy (validation)" in text
    assert formatting.settings(best.configuration) in text
    for trial in history.trials.values():
        if trial.outcome is None:
            assert f"{trial.arm} seed {trial.seed} " in text
            loss = f"{trial.measures[-1].loss:.3f}" if trial.measures else "–"
            assert f" {trial.progress:.0%} {loss} " in text
    assert "at equal headless vanilla" in text
    assert "(exploratory)" in text
    assert "no row at equal FLOPs or device time: one arm would be mid-schedule there" in text
    point = compare(history).pairs[0].matched["tokens"]
    assert f"2.0M tokens {point.mean_a:.3f} {point.mean_b:.3f} {point.difference:+.3f}" in text
    assert "undecided" in text
    assert "yet to end" in text
    assert "…" not in text.split("CPU")[0]  # no name is cut; only events may be


def test_speed_is_tokens_by_time():
    history = History.of(RECORDS[:MIDDLE])
    trial = next(t for t in history.trials.values() if t.outcome is None and len(t.measures) > 1)
    first, last = trial.measures[-5:][0], trial.measures[-1]
    speed = (last.spent["tokens"] - first.spent["tokens"]) / (last.time - first.time)
    assert f" {speed / 1000:.1f}k " in squeezed(drawn(render(history), 100))


def test_a_silent_study_is_said_to_be_silent():
    history = History.of(RECORDS[:MIDDLE])
    assert "silent for 3.0 h" in drawn(render(history, history.updated + 3 * 3600), 80)
    assert "silent" not in drawn(render(history, history.updated + 5), 80)
    done = History.of(RECORDS)
    assert "silent" not in drawn(render(done, done.updated + 3 * 3600), 80)


def test_of_a_silent_study_no_time_left_is_told():
    history = History.of(RECORDS[:MIDDLE])
    then, late = history.updated + 5, history.updated + 3 * 3600
    assert "left at this pace" in standing(history, then)
    assert "left at this pace" in squeezed(drawn(render(history, then), 100))
    assert "left at this pace" not in squeezed(drawn(render(history, late), 100))
    assert "left at this pace" not in standing(history, late)
    assert "silent for 3.0 h: h2h resume" in standing(history, late)
    assert standing(history, late, leads=True).endswith("; no report for 3.0 h")


def test_a_study_that_stops_says_so():
    at = {"time": RECORDS[MIDDLE - 1].time + 1}
    asked, ended = (StopRecord(status=status, **at) for status in ("begin", "end"))
    stopping = squeezed(drawn(render(History.of([*RECORDS[:MIDDLE], asked])), 100))
    assert "stopping: what runs is saved first; Ctrl-C once more to stop at once" in stopping
    assert "running 4" in stopping
    stopped = [*RECORDS[:MIDDLE], asked, ended]
    history = History.of(stopped)
    text = drawn(render(history, history.updated + 3 * 3600), 100)
    assert "stopped; h2h resume (in Python: resume()) goes on with it" in text
    for gone in ("stopping", "running", "◐", "CPU 8/16", "silent"):  # also of trials without an end
        assert gone not in text
    assert sum(trial.outcome is None for trial in history.trials.values()) == 4
    begins = [r for r in RECORDS[:MIDDLE] if isinstance(r, TrialRecord)]
    again = [changed(RECORDS[0], **at), changed(begins[-1], attempt=2, **at)]
    text = drawn(render(History.of([*stopped, *again])), 100)
    assert "running 1" in text
    assert "stop" not in text


def test_brackets_are_not_markup():
    broken = event("[rank0]: broken [/bold]", START)
    study = changed(RECORDS[0], design=changed(RECORDS[0].design, question="does [bold]this[/x] work?"))
    text = drawn(render(History.of([study, broken])), 80)
    for message in ("does [bold]this[/x] work?", "[rank0]: broken [/bold]"):
        assert message in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_results_at_the_end(width):
    target = console(width)
    history = History.of(RECORDS)
    print_results(history, Location("/studies/a"), target)
    text = target.file.getvalue()
    arms = compare(history).arms
    assert "recovery_accuracy" in text
    assert f"{arms['vanilla'].yardsticks['recovery_accuracy'].mean:.3f} ± " in text
    assert "6 of 6" in text
    assert "headless is ahead of vanilla" in squeezed(text)
    assert "h2h watch /studies/a\n" in text
    assert 'from orchestrator import Results; Results("/studies/a").trials\n' in text
    assert "Headless" not in drawn(on_terminal(arms_table(compare(history))), width)


def test_time_to_target_is_told_in_the_other_arms_spending():
    found = [study()]
    for seed, noise in enumerate(NOISE):
        found += run_with_branches("headless", seed, 0.8 + noise)
        found += run_with_branches("vanilla", seed, 0.4)
    comparison = compare(History.of(found))
    (pair,) = comparison.pairs
    reached = pair.time_to_target["tokens"]
    told = f"headless reaches {reached.target:.3f} with {reached.ratio:.2f} times vanilla's tokens ["
    assert told in squeezed(drawn(pair_panel(comparison, pair), 100))


@pytest.mark.parametrize(("seeds", "few"), [(1, False), (3, True), (4, False)])
def test_intervals_of_few_seeds_are_marked(seeds, few):
    target = console(80)
    print_results(History.of(records(seeds=seeds)), Location("/studies/a"), target)
    assert ("n <= 3: do not lean on the interval" in target.file.getvalue()) == few


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_stands_beside_the_question_is_shown_in_short(width):
    history, target = History.of(with_branches()), console(width)
    print_results(history, Location("/studies/a"), target)
    text = target.file.getvalue()
    comparison = compare(history)
    assert max(cell_len(line) for line in text.splitlines() if "Results(" not in line) <= width
    (pair,) = comparison.pairs
    assert f"the planned seeds would find a difference of {pair.detectable:.2g} on" in squeezed(text)
    tuning = comparison.arms["vanilla"].tuning
    assert f"{tuning.spent[-1]:.2g}: {tuning.median[-1]:.3f}" in squeezed(text)
    assert "1, 0, 0" in text  # the diverged one of vanilla's search
    assert text.count("50%") == 2  # both yardsticks


def test_shares_of_the_budget_say_of_how_many_seeds():
    history = History.of(with_branches(diverged="01"))
    (pair,) = compare(history).pairs
    text = squeezed(drawn(pair_panel(compare(history), pair), 100))
    assert "difference (exploratory) n " in text
    assert re.search(r"2\.0M tokens [^a-z]*\] 6 ", text)
    assert re.search(r" 50% of the budget [^a-z]*\] 4 ", text)


def test_a_loss_that_is_no_number_is_a_dash():
    broken = [changed(r, loss=None) if isinstance(r, MeasureRecord) else r for r in RECORDS[:MIDDLE]]
    assert re.search(r" \d+% – ", squeezed(drawn(render(History.of(broken)), 100)))


def test_watching_a_finished_study_shows_it_once(tmp_path):
    write_ledger(tmp_path, RECORDS)
    target = console(80, terminal=True)
    history = follow(Location(tmp_path), target)
    assert history.phases["compare"] == "end"
    assert drawn(render(history), 80).rstrip() in target.file.getvalue()  # whole, though the terminal is short


def test_nothing_is_left_of_a_study_that_did_not_begin(tmp_path):
    target, asked = console(80, terminal=True), []
    follow(Location(tmp_path), target, lambda: bool(asked) or asked.append(True), stage=Stage("reading"))
    text = target.file.getvalue()
    assert "reading ..." in text
    assert text.rindex("\x1b[2K") > text.rindex("reading"), "its line is cleared"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_study_that_has_said_nothing_is_not_waited_for(tmp_path, terminal):
    """What is refused at once shows its error alone."""
    target, asked = console(80, terminal=terminal), []
    follow(Location(tmp_path), target, lambda: len(asked) > 1 or asked.append(True), stage=Stage())
    assert not re.search("[a-z]{2}", target.file.getvalue())


def test_plain_lines(tmp_path):
    write_ledger(tmp_path, RECORDS)
    target = console(80, terminal=False)
    follow(Location(tmp_path), target)
    text = target.file.getvalue()
    assert "\x1b" not in text
    lines = [line.split(maxsplit=1)[1] for line in text.splitlines()]
    kinds = [line.split()[0] for line in lines]
    ends = [r for r in RECORDS if isinstance(r, EndRecord)]
    assert kinds.count("start") == len(ends)
    assert [k for k in kinds if k in ("completed", "pruned", "diverged")] == [r.outcome for r in ends]
    assert "phase    search begins" in lines
    assert "event    search-vanilla-005 failed: the loss is not a number" in lines
    assert any(re.fullmatch(r"pruned +search-\S+ recovery_accuracy=0\.\d{3} spent \S+ tokens \(rung \d\)", x)
               for x in lines)  # fmt: skip
    best = [float(re.search(r"recovery_accuracy=(\S+)", x)[1]) for x in lines if x.startswith("best     headless")]
    assert best == sorted(best)
    assert len(best) >= 1
    assert lines[-2].startswith("verdict  headless is ahead of vanilla")


def test_following_a_study_that_grows(tmp_path):
    write_ledger(tmp_path, RECORDS[:MIDDLE])
    target, done, asked = console(80, terminal=False), threading.Event(), []

    def until():
        asked.append(True)
        if len(asked) == 2:  # the rest is written before the question is answered: it must be read all the same
            write_ledger(tmp_path, RECORDS[MIDDLE:])
            done.set()
        return done.is_set()

    history = follow(Location(tmp_path), target, until, since=RECORDS[MIDDLE].time)
    assert history.phases["compare"] == "end"
    text = target.file.getvalue()
    assert "search begins" not in text  # before ``since``
    assert text.count("verdict") == 1


def test_a_resumed_trial_and_a_failed_one_in_plain_lines(tmp_path):
    begin = next(r for r in RECORDS if isinstance(r, TrialRecord))
    again = changed(begin, attempt=2, start_step=40)
    lines = [RECORDS[0], begin, again, end(again, "failed", "out of memory")]
    write_ledger(tmp_path, lines)
    target = console(80, terminal=False)
    follow(Location(tmp_path), target, lambda: True)
    text = target.file.getvalue()
    assert f"resume   {begin.trial} attempt=2 step=40" in text
    assert f"failed   {begin.trial} recovery_accuracy=– spent 0 tokens (out of memory)" in text


GPUS = {"CPU": 4.0, "GPU": 1.0}


def test_what_waits_for_room_is_shown_until_it_has_it(tmp_path):
    waits = WaitingRecord(workers=3, each=GPUS, reason="the cluster has none yet", time=START)
    words = "3 workers wait for machines with 1 GPU and 4 CPUs free: the cluster has none yet"
    one = "1 worker waits for a machine with 1 GPU and 4 CPUs free: the cluster has none yet"
    over = WaitingRecord(workers=0, each=GPUS, reason="", time=START + 9)
    write_ledger(tmp_path, [*RECORDS[:MIDDLE], waits])
    target, history = console(120, terminal=False), History.of([*RECORDS[:MIDDLE], waits])
    follow(Location(tmp_path), target, lambda: True)
    assert target.file.getvalue().splitlines()[-1].endswith(f"waiting  {words}")
    assert words in squeezed(drawn(render(history), 120))
    assert standing(history, history.updated).endswith(f"; {words}")
    history.apply(waits.model_copy(update={"workers": 1}))
    assert one in squeezed(drawn(render(history), 120))
    history.apply(over)
    assert "wait" not in standing(history, history.updated)
    assert "free:" not in drawn(render(history), 120)
    assert "waiting  is over" in " ".join(lines_of(over, history))


class Clock:
    """Time that passes where somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return START + self.now

    def sleep(self, seconds):
        self.now += seconds


class Timed(StringIO):
    """Remembers when each line was written."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.lines = clock, []

    def write(self, text):
        self.lines += [(self.clock.now, line) for line in text.splitlines() if line]
        return super().write(text)


def followed(monkeypatch, folder, seconds, at=None, **options):
    """The lines of a log, with their times, over so many seconds; ``at`` does something at a time."""
    clock = Clock()
    monkeypatch.setattr(dashboard, "time", clock)
    target, due = Timed(clock), sorted((at or {}).items())

    def until():
        while due and clock.now >= due[0][0]:
            due.pop(0)[1]()
        return clock.now >= seconds

    log = Console(width=80, force_terminal=False, file=target, color_system=None, _environ={})
    follow(Location(folder), log, until, **options)
    return [(seconds, line.split(maxsplit=1)[1]) for seconds, line in target.lines]


def test_a_log_says_each_stage_at_once_and_is_never_quiet_for_long(tmp_path, monkeypatch):
    stage = Stage("loading what checks the study")
    at = {3.0: lambda: stage.say("reading the text"), 30.0: lambda: stage.say("starting Ray on this machine")}
    lines = followed(monkeypatch, tmp_path, 60.0, at, stage=stage)
    new = [(seconds, line) for seconds, line in lines if line.startswith("now")]
    assert [line for _, line in new] == [
        "now      loading what checks the study",
        "now      reading the text",
        "now      starting Ray on this machine",
    ]
    assert [seconds for seconds, _ in new] == pytest.approx([0.0, 3.0, 30.0], abs=dashboard.POLL_SECONDS)
    times = [0.0, *(seconds for seconds, _ in lines), 60.0]
    assert max(after - before for before, after in itertools.pairwise(times)) <= 8.0 + 2 * 0.5
    assert ("still    reading the text") in [line for seconds, line in lines if 3 < seconds < 30]
    assert len(lines) < 12, "nor does it chatter"


def test_a_study_that_has_begun_is_waited_for_no_more(tmp_path, monkeypatch):
    stage = Stage("waiting for a study to begin", until_begun=True)
    at = {20.0: lambda: write_ledger(tmp_path, RECORDS[:2])}
    lines = followed(monkeypatch, tmp_path, 60.0, at, stage=stage)
    assert {line[9:] for seconds, line in lines if seconds < 20} == {"waiting for a study to begin"}
    assert not [line for seconds, line in lines if seconds > 21 and "waiting" in line]


def test_a_log_of_a_stage_says_how_far_it_is_now_and_then(tmp_path, monkeypatch):
    stage = Stage()
    at = {float(seconds): lambda part=seconds: stage.say("packing", f"{part}/60 parts") for seconds in range(60)}
    lines = followed(monkeypatch, tmp_path, 59.0, at, stage=stage)
    assert lines[0][1] == "now      packing 0/60 parts"
    assert 6 <= len(lines) <= 8
    assert all(re.fullmatch(r"still    packing [0-9]+/60 parts", line) for _, line in lines[1:])


def test_a_log_of_long_trials_says_how_far_they_are(tmp_path, monkeypatch):
    """Their reports are no lines of the log."""
    monkeypatch.setattr(pace, "SILENT_SECONDS", float("inf"))  # its records are of a while ago
    write_ledger(tmp_path, RECORDS[:MIDDLE])
    running = [t for t in History.of(RECORDS[:MIDDLE]).trials.values() if t.runs]
    lines = followed(monkeypatch, tmp_path, 60.0, since=RECORDS[MIDDLE].time, stage=Stage("starting trials"))
    told = ", ".join(f"{t.trial} {t.progress:.0%}" for t in running)
    left = time_left(Pace(History.of(RECORDS[:MIDDLE])).study_left())
    assert {line for _, line in lines} == {f"still    confirm: {told}; {left}"}
    times = [0.0, *(seconds for seconds, _ in lines), 60.0]
    assert max(after - before for before, after in itertools.pairwise(times)) <= 8.0 + 2 * 0.5


def test_a_log_in_which_something_happens_says_no_more(tmp_path, monkeypatch):
    """An event every five seconds."""
    write_ledger(tmp_path, RECORDS[:1])
    at = {5.0 * n: lambda n=n: write_ledger(tmp_path, [event(f"number {n}", START + 5.0 * n)]) for n in range(1, 12)}
    lines = followed(monkeypatch, tmp_path, 59.0, at)
    assert [line for _, line in lines if not line.startswith("study")] == [f"event    number {n}" for n in range(1, 12)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (512, "tokens", "512 tokens"),
        (1_234_000, "tokens", "1.2M tokens"),
        (999_999, "tokens", "1.0M tokens"),
        (250e9, "tokens", "250B tokens"),
        (1200, "steps", "1.2k steps"),
        (3.4e12, "flops", "3.4 TFLOP"),
        (2e15, "flops", "2.0 PFLOP"),
        (12.3, "device_seconds", "12 s"),
        (0.25, "device_seconds", "0.25 s"),
        (204, "device_seconds", "3.4 min"),
        (9000, "device_seconds", "2.5 h"),
    ],
)
def test_quantities_read_well(value, unit, text):
    assert formatting.quantity(value, unit) == text
