"""Studies in notebooks and in the background, without a notebook: those that need one are in tests/examples."""

from __future__ import annotations

import signal
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import Results, Study
from orchestrator.execution.stopping import Stopping
from orchestrator.reporting import live_display
from orchestrator.reporting.live_display import LiveDisplay
from orchestrator.study import StudyInterrupted
from tests.helpers.demonstration import records
from tests.helpers.ledgers import changed, write_ledger
from trainables.errors import InputError
from trainables.storage import Location

HOSTILE = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """The tags and the text of what is shown; every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.seen, self.text = list[str](), set[str](), ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def recorded(folder: Path, *, question: str = "Which?") -> Results:
    first, *others = records()
    design = changed(first, design=changed(first.design, question=question))
    write_ledger(folder, [design, *others])
    (folder / "study.yaml").write_text("name: a\n")
    return Results(str(folder))


def test_results_and_comparisons_are_shown_with_their_numbers(tmp_path: Path) -> None:
    results = recorded(tmp_path, question=HOSTILE)
    shown = Tags(results._repr_html_())
    assert {"table", "style"} <= shown.seen
    assert "script" not in shown.seen
    assert HOSTILE in shown.text
    (row,) = results.comparison.query("yardstick == 'recovery_accuracy'").itertuples()
    difference = f"{row.difference:+.3f} [{row.interval_low:.3f}, {row.interval_high:.3f}]"
    comparison = Tags(str(results.answer.comparison._repr_html_()))
    for found in (shown, comparison):
        assert difference in found.text
        assert "headless is ahead" in found.text
        assert "n = 6 seeds" in found.text
    assert results.verdict.split(".")[0] in shown.text
    assert "script" not in comparison.seen


def test_a_study_is_shown_before_it_begins_and_then_its_results(tmp_path: Path) -> None:
    study = Study("demo", [f"storage={tmp_path}", "name=mine"])
    shown = Tags(study._repr_html_())
    assert "not begun" in shown.text
    assert "headless_clm" in shown.text
    recorded(tmp_path / "mine")
    assert "headless is ahead" in Tags(study._repr_html_()).text


class Working(Study):
    """A study whose work is to wait until it is stopped, or told to end."""

    def __init__(self, folder: Path) -> None:
        super().__init__("demo", [f"storage={folder}"])
        self.begun, self.end = threading.Event(), threading.Event()

    def _run_shown(self, address: str | None) -> Results:
        while not self.end.is_set():
            self._tell("working", "1 of 2")
            self.begun.set()
            time.sleep(0.01)
        if address == "nowhere":
            raise InputError("there is no cluster")
        return recorded(Path(str(self.folder)))


def begun(study: Working) -> None:
    study.start()
    assert study.begun.wait(10)


def test_a_study_runs_in_the_background(tmp_path: Path) -> None:
    study = Working(tmp_path)
    said = []
    study.say = lambda *words: said.append(words)
    with pytest.raises(InputError, match="was not started"):
        study.wait()
    begun(study)
    assert study.wait(0.05) is None
    with pytest.raises(InputError, match="runs already"):
        study.start()
    study.end.set()
    results = study.wait()
    assert results is not None
    assert results.history.finished
    assert said[0] == ("working", "1 of 2")
    study.stop()  # there is nothing to stop


def test_what_fails_in_the_background_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    study = Working(tmp_path)
    study.end.set()
    study.start("nowhere")
    with pytest.raises(InputError, match="no cluster"):
        study.wait()


def test_stopping(tmp_path: Path) -> None:
    study = Working(tmp_path)
    begun(study)
    study.stop()
    with pytest.raises(StudyInterrupted, match=r"run\(\) begins it"):
        study.wait()
    threading.Timer(0.2, study.end.set).start()
    assert study.run().history.finished, "what is run next is not stopped"


def test_an_interruption_while_it_is_waited_for_stops_it_with_one_message(tmp_path: Path) -> None:
    """As a notebook's stop button does: SIGINT in the main thread."""
    study = Working(tmp_path)
    begun(study)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "study.yaml").write_text("name: demo\n")
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(StudyInterrupted) as caught:
        study.wait()
    assert study._background is not None
    assert study._background.done()
    assert caught.value._render_traceback_() == [f"Interrupted: {caught.value}"]
    assert f"Study.open('{tmp_path / 'demo'}').resume() goes on" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_wish_to_stop_reaches_trials_whenever_it_comes() -> None:
    asked: list[str] = []
    executor: Any = SimpleNamespace(interrupt=lambda: asked.append("interrupt"), busy=True)
    early = Stopping()
    early.ask()
    with pytest.raises(KeyboardInterrupt):
        early.check()
    with early.brought_about_by(executor):
        early.check()  # the executor saves its trials first
        assert asked == ["interrupt"]
    late = Stopping()
    with late.brought_about_by(executor):
        late.check()
        late.ask()
        late.check()
        assert asked == ["interrupt", "interrupt"]
        executor.busy = False  # while text is prepared, or models are fine-tuned
        with pytest.raises(KeyboardInterrupt):
            late.check()
    with pytest.raises(KeyboardInterrupt):
        late.check()


class Handle:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_the_live_display_is_what_the_live_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle()
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(HTML=str, display=lambda *_, **__: handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(live_display, "LOOK_SECONDS", 0.02)
    with LiveDisplay(Location(tmp_path)) as live:
        live.stage.say("reading the text", "2 of 4")
        wait_for(lambda: any("reading the text 2 of 4 ..." in html for html in handle.shown))
        recorded(tmp_path)
    assert "headless is ahead" in Tags(handle.shown[-1]).text
    assert "finished after" in handle.shown[-1]
    assert len(set(handle.shown)) == len(handle.shown), "nothing is sent twice"


def wait_for(true: Any) -> None:
    until = time.monotonic() + 10
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_outside_of_notebooks_nothing_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LiveDisplay(Location(tmp_path)) as live:
        live.stage.say("reading")
    assert capsys.readouterr().out == ""
