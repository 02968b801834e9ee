"""The report in Chromium: hostile text does nothing, it fits a phone, and it says the numbers without scripts."""

import pytest

from orchestrator.analysis.report import report_of
from orchestrator.ledger.history import History
from orchestrator.reporting.page.page import report_page
from tests.helpers.browser import opened
from tests.helpers.demonstration import with_branches
from tests.orchestrator.reporting.test_report import hostile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, records in (("hostile", hostile()), ("whole", with_branches())):
        (folder / f"{name}.html").write_text(report_page([report_of(History.of(list(records)))]))
    return folder


@pytest.mark.parametrize("name", ["hostile", "whole"])
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_it_says_nothing_asks_nothing_and_fits(folder, name, width):
    url = f"file://{folder}/{name}.html"
    with opened(url, width, dark=width == 800) as found:
        for mark in found.page.locator("svg [data-tip]").all()[:3]:
            mark.hover(force=True)
        assert found.said == []
        assert found.requests == [url]
        assert found.overflow == 0


@pytest.mark.parametrize("name", ["hostile", "whole"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_it(folder, name, width, dark):
    with opened(f"file://{folder}/{name}.html", width, dark=dark) as found:
        assert found.violations() == []


def test_what_nobody_could_read_is_found(tmp_path):
    (tmp_path / "pale.html").write_text("<!doctype html><title>x</title><p style='color: #eee; background: #fff'>pale")
    with opened(f"file://{tmp_path}/pale.html") as found:
        assert any(one.startswith("color-contrast") for one in found.violations())


def test_a_mark_says_what_it_stands_for(folder):
    with opened(f"file://{folder}/whole.html") as found:
        mark = found.page.locator("svg [data-tip*='n = 6']").first
        mark.hover(force=True)
        assert found.page.locator(".tip").inner_text() == mark.get_attribute("data-tip")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_unit_is_chosen_by_keyboard_with_or_without_scripts(folder, scripts):
    with opened(f"file://{folder}/whole.html", scripts=scripts) as found:
        curves = found.page.locator(".chosen > figure")
        assert [figure.is_visible() for figure in curves.all()] == [True, False, False]
        found.page.locator(".choice input").first.focus()
        found.page.keyboard.press("ArrowRight")
        assert [figure.is_visible() for figure in curves.all()] == [False, True, False]
        details = found.page.locator("figure details").first
        details.locator("summary").press("Enter")
        assert details.locator("table").is_visible()
