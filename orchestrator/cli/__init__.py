"""The command line, ``h2h``. Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted.

Each command imports what it needs: reading a study takes neither torch nor Ray.
"""

import argparse
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.cli import looking, running, studies, upkeep
from orchestrator.cli.command import COMMANDS, EXIT_INPUT, EXIT_INTERRUPTED, Command, Voice
from orchestrator.cli.output import Refusal, print_json
from orchestrator.config.trackers import TRACKERS
from orchestrator.execution.stopping import stopped_in_order
from trainables.errors import InputError, nearest, refusal, storage_errors

__all__ = ["looking", "main", "running", "studies", "upkeep"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _open_streams()
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what a word may become
        from orchestrator.cli.completion import complete

        complete(parser)
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return EXIT_INPUT
    options, unknown = parser.parse_known_args(words)
    Voice.quiet, Voice.verbose = options.quiet, options.verbose
    if options.verbose:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    command: Command = options.command
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # an encoding may lack ±: it is no reason to say nothing
    try:
        if unknown and words[0].startswith("-"):
            raise InputError(f"'{unknown[0]}' stands before the command", remedy=f"h2h COMMAND ... {unknown[0]}")
        if unknown:
            known = [flag for commands, flag, _ in _OPTIONS if words[0] in commands.split() and flag.startswith("-")]
            is_setting = "--set" in known and "=" in unknown[0] and not unknown[0].startswith("-")
            remedy = f"--set {unknown[0]}" if is_setting else nearest(unknown[0], known)
            raise InputError(f"{words[0]} knows no '{unknown[0]}'", remedy=remedy)
        with stopped_in_order():
            code = command(options)
        sys.stdout.flush()  # while a failure can be told
    except InputError as error:
        code = _refuse(error, words)
    except KeyboardInterrupt:
        print("h2h: interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
        if "--json" in words:
            print_json(Refusal(code=code, what="interrupted"))
    except BrokenPipeError:  # what reads the output has had enough, as `head` does
        code = 0
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):  # as which rich tells the same
            raise
        code = 0
    except storage_errors() as error:
        code = _refuse(refusal(error), words)
    try:
        sys.stdout.flush()
    except OSError:  # at its end Python would try again, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _open_streams() -> None:
    """Where standard input, output or errors were closed: to nowhere. A file that this process opens would take such a
    number, and what is written to standard errors would go into the file."""
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_WRONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)  # the lowest that is free: the one that was closed
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _refuse(error: InputError, words: Sequence[str]) -> int:
    """Tell a user's mistake; the exit code."""
    if Voice.verbose:
        traceback.print_exception(error)
    print(f"h2h: {error}", file=sys.stderr)
    if "--json" in words:
        with suppress(OSError):  # it is the output that cannot be written
            print_json(Refusal.of(error, EXIT_INPUT))
    return EXIT_INPUT


