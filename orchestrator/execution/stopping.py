"""How a study is stopped in order by another thread than its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.execution.executor import Executor


def asking_to_stop() -> list[signal.Signals]:
    """The signals that ask this process to stop: Ctrl-C, SIGTERM, SIGUSR1, by which batch systems say that a job's time
    is over, and SIGHUP of a terminal that is closed, unless the process is to outlive that (``nohup``)."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *([] if outlives else [signal.SIGHUP])]


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Inside, what asks to stop raises KeyboardInterrupt, so that nothing that was begun is left behind."""
    with stop_signals_go_to(signal.default_int_handler):
        yield


@contextmanager
def stop_signals_go_to(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, this handles what asks to stop. Only the main thread gets signals; in any other nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in asking_to_stop()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stopping:
    """The wish that a study stops in order: its trials are saved while some run, else it ends at its next step."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._executor: Executor | None = None

    def ask(self) -> None:
        """From any thread."""
        self._asked.set()
        if self._executor is not None:
            self._executor.interrupt()

    def check(self) -> None:
        """Raises KeyboardInterrupt where it was asked for, and no executor has trials to save first."""
        if self._asked.is_set() and (self._executor is None or not self._executor.busy):
            raise KeyboardInterrupt

    @contextmanager
    def brought_about_by(self, executor: Executor) -> Iterator[None]:
        """While inside, trials may run."""
        self._executor = executor
        try:
            if self._asked.is_set():
                executor.interrupt()
            yield
        finally:
            self._executor = None
