"""A world of its own time: processes, what they wait for, and their ends. All that happens follows from a seed.

One task runs at a time, and goes on until it waits: for a moment of the world's clock, or for another task. Then the
task runs that is due next. Tasks are threads that hand on a baton, as real code is to wait in the middle of what it
does. A process that is killed does nothing any more: whatever its tasks ask of the world raises :class:`KilledError`,
so that what stands in their ``finally`` has no effect either.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import traceback
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar

LONGEST = 20 * 86_400.0
"""Seconds of the world's clock: a history that takes longer does not end."""


class KilledError(BaseException):
    """The process is dead."""


class StuckError(Exception):
    """Nothing is left that could happen, or the history does not end."""


class _Thread:
    """Carries out tasks, one after the other."""

    idle: ClassVar[list[_Thread]] = []

    def __init__(self) -> None:
        self.baton, self.task = threading.Lock(), None
        self.baton.acquire()
        threading.Thread(target=self._work, daemon=True).start()

    @classmethod
    def free(cls) -> _Thread:
        return cls.idle.pop() if cls.idle else cls()

    def _work(self) -> None:
        while True:
            self.baton.acquire()
            self._carry_out(self.task)

    def _carry_out(self, task: Task) -> None:
        with _Ending(task):
            task.process.require_alive()
            task.result = task.work()
        self.task = None  # else it would keep a world while it is idle
        self.idle.append(self)
        task.world.end(task)


class _Ending:
    """Keeps how a task ended. What is no error of the study's own ends the history."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        task = self._task
        task.error = KilledError() if isinstance(error, KilledError) else error
        if error is not None and not isinstance(error, (KilledError, *task.may_raise)):
            task.world.crashes.append(f"{task}: {''.join(traceback.format_exception(error))}")
        while error is not None:  # what closes with a frame does so now, as this task, and not whenever it is found
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        return True


class Task:
    """What a process does on one of its threads."""

    def __init__(self, world: World, process: Process, work: Callable[[], Any], may_raise: tuple[type, ...]) -> None:
        self.world, self.process, self.work, self.may_raise = world, process, work, may_raise
        self.turn = 0  # which of its waits is the present one: what was to end another wakes nobody
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.thrown: BaseException | None = None  # by a signal handler
        self.ended = Condition(world)

    def __str__(self) -> str:
        return self.process.name

    def join(self, timeout: float | None = None) -> None:
        self.ended.wait_for(lambda: self.done, timeout)


class Process:
    """A process on a machine."""

    def __init__(self, world: World, name: str, machine: str) -> None:
        self.world, self.name, self.machine, self.number = world, name, machine, next(world.numbers)
        self.alive, self.paused = True, False
        self.tasks: list[Task] = []
        self.held: list[tuple[Task, int]] = []  # what came to its time while it was paused

    def require_alive(self) -> None:
        if not self.alive:
            raise KilledError

    def start(self, work: Callable[[], Any], *may_raise: type) -> Task:
        """A thread."""
        task = Task(self.world, self, work, may_raise)
        self.tasks.append(task)
        task.thread = _Thread.free()
        task.thread.task = task
        self.world.wake(task)
        return task

    def kill(self) -> None:
        if self.alive:
            self.world.note(f"{self.name} is killed")
        self.alive, self.paused = False, False
        for task in self.tasks:
            if not task.done and task is not self.world.current:
                self.world.wake(task)

    def pause(self) -> None:
        """As SIGSTOP does."""
        self.paused = self.alive

    def go_on(self) -> None:
        self.paused = False
        for task, turn in self.held:
            self.world.wake(task, turn)
        self.held.clear()

    @property
    def busy(self) -> bool:
        return any(not task.done for task in self.tasks)


class World:
    """Time, and all that waits for a moment of it."""

    present: World  # the one of which what runs now is

    def __init__(self, seed: int | str) -> None:
        World.present = self
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.epoch = 1.7e9  # the wall clock's seconds at 0
        self.processes: list[Process] = []
        self.crashes: list[str] = []
        self.story: list[str] = []
        self.numbers = itertools.count(100)
        self._queue: list[tuple[float, int, Task | None, int, Callable[[], None] | None]] = []
        self._order = itertools.count()
        harness = self.process("the harness", "outside")
        self._main = Task(self, harness, lambda: None, ())
        self._main.thread = SimpleNamespace(baton=threading.Lock())
        self._main.thread.baton.acquire()
        self.current = self._main
        self._stuck = ""

    def note(self, what: str) -> None:
        self.story.append(f"{self.now:10.2f} {what}")

    def process(self, name: str, machine: str) -> Process:
        process = Process(self, name, machine)
        self.processes.append(process)
        return process

    @property
    def time(self) -> float:
        """By the wall clock, which may jump."""
        return self.epoch + self.now

    def at(self, moment: float, happens: Callable[[], None]) -> None:
        """Let something happen that waits for nothing."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), None, 0, happens))

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        self.at(self.now + seconds, happens)

    def wake(self, task: Task, turn: int | None = None, after: float = 0.0) -> None:
        """End a task's wait."""
        turn = task.turn if turn is None else turn
        heapq.heappush(self._queue, (self.now + after, next(self._order), task, turn, None))

    def sleep(self, seconds: float) -> None:
        task = self.current
        task.process.require_alive()
        task.turn += 1
        self.wake(task, after=max(0.0, seconds))
        self.wait()

    def wait(self) -> None:
        """Until the present task is woken."""
        task = self.current
        task.process.require_alive()
        following = self._next()
        if following is not task:
            following.thread.baton.release()
            task.thread.baton.acquire()
        self.current = task
        task.turn += 1
        if task is self._main and self._stuck:
            raise StuckError(self._stuck)
        task.process.require_alive()
        if task.thrown is not None:
            thrown, task.thrown = task.thrown, None
            raise thrown

    def end(self, task: Task) -> None:
        """A task is done: hand on the baton."""
        task.done = True
        task.ended.notify_all()
        self._next().thread.baton.release()

    def _next(self) -> Task:
        while self._queue:
            moment, _, task, turn, happens = heapq.heappop(self._queue)
            self.now = max(self.now, moment)
            if self.now > LONGEST and not self._stuck:
                self._stuck = "the history does not end"
                return self._main
            if happens is not None:
                happens()
            elif task is not None and not task.done and turn == task.turn:
                if not task.process.paused:
                    self.current = task
                    return task
                task.process.held.append((task, turn))
        self._stuck = self._stuck or "all wait for each other"
        return self._main

    def close(self) -> None:
        """Kill all, and wait until all threads are free."""
        for process in self.processes[1:]:
            process.kill()
        while any(process.busy for process in self.processes[1:]):
            self.sleep(0.0)