class _Parser(argparse.ArgumentParser):
    """Names the nearest command of a misspelt one."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument COMMAND: invalid choice: "):
            given = message.split("'")[1] if "'" in message else ""
            message = f"there is no command '{given}'\n  remedy: {nearest(given, COMMANDS)}"
        elif found := re.fullmatch(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            flag, given, valid = found.groups()
            message = f"{flag} cannot be '{given}'\n  remedy: {nearest(given, re.findall('[a-z]+', valid))}"
        if "--json" in sys.argv:
            print_json(Refusal(code=EXIT_INPUT, what=message))
        self.exit(EXIT_INPUT, f"h2h: {message}\n{self.format_usage()}")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"headtohead {version('headtohead')}")
        except PackageNotFoundError:
            print("headtohead, not installed as a package")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """A parser that knows every command; each sets its function as ``command``."""
    parser = _Parser(prog="h2h", description="Which language-model pretraining objective wins on your budget?")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in sorted(COMMANDS, key=_IN_ORDER.index):
        command, summary = COMMANDS[name]
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(command=command, overrides=[])
        for words, flag, settings in _OPTIONS:
            if name in words.split():
                sub.add_argument(flag, **settings)
    return parser


def _option(commands: str, flag: str, help: str, **settings: Any) -> tuple[str, str, dict[str, Any]]:
    return commands, flag, {"help": help, **settings}


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no speed: --replay 60 is sixty times as fast as it was")
    return speed


def _items(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of examples: 1 at least")
    return int(text)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= LAST_PORT):
        raise argparse.ArgumentTypeError(f"'{text}' is no port: a number from 0 to {LAST_PORT}; 0 takes a free one")
    return int(text)


LAST_PORT = 65535

_TRAINING = "run resume extend"
_ON_RAY = f"plan prepare {_TRAINING}"
_READING = f"corpus watch show export submit evaluate clean {_ON_RAY}"
_JSON = f"{_READING} compare enqueue list report serve track verify jobs doctor init"
_EVERY = " ".join(COMMANDS)
_IN_ORDER = (
    *("init", "doctor", "list", "plan", "prepare", "corpus"),
    *("run", "resume", "extend", "enqueue", "submit", "jobs"),
    *("watch", "show", "compare", "report", "serve", "track", "verify"),
    *("evaluate", "export", "clean", "schema", "completion"),
)
"""Before a study, while it runs, what it says, what comes of it."""

_OPTIONS = [
    _option(_READING, "study", "a study file, a shipped study's name (h2h list), or a study's folder", metavar="STUDY"),
    _option("verify enqueue", "study", "a study's folder", metavar="STUDY"),
    _option("enqueue", "arm", "which arm's search", metavar="ARM"),
    _option(
        "enqueue",
        "settings",
        "what to try; what is left out is as in the arm's first configuration",
        metavar="KEY=VALUE",
        nargs="+",
    ),
    _option("verify", "--head", "compare the ledger's head with this one, which was published", metavar="DIGEST"),
    _option("verify", "--data", "read the prepared text too, and hold it against the ledger", action="store_true"),
    _option(
        "verify",
        "--rescore",
        "score K checkpoints, chosen by chance, and all floors again on the held-out text",
        metavar="K",
        type=int,
        default=0,
    ),
    _option("verify", "--seed", "of the choice of checkpoints (default: another each time)", metavar="N", type=int),
    _option(
        f"{_READING} compare",
        "--set",
        "override a key of the study, as confirm.seeds=6; the value is YAML; may be repeated",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
    ),
    _option(
        "evaluate",
        "--tasks",
        "a suite, or tasks: shipped ones by name, your own by path",
        metavar="TASK",
        nargs="+",
        required=True,
    ),
    _option("evaluate", "--data", "folder that holds the tasks' files (default: the hub)", metavar="FOLDER"),
    _option("evaluate", "--items", "examples of each task and language (default: 500)", metavar="N", type=_items),
    _option("evaluate", "--languages", "of a model that is no study's (default: all)", metavar="CODE", nargs="+"),
    _option(
        f"{_ON_RAY} evaluate doctor", "--address", "a Ray cluster's address (default: RAY_ADDRESS, else this machine)"
    ),
    _option("submit", "--address", "the job server, as http://127.0.0.1:8265", required=True),
    _option("jobs", "server", "the job server, as http://127.0.0.1:8265", metavar="ADDRESS"),
    _option("jobs", "--follow", "hand on that job's output until it ends", metavar="JOB"),
    _option("jobs", "--stop", "end that job; its trials have some seconds to save themselves", metavar="JOB"),
    _option("run", "--resume", "go on with the study if it has begun, or print its answer", action="store_true"),
    _option(_TRAINING, "--plain", "plain lines instead of the live dashboard", action="store_true"),
    _option("show", "trial", "one of its trials, to be shown whole", metavar="TRIAL", nargs="?"),
    _option("show", "--arm", "of this arm alone"),
    _option("show", "--phase", "of this phase alone", choices=("search", "confirm", "anytime")),
    _option(
        "watch",
        "--replay",
        "show it again from its beginning, SPEED times as fast as it was (default: in a minute)",
        metavar="SPEED",
        nargs="?",
        type=_speed,
        const=0.0,
    ),
    _option("compare", "--methods", "write the paragraph for a paper instead", action="store_true"),
    _option("compare", "--languages", "print the primary yardstick language by language instead", action="store_true"),
    _option("compare report", "studies", "studies' folders, or what names them", metavar="STUDY", nargs="+"),
    _option("report", "--out", "HTML file to write (default: NAME.html)", metavar="FILE"),
    _option("report", "--figures", "also write figures (SVG, PDF, PNG) and tables (LaTeX, Markdown)", metavar="DIR"),
    _option("serve", "storage", "the folder that studies lie in, here or on an object store", metavar="STORAGE"),
    _option("serve", "--host", "address to listen on (default: 127.0.0.1, this machine alone)", default="127.0.0.1"),
    _option("serve", "--port", "port to listen on; 0 takes a free one (default: 8421)", type=_port, default=8421),
    _option("track", "study", "a study's folder, or what names it", metavar="STUDY"),
    _option("track", "--to", "which tracker", choices=TRACKERS, required=True),
    _option(
        "track",
        "--at",
        "folder to write to, or MLflow's tracking address (default: where the tracker's library has it; event files "
        "into the study's folder)",
        metavar="PLACE",
    ),
    _option("track", "--follow", "go on until the study has its answer", action="store_true"),
    _option(
        "list", "storage", "the folder that studies lie in, here or on an object store", metavar="STORAGE", nargs="?"
    ),
    _option("doctor init", "--storage", "where studies are to lie (default: studies)", metavar="STORAGE"),
    _option("doctor", "--no-ray", "do not start Ray, which takes some seconds", dest="ray", action="store_false"),
    _option("clean init", "--yes", "do not ask", action="store_true"),
    _option("init", "files", "files, patterns or folders, each also as LANGUAGE=...", metavar="FILES", nargs="*"),
    _option("init", "--name", "of the study (default: my-study)"),
    _option("init", "--kind", "of model (default: encoder)", choices=("encoder", "decoder")),
    _option("init", "--out", "file to write (default: NAME.yaml)", metavar="FILE"),
    _option("init export", "--force", "write over what is there", action="store_true"),
    _option("completion", "shell", "bash, zsh or fish", choices=("bash", "zsh", "fish")),
    _option("schema", "--of", "what it is of: study, report, trials, ... (default: study)", default="study"),
    _option(
        "plan",
        "--no-calibration",
        "do not measure a step of each arm on this machine, which takes some seconds",
        dest="calibration",
        action="store_false",
    ),
    _option("corpus", "--samples", "sequences shown of each language (default: 2)", metavar="N", type=int, default=2),
    _option("corpus", "--svg", "also write what is shown to FILE, as a picture", metavar="FILE"),
    _option("export", "--to", "folder to write, new or empty", metavar="DIR", required=True),
    _option("export", "--arm", "which arm's model (default: the only one)"),
    _option("export", "--trial", "which trial's (default: the arm's first paired confirmation run)", metavar="NAME"),
    _option("export", "--push-to-hub", "also upload it to the hub, OWNER/NAME; private if new", metavar="REPO"),
    _option("submit", "--no-wait", "return once the job is submitted", action="store_true"),
    _option("submit", "--working-dir", "folder to send along (default: the study file alone)", type=Path),
    _option(_JSON, "--json", "print one JSON document instead (h2h schema --of ...)", action="store_true"),
    _option(_EVERY, "--quiet", "print the result alone, and nothing of what goes on", action="store_true"),
    _option(
        _EVERY, "--verbose", "also what libraries log, and where in the program a refusal is from", action="store_true"
    ),
    _option("submit", "--runtime-env", "Ray runtime environment: YAML text or a YAML file", default=""),
]
"""Which commands take which words."""
