"""The live pages: who may read them, what they follow, and that they cost little."""

import asyncio
import base64
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from orchestrator.analysis.report import report_of
from orchestrator.cli import make_parser
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting import paced
from orchestrator.reporting.now import now_of
from orchestrator.reporting.pace import Pace, per_second
from orchestrator.reporting.paced import Paced
from orchestrator.reporting.page.page import report_page
from orchestrator.reporting.serve import feed
from orchestrator.reporting.serve.feed import Feed
from orchestrator.reporting.serve.server import Server, serve
from tests.helpers.browser import opened
from tests.helpers.demonstration import records
from tests.helpers.ledgers import event, measure, spent, study, trial, write_ledger
from tests.helpers.pages import read_page
from tests.orchestrator.reporting.test_report import hostile
from trainables.errors import InputError
from trainables.storage import Location

TOKEN = "a-token"
RECORDS = list(records())
MIDDLE = next(i for i, r in enumerate(RECORDS) if isinstance(r, EndRecord) and r.phase == "confirm") + 20


def write_study(storage, name, written):
    write_ledger(storage / name, written)
    (storage / name / "study.yaml").write_text(f"name: {name}")


@asynccontextmanager
async def served(storage, token=TOKEN, *, port=0, known=TOKEN, **session):
    """A client of a server of these studies, which has been let in unless its token is not the one that is known."""
    runner = web.AppRunner(Server(Location(storage), known).app(), shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    jar = aiohttp.CookieJar(unsafe=True)  # of addresses that are numbers
    async with aiohttp.ClientSession(base, cookie_jar=jar, **session) as client:
        if token:
            await client.get("/", params={"token": token})
        yield SimpleNamespace(client=client, base=base, runner=runner)
    await runner.cleanup()


async def text_of(server, path):
    async with server.client.get(path) as answer:
        return await answer.text()


async def events_of(server, path, most, seconds=60.0):
    """The first events, with their content."""
    found = []
    async with asyncio.timeout(seconds), server.client.get(path, read_bufsize=2**22) as answer:
        name = ""
        async for line in answer.content:
            if line.startswith(b"event: "):
                name = line[7:].decode().strip()
            if line.startswith(b"data: "):
                found.append((name, json.loads(line[6:])))
                if len(found) == most:
                    break
    return found


def test_a_token_is_needed(tmp_path):
    write_study(tmp_path, "s", RECORDS[:1])

    async def ask():
        async with served(tmp_path, token="") as server:
            for path in ("/", "/studies/s/", "/studies/s/report", "/studies/s/events", "/events", "/none"):
                for query in ({}, {"token": "another"}, {"token": ""}, {"token": TOKEN + "x"}):
                    async with server.client.get(path, params=query) as answer:
                        assert answer.status == 403
                        assert "token is needed" in await answer.text()
            async with server.client.get("/", params={"token": TOKEN}, allow_redirects=False) as answer:
                assert answer.status == 303
                assert TOKEN not in answer.headers["Location"]
                (cookie,) = answer.headers.getall("Set-Cookie")
                assert "HttpOnly" in cookie
                assert "SameSite=Lax" in cookie
            async with server.client.get("/") as answer:
                assert answer.status == 200
                assert answer.headers["Referrer-Policy"] == "no-referrer"

    asyncio.run(ask())


def test_it_only_reads(tmp_path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}

    async def ask():
        async with served(tmp_path) as server:
            for path in ("/", "/studies/s/", "/studies/s/report"):
                assert await text_of(server, path)
                for method in ("POST", "PUT", "DELETE", "PATCH"):
                    async with server.client.request(method, path) as answer:
                        assert answer.status == 405

    asyncio.run(ask())
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_only_studies_of_the_storage_are_shown(tmp_path):
    storage = tmp_path / "storage"
    write_study(storage, "inside", RECORDS[:1])
    write_study(tmp_path, "outside", RECORDS[:1])
    (storage / "no-study").mkdir()

    async def ask():
        async with served(storage) as server:
            for name in ("none", "no-study", "..%2Foutside", "%2Fetc"):
                async with server.client.get(URL(f"{server.base}/studies/{name}/", encoded=True)) as answer:
                    assert answer.status == 404
                    assert "there is no study called" in await answer.text()

    asyncio.run(ask())


def test_the_index_has_every_study(tmp_path):
    write_study(tmp_path, "whole", RECORDS)
    write_study(tmp_path, "middle", RECORDS[:MIDDLE])
    write_study(tmp_path, "empty", [])
    write_study(tmp_path, "damaged", [])
    (tmp_path / "damaged" / "ledger" / "000001.jsonl").write_text('{"kind": "nothing"}\n')

    async def ask():
        async with served(tmp_path) as server:
            page = read_page(await text_of(server, "/"))
            ((name, content),) = await events_of(server, "/events", 1)
        rows = {row.all("th")[0].text: [cell.text for cell in row.all("td")] for row in page.all("tr")[1:]}
        assert rows["whole"][0] == "finished"
        assert rows["whole"][1].startswith("headless – vanilla: headless is ahead, +0.041 [")
        assert " ".join(rows["middle"][0].split()).startswith("running, confirm, silent for ")
        history = History.of(RECORDS[:MIDDLE])
        ended = sum(own.outcome is not None for own in history.trials.values())
        assert rows["middle"][2] == f"{ended} of {len(history.trials)} ended"
        assert rows["empty"][0] == "not begun"
        assert rows["damaged"][1] == "the ledger is damaged"
        assert name == "rows"
        assert "headless is ahead" in content["html"]

    asyncio.run(ask())


def test_the_page_of_a_study_is_its_report(tmp_path):
    write_study(tmp_path, "s", RECORDS)

    async def ask():
        async with served(tmp_path) as server:
            return await text_of(server, "/studies/s/")

    live = read_page(asyncio.run(ask()))
    alone = read_page(report_page([report_of(History.of(RECORDS))]))
    for captions in ("Differences, with their 95% intervals", "Every trial", "Spending by kind"):
        own, other = (
            next(t.text for t in page.all("table") if t.all("caption")[0].text == captions) for page in (live, alone)
        )
        assert own == other
    assert [len(own) for own in (live.all("figure"), live.all("script"))] == [len(alone.all("figure")), 2]


def test_who_comes_late_sees_the_same_and_both_see_what_is_new(tmp_path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])

    async def ask():
        async with served(tmp_path) as server:
            await text_of(server, "/studies/s/")
            early = await events_of(server, "/studies/s/events", 3)
            late = await events_of(server, "/studies/s/events", 3)
            assert [name for name, _ in early] == [name for name, _ in late] == ["now", "answer", "report"]
            assert early[1:] == late[1:]
            running = [name for name, own in History.of(RECORDS[:MIDDLE]).trials.items() if own.runs]
            for found in (early, late):
                assert all(f">{name}<" in found[0][1]["html"] for name in running)
            waiting = asyncio.create_task(events_of(server, "/studies/s/events", 4))
            await asyncio.sleep(0.5)
            write_ledger(tmp_path / "s", [event("something is new", RECORDS[MIDDLE - 1].time)])
            assert "something is new" in (await waiting)[-1][1]["html"]

    asyncio.run(ask())


