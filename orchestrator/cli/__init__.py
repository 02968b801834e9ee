"""The command line, ``h2h``. Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted.

Each command imports what it needs: reading a study takes neither torch nor Ray.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from orchestrator.cli import looking, running
from orchestrator.cli.arguments import make_parser
from orchestrator.cli.command import EXIT_INPUT, EXIT_INTERRUPTED, Command
from trainables.errors import InputError

__all__ = ["looking", "main", "running"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = make_parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return EXIT_INPUT
    options = parser.parse_args(words)
    command: Command = options.command
    try:
        return command(options)
    except InputError as error:
        print(f"h2h: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("h2h: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # what reads the output has had enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