class Condition:
    """In the place of ``threading.Condition``. One task runs at a time, so nothing needs to be locked."""

    def __init__(self, world: World | None = None) -> None:
        self._world = world or World.present
        self._waiting: list[tuple[Task, int]] = []

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait_for(self, happens: Callable[[], Any], timeout: float | None = None) -> Any:
        world, task = self._world, self._world.current
        deadline = None if timeout is None else world.now + timeout
        while not (found := happens()):
            task.turn += 1
            if deadline is not None:
                if world.now >= deadline:
                    return found
                world.wake(task, after=deadline - world.now)
            self._waiting.append((task, task.turn))
            world.wait()
        return found

    def notify_all(self) -> None:
        for task, turn in self._waiting:
            self._world.wake(task, turn)
        self._waiting.clear()


class Thread:
    """In the place of ``threading.Thread``: a task of the process that makes it."""

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target = target

    def start(self) -> None:
        self._task = World.present.current.process.start(self._target)

    def join(self) -> None:
        self._task.join()


class Pool:
    """In the place of ``ThreadPoolExecutor(max_workers=1)``."""

    def __init__(self, **_: object) -> None:
        self._last: Written | None = None

    def submit(self, work: Callable[[], Any]) -> Written:
        before, self._last = self._last, Written(work)
        if before is not None:
            before.wait()
        self._last.start()
        return self._last

    def shutdown(self) -> None:
        if self._last is not None:
            self._last.wait()


class Threads:
    """In the place of a ``ThreadPoolExecutor`` whose threads are enough."""

    def __init__(self, **_: object) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Written:
        one = Written(work)
        one.start()
        return one


class Written:
    """In the place of a ``Future``."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def start(self) -> None:
        self._task = World.present.current.process.start(self._work, Exception)

    def wait(self) -> None:
        self._task.join()

    def done(self) -> bool:
        return self._task.done

    def result(self) -> Any:
        self.wait()
        if self._task.error is not None:
            raise self._task.error
        return self._task.result


class _Clock:
    """In the place of the module ``time``."""

    @staticmethod
    def time() -> float:
        return World.present.time

    @staticmethod
    def monotonic() -> float:
        return World.present.now

    perf_counter = monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        World.present.sleep(seconds)

    @staticmethod
    def strftime(*_: object) -> str:
        return "some day"

    @staticmethod
    def localtime(*_: object) -> None: ...


CLOCK = _Clock()
THREADING = SimpleNamespace(Condition=Condition, Thread=Thread, Event=threading.Event)