def test_text_of_a_study_is_escaped_and_no_other_script_may_run(tmp_path):
    write_study(tmp_path, "s", hostile())

    async def ask():
        async with served(tmp_path) as server:
            async with server.client.get("/studies/s/") as answer:
                html, headers = await answer.text(), answer.headers
            pieces = await events_of(server, "/studies/s/events", 2)
        return html, headers, pieces

    html, headers, pieces = asyncio.run(ask())
    scripts = read_page(html).all("script")
    digests = [base64.b64encode(hashlib.sha256(own.text.encode()).digest()).decode() for own in scripts]
    assert re.findall("'sha256-([^']+)'", headers["Content-Security-Policy"]) == digests
    assert not read_page(html).all("img")
    for _, content in pieces:
        assert not read_page(content["html"]).all("script", "img")


def test_it_stops_while_somebody_reads(tmp_path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])

    async def ask():
        async with served(tmp_path) as server:
            await text_of(server, "/studies/s/")
            reading = asyncio.create_task(events_of(server, "/studies/s/events", 1000))
            await asyncio.sleep(1.0)
            async with asyncio.timeout(30):
                await server.runner.cleanup()
                assert len(await reading) >= 3, "its connection ends in order"

    asyncio.run(ask())


def test_a_port_that_is_taken_is_refused_with_a_remedy(tmp_path):
    async def ask():
        async with served(tmp_path) as server:
            await serve(Location(tmp_path), "127.0.0.1", server.runner.addresses[0][1], lambda _: None)

    with pytest.raises(InputError, match="cannot listen") as refused:
        asyncio.run(ask())
    assert "--port 0" in str(refused.value)


