"""What the pages tell people to type: every target of make is there, and every line of ``h2h`` is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from orchestrator.cli import looking, make_parser, running  # noqa: F401 (they make the commands)
from tests.helpers.repository import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def shell_lines(page: Path) -> list[str]:
    """Lines of the page's blocks of shell, joined where they are continued."""
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", page.read_text(), re.S)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def test_targets_of_make() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = {word for page in PAGES for word in re.findall(r"^make ([a-z-]+)", "\n".join(shell_lines(page)), re.M)}
    assert {"demo", "test", "test-all", "lint", "docs"} <= targets
    assert {"demo", "test"} <= named <= targets


def commands(line: str) -> list[list[str]]:
    """The words of a line's commands, without what their output goes to."""
    found: list[list[str]] = [[]]
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for word in words:
        if word in ("&&", "||", ";", "|", ">"):
            found.append([])
        else:
            found[-1].append(word)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands(page: Path) -> None:
    for line in shell_lines(page):
        for first, *words in filter(None, commands(line)):
            if first == "h2h":
                assert make_parser().parse_args(words).command  # else it exits


def test_the_quick_start_is_the_makefiles() -> None:
    """``make demo`` runs the study that the pages say it runs."""
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(r"^demo:.*\n\t\$\(BIN\)/h2h run demo --set name=demo-", makefile, re.M)
    for page in ("README.md", "docs/quickstart.md"):
        assert "demo-DATE-TIME" in (REPOSITORY / page).read_text()
