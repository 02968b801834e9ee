"""The server: pages of a storage's studies, and server-sent events that keep them up to date.

It answers on the loopback interface unless told otherwise, only to who knows its token, and has nothing but ``GET``:
whoever reads it can change nothing. The token is in the address that is printed, and then in a cookie, as Jupyter has
it.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from orchestrator.config.folder import STUDY_FILE
from orchestrator.reporting.page.page import policy, render, source
from orchestrator.reporting.serve.feed import Feed, View
from orchestrator.reporting.studies import StudyLine
from trainables.errors import InputError, refusal
from trainables.storage import Location

SECONDS, REMOTE_SECONDS, RESTING_SECONDS = 1.0, 5.0, 10.0  # between two looks at a ledger
INDEX_SECONDS = 5.0
ALIVE_SECONDS = 15.0  # after which a reader that nothing new came for is told so
TOKEN_BYTES = 24

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Watched:
    """A feed, the readers of its page, and the one task that reads for all of them."""

    def __init__(self, folder: Location) -> None:
        self.feed = Feed(folder)
        self.readers = 0
        self.view: View | None = None
        self.changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[None] | None = None

    async def look(self) -> View:
        """Read what is new; the report is drawn beside it, when it is time."""
        async with self._turn:
            await asyncio.to_thread(self.feed.read)
        if self.feed.report.is_due() and (self._drawing is None or self._drawing.done()):
            self._drawing = asyncio.create_task(self._draw())
        return await self._show()

    async def whole(self) -> View:
        """With a report, however old."""
        view = await self.look()
        if self._drawing is not None and not view.versions[-1]:
            await self._drawing
        return self.view or view

    async def _draw(self) -> None:
        async with self._turn:
            state = await asyncio.to_thread(self.feed.state)
        await asyncio.to_thread(self.feed.draw, state)
        await self._show()

    async def _show(self) -> View:
        async with self._turn:
            view = await asyncio.to_thread(self.feed.view)
        if self.view is None or view.versions != self.view.versions:
            self.view = view
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()
        return view

    async def line(self) -> StudyLine:
        async with self._turn:
            await asyncio.to_thread(self.feed.read)
            return self.feed.line()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """While somebody reads, the ledger is followed."""
        self.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self.readers -= 1

    async def _follow(self) -> None:
        pause = SECONDS if self.feed.folder.local else REMOTE_SECONDS
        while self.readers:
            await self.look()
            await asyncio.sleep(RESTING_SECONDS if self.feed.resting else pause)


class Server:
    """The studies of a storage, by their folders' names."""

    def __init__(self, storage: Location, token: str) -> None:
        self.storage, self._token = storage, token
        self._studies: dict[str, _Watched] = {}
        self._stopping = asyncio.Event()

    def app(self) -> web.Application:
        """All that can be asked."""
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/", self._index)
        app.router.add_get("/events", self._index_events)
        app.router.add_get("/studies/{name}/", self._study)
        app.router.add_get("/studies/{name}/report", self._report)
        app.router.add_get("/studies/{name}/events", self._events)
        app.on_shutdown.append(self._stop)
        return app

    async def _stop(self, _: web.Application) -> None:
        self._stopping.set()
        for watched in self._studies.values():
            watched.changed.set()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Lets those in who bring the token. One in an address becomes a cookie, and is seen there no more."""
        cookie = f"h2h-{request.url.port}"  # cookies of one host know no ports
        given = request.query.get("token")
        known = given if given is not None else request.cookies.get(cookie, "")
        if not hmac.compare_digest(known.encode(errors="replace"), self._token.encode()):
            said = "A token is needed: open the address that h2h serve printed.\n"
            return web.Response(status=403, text=said, headers=_HEADERS)
        if given is not None:
            to = request.url.without_query_params("token")
            moved = web.Response(status=303, headers=_HEADERS | {"Location": to.raw_path_qs})
            moved.set_cookie(cookie, self._token, httponly=True, samesite="Lax", path="/")
            return moved
        try:
            return await handler(request)
        except InputError as error:
            return web.Response(status=404, text=f"{error}\n", headers=_HEADERS)
        except OSError as error:  # the storage does not answer
            return web.Response(status=503, text=f"{refusal(error)}\n", headers=_HEADERS)

    async def _named(self, request: web.Request) -> _Watched:
        name = request.match_info["name"]
        if name not in self._studies:
            if name not in await asyncio.to_thread(self._names):
                raise InputError(f"there is no study called '{name}' in {self.storage}")
            self._studies[name] = _Watched(self.storage / name)
        return self._studies[name]

    def _names(self) -> list[str]:
        """Folders that hold a study."""
        return [name for name in self.storage.names() if (self.storage / name / STUDY_FILE).exists()]

    async def _rows(self) -> str:
        names = await asyncio.to_thread(self._names)
        for name in names:
            self._studies.setdefault(name, _Watched(self.storage / name))
        rows = [await self._studies[name].line() for name in names]
        return render("rows.html", rows=sorted(rows, key=lambda row: -(row.updated or 0.0)), now=time.time())

    async def _index(self, _: web.Request) -> web.Response:
        return _page("index.html", "index.js", rows=await self._rows(), storage=str(self.storage))

    async def _index_events(self, request: web.Request) -> web.StreamResponse:
        async with _events_of(request) as send:
            before = ""
            while not self._stopping.is_set():
                if (rows := await self._rows()) != before:
                    await send("rows", {"html": rows})
                before = rows
                with suppress(TimeoutError):
                    async with asyncio.timeout(INDEX_SECONDS):
                        await self._stopping.wait()
        return send.response

    async def _study(self, request: web.Request) -> web.Response:
        watched = await self._named(request)
        return _page("live.html", "live.js", name=watched.feed.name, view=await watched.whole())

    async def _report(self, request: web.Request) -> web.Response:
        view = await (await self._named(request)).whole()
        return web.Response(text=view.report, content_type="text/html", headers=_HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """What is there at once, then what changes. A slow reader is not waited for: it gets the newest."""
        watched = await self._named(request)
        async with _events_of(request) as send, watched.read():
            seen = (-1, -1, -1)
            while not self._stopping.is_set():
                changed, view = watched.changed, watched.view or await watched.look()
                pieces = zip(("now", "answer", "report"), (view.now, view.answer, ""), view.versions, seen, strict=True)
                for name, html, version, before in pieces:
                    if version and version != before:
                        await send(name, {"version": version, "html": html})
                seen = view.versions
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    await send.alive()
        return send.response


class _Sender:
    """Sends events to one reader."""

    def __init__(self, response: web.StreamResponse) -> None:
        self.response = response

    async def __call__(self, event: str, content: Mapping[str, str | int]) -> None:
        await self.response.write(f"event: {event}\ndata: {json.dumps(content)}\n\n".encode())

    async def alive(self) -> None:
        """Says that there is nothing new; who has gone is noticed so."""
        await self.response.write(b": still here\n\n")


@asynccontextmanager
async def _events_of(request: web.Request) -> AsyncIterator[_Sender]:
    response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionResetError):  # the reader has gone
        yield _Sender(response)


def _page(template: str, live: str, **content: object) -> web.Response:
    own = {"style": source("style.css"), "script": source("page.js"), "live": source(live)}
    headers = _HEADERS | {"Content-Security-Policy": f"{policy(live)}; frame-ancestors 'none'"}
    return web.Response(text=render(template, **own, **content), content_type="text/html", headers=headers)


async def serve(storage: Location, host: str, port: int, say: Callable[[str], None]) -> None:
    """Answer until cancelled; ``say`` is told the address. Raises InputError where the port is taken."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    runner = web.AppRunner(Server(storage, token).app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            where, remedy = "--host", "an address of this machine: 127.0.0.1, or 0.0.0.0 for all it has"
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                where, remedy = "--port", "--port 0 takes a free one"
            raise InputError(
                f"cannot listen on {host}:{port}", where=where, why=error.strerror or str(error), remedy=remedy
            ) from error
        say(f"http://{_shown(host)}:{runner.addresses[0][1]}/?token={token}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