def test_an_address_that_is_none_is_refused_by_its_option(tmp_path):
    with pytest.raises(InputError, match="cannot listen") as refused:
        asyncio.run(serve(Location(tmp_path), "192.0.2.1", 0, lambda _: None))
    assert refused.value.where == "--host"


@pytest.mark.parametrize("port", ["99999", "-1", "x"])
def test_a_port_that_is_none_is_refused(port, capsys):
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["serve", "studies", f"--port={port}"])
    assert ended.value.code == 2
    assert f"'{port}' is no port" in capsys.readouterr().err


def test_it_listens_on_this_machine_alone_unless_told():
    assert make_parser().parse_args(["serve", "studies"]).host == "127.0.0.1"


def test_what_takes_long_is_made_again_the_later(monkeypatch):
    clock = SimpleNamespace(wall=100.0, cpu=0.0)
    monkeypatch.setattr(paced.time, "monotonic", lambda: clock.wall)
    monkeypatch.setattr(paced.time, "thread_time", lambda: clock.cpu)
    made = []

    def make():
        clock.cpu += 3.0
        made.append(clock.wall)
        return f"{len(made)}"

    drawn = Paced("", 5.0)
    for second in range(100, 500):
        clock.wall, drawn.stale = float(second), True
        if drawn.is_due():
            drawn.refresh(make)
    assert made == [100.0, 200.0, 300.0, 400.0], "three seconds of a hundred"
    assert drawn.version == 4


def test_what_was_read_before_the_storage_fell_silent_is_not_lost(tmp_path, monkeypatch):
    """It answers for a ledger's first segment, and for its second only when it is asked again."""
    write_study(tmp_path, "s", RECORDS[:30])
    write_ledger(tmp_path / "s", RECORDS[30:MIDDLE], segment=2)
    undisturbed = Feed(Location(tmp_path / "s"))
    undisturbed.read()
    read, silent = LedgerReader._read_segment, ["000002.jsonl"]

    def read_unless_silent(reader, name):
        if name in silent:
            silent.remove(name)
            raise OSError("no answer")
        return read(reader, name)

    monkeypatch.setattr(LedgerReader, "_read_segment", read_unless_silent)
    study_feed = Feed(Location(tmp_path / "s"))
    study_feed.read()
    study_feed.read()
    assert study_feed.problem == ""
    assert study_feed.history == undisturbed.history
    assert study_feed.history.head == undisturbed.history.head


def test_nothing_is_drawn_again_while_nothing_is_new(tmp_path):
    write_study(tmp_path, "s", RECORDS)
    study_feed = Feed(Location(tmp_path / "s"))
    study_feed.read()
    study_feed.draw(study_feed.state())
    first = study_feed.view()
    study_feed.read()
    assert not study_feed.report.is_due()
    assert study_feed.view().versions == first.versions == (1, 1, 1)
    assert study_feed.resting


def test_of_a_damaged_ledger_what_came_before_is_shown(tmp_path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])
    with (tmp_path / "s" / "ledger" / "000001.jsonl").open("a") as file:
        file.write("nonsense\n")
    study_feed = Feed(Location(tmp_path / "s"))
    for _ in range(2):
        study_feed.read()
        view = study_feed.view()
        assert "the ledger is damaged" in view.now
    assert "headless against vanilla" in view.answer


