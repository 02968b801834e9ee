"""Commands of ``h2h`` in this process."""

from __future__ import annotations

import contextlib
import io

from orchestrator.cli import main


def run_command(*words: str) -> tuple[int, str]:
    """A command's exit code and what it wrote to its error stream, which is a message: short, and for a terminal."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(list(words))
        except SystemExit as end:  # argparse's
            code = int(end.code or 0)
    text = errors.getvalue()
    assert all(character.isprintable() or character in "\n\t" for character in text), repr(text)
    assert len(text) < 10_000, "a message, not the file"
    text.encode()
    output.getvalue().encode()
    return code, text
