"""A page as a browser shows it: a Chromium that is on this machine, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Opened:
    page: Any
    said: list[str] = field(default_factory=list)
    """Dialogs, errors and messages of the console."""
    requests: list[str] = field(default_factory=list)

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        root = "document.documentElement"
        return int(self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))

    def violations(self) -> list[str]:
        """What keeps people from using the page, by axe-core: serious and critical findings, with all details open."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright")
        self.page.evaluate("document.querySelectorAll('details').forEach(own => own.open = true)")
        found = axe.Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]


@contextmanager
def opened(url: str, width: int = 1280, *, scripts: bool = True, dark: bool = False) -> Iterator[Opened]:
    """The page at an address; skips where there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
        )
        found = Opened(context.new_page())
        found.page.set_default_timeout(60_000)
        found.page.on("dialog", lambda dialog: (found.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(url)
        yield found
        browser.close()