@pytest.mark.parametrize("others", [RECORDS, RECORDS[:MIDDLE]], ids=["longer", "shorter"])
def test_a_study_begun_anew_in_the_same_folder_takes_the_place_of_the_one_before(tmp_path, monkeypatch, others):
    monkeypatch.setattr(feed, "AGAIN_SECONDS", 0.0)
    whole = [study(name="before"), *RECORDS[1:-20]]
    write_study(tmp_path, "s", whole)
    study_feed = Feed(Location(tmp_path / "s"))
    study_feed.read()
    shutil.rmtree(tmp_path / "s")
    write_study(tmp_path, "s", others)
    study_feed.read()
    assert study_feed.problem
    study_feed.read()
    assert not study_feed.problem
    assert study_feed.history.study == History.of(others).study
    assert len(study_feed.history.trials) == len(History.of(others).trials)


def running_trial(number, reports, seconds_each=10.0):
    begin = trial("confirm", "headless", number, amount=1000.0, time=0.0)
    yield begin
    for report in range(1, reports + 1):
        yield measure(
            begin, report, 0.1 * report, time=seconds_each * report, spent=spent(tokens=100.0 * report, steps=report)
        )


def test_time_left_is_the_rest_at_the_pace_of_the_last_reports():
    history = History.of([study(seeds=2, confirm_amount=1000.0, search_budget=0.0), *running_trial(1, 4)])
    own = history.trials["confirm-headless-001"]
    assert per_second(own, "tokens") == pytest.approx(10.0)
    assert Pace(history).trial_seconds_left(own) == pytest.approx(60.0)
    # Two arms of two runs of 1000 tokens, of which 400 are spent, at 10 a second.
    assert Pace(history).study_left() == (pytest.approx(3600 / 10), False)
    shown = now_of(history, 40.0)
    assert "about 6.0 min left at this pace" in shown.said
    assert (shown.running[0].left, shown.running[0].pace) == ("60 s", "10")


def test_before_two_reports_no_time_is_told():
    history = History.of([study(seeds=2, search_budget=0.0), *running_trial(1, 1)])
    assert Pace(history).trial_seconds_left(history.trials["confirm-headless-001"]) is None
    assert Pace(history).study_left() is None
    assert not [said for said in now_of(history, 40.0).said if "left" in said]


@pytest.mark.slow
def test_the_command_says_its_address_and_ends_in_order(tmp_path):
    write_study(tmp_path, "s", RECORDS[:1])
    command = [sys.executable, "-m", "orchestrator.cli", "serve", str(tmp_path / "s"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", address)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address[:-1] + ("a" if address[-1] != "a" else "b"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_browser_follows_a_study(tmp_path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])

    async def ask():
        async with served(tmp_path) as server:
            await asyncio.to_thread(follow, f"{server.base}/studies/s/?token={TOKEN}")

    def follow(url):
        with opened(url) as found:
            found.page.locator("#state", has_text="live").wait_for()
            write_ledger(tmp_path / "s", [event("<b>something</b> is new", time.time())])
            found.page.locator("#now", has_text="<b>something</b> is new").wait_for()
            assert found.violations() == []
            write_ledger(tmp_path / "s", RECORDS[MIDDLE:])
            found.page.locator("#report strong", has_text="headless is ahead").wait_for()
            found.page.locator("#report .when", has_text="finished").wait_for()
            assert found.violations() == []
            assert found.said == []
            assert found.overflow == 0

    asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "studies/s/"])
def test_a_page_whose_server_was_started_anew_says_so(tmp_path, path):
    write_study(tmp_path, "s", RECORDS[:MIDDLE])

    async def ask():
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def follow(url):
            try:
                with opened(url) as found:
                    found.page.locator("#state", has_text="live").wait_for()
                    loop.call_soon_threadsafe(ended.set)
                    found.page.locator("#state", has_text="open the address that it printed").wait_for()
            finally:  # without a browser too
                loop.call_soon_threadsafe(ended.set)

        async with served(tmp_path) as server:
            page = asyncio.create_task(asyncio.to_thread(follow, f"{server.base}/{path}?token={TOKEN}"))
            await ended.wait()
        async with served(tmp_path, port=int(server.base.rpartition(":")[2]), known="another"):
            await page

    asyncio.run(ask())
