"""A cluster without Ray: nodes, the trials' processes on them, and what Tune does for the executor.

The study's real searcher and scheduler (``orchestrator.execution.tune_run``) are asked and told as Tune's controller
does it: one event at a time, each answered before the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

import trainables.trial
from orchestrator.execution.tune_run import _PhaseScheduler, _PhaseSearcher
from tests.helpers.tune import tune_controller
from tests.simulation.world import Condition, Process, World
from trainables.errors import InputError
from trainables.trial import Lost, TrialFailure

if TYPE_CHECKING:
    from orchestrator.execution.executor import Executor
    from orchestrator.ledger.requests import Inbox

POLL_SECONDS = 1.0
LOOK_SECONDS = 5.0
NODES = ("node-1", "node-2", "node-3")


class Worker:
    """A trial's process, and Tune's side of it."""

    def __init__(self, driver: Tune, config: dict[str, Any]) -> None:
        self.driver, self.config, self.error_file = driver, config, ""
        self.status, self.failure = TuneTrial.PENDING, TrialFailure("")
        self.process: Process | None = None
        self.answered, self.goes_on = Condition(), 0  # reports that may be under way
        self.placement_group_factory = None

    @property
    def live(self) -> bool:
        return self.status in (TuneTrial.PENDING, TuneTrial.RUNNING)

    def place(self, node: str) -> None:
        world = World.present
        name = f"{self.config['trial']['trial']} ({self.config['attempt']}) on {node}"
        self.status, self.goes_on = TuneTrial.RUNNING, self.driver.ahead
        self.process = world.process(name, node)
        self.process.worker = self
        world.workers.append(self.process)
        world.note(f"{name} begins")
        self.process.start(self._work)

    def _work(self) -> None:
        world = World.present
        world.sleep(world.chance.uniform(0.5, 5.0))
        again = True
        while again:
            try:
                again = False
                trainables.trial.trainable(self.config)
                self.tell("done", None)
            except TrialFailure as failure:
                self.tell("error", failure)
            except _StartedAgainError:
                again = True

    def report(self, report: dict[str, Any]) -> None:
        """As ``tune.report``: waits until so many reports before it were read."""
        world = World.present
        if world.restarting > world.chance.random():
            world.note(f"the workers of {self.process.name} are started again")
            raise _StartedAgainError
        self.answered.wait_for(lambda: self.goes_on > 0)
        self.goes_on -= 1
        self.tell("report", report)
        if world.doubling > world.chance.random() and '"running"' in report["report"]:
            self.tell("report", report)
            self.goes_on -= 1
        if self.driver.ahead == 1:
            self.answered.wait_for(lambda: self.goes_on > 0)

    def tell(self, kind: str, content: Any) -> None:
        """Send a message, which comes after those before it, unless the driver has ended by then."""
        world = World.present
        self.driver.comes_last = max(world.now + world.chance.uniform(0.0, 0.3), self.driver.comes_last)
        world.at(self.driver.comes_last, lambda: self.driver.receive(self, kind, content))

    def lost(self, after: float) -> None:
        """The driver is told that the process is gone."""
        gone = Lost("its process ended")
        World.present.later(after, lambda: self.driver.receive(self, "error", gone))


class _StartedAgainError(Exception):
    """Ray Train starts the trial's workers again."""


class Tune:
    """In the place of ``run_with_tune``."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.world = executor, World.present
        self.ahead = self.world.ahead
        self.process = self.world.current.process
        self.messages: deque[tuple[Worker, str, Any]] = deque()
        self.arrived = Condition()
        self.comes_last = 0.0
        self.trials: list[Worker] = []
        cache = SimpleNamespace(increase_max=lambda *_, **__: None)
        controller = tune_controller(_actor_cache=cache, _reuse_actors=False, stop_trial=self.stop_trial)
        self._tune_controller = controller._tune_controller

    def receive(self, trial: Worker, kind: str, content: Any) -> None:
        if self.process.alive:
            self.messages.append((trial, kind, content))
            self.arrived.notify_all()

    def get_trials(self) -> list[Worker]:
        return self.trials

    def stop_trial(self, trial: Worker) -> None:
        if trial.status == TuneTrial.RUNNING:
            try:
                self.scheduler.on_trial_complete(self, trial, {})
            except InputError as error:
                self._fail(trial, TrialFailure(str(error)))
                return
        trial.status = TuneTrial.TERMINATED
        self._end(trial)

    def _fail(self, trial: Worker, failure: TrialFailure) -> None:
        trial.failure = failure
        self.scheduler.on_trial_error(self, trial)
        trial.status = TuneTrial.ERROR
        self._end(trial)

    def _end(self, trial: Worker) -> None:
        if trial.process is not None:
            process = trial.process
            self.world.later(self.world.chance.uniform(0.0, 2.0), process.kill)

    def run(self) -> None:
        executor, world = self.executor, self.world
        searcher, self.scheduler = _PhaseSearcher(executor), _PhaseScheduler(executor)
        scheduler = self.scheduler
        try:
            while True:
                waits = False
                scheduler.look_after()
                if sum(trial.live for trial in self.trials) < executor.concurrent_trials:
                    config = searcher.suggest("one")
                    if config == Searcher.FINISHED and not any(trial.live for trial in self.trials):
                        return
                    if isinstance(config, dict):
                        self.trials = [trial for trial in self.trials if trial.live]
                        self.trials.append(Worker(self, config))
                        scheduler.on_trial_add(self, self.trials[-1])
                        waits = True
                chosen = scheduler.choose_trial_to_run(self)
                nodes = [node for node in NODES if node not in world.gone and node not in world.leaving]
                if chosen is not None and chosen.live and nodes:
                    chosen.place(world.chance.choice(nodes))
                if not waits:
                    self.arrived.wait_for(lambda: self.messages, POLL_SECONDS)
                if self.messages:
                    self._take_in(*self.messages.popleft())
        finally:
            for trial in self.trials:
                if trial.live:
                    self._end(trial)

    def _take_in(self, trial: Worker, kind: str, content: Any) -> None:
        if not trial.live:
            return
        if kind == "report":
            if self.scheduler.on_trial_result(self, trial, content) == "STOP":
                self.stop_trial(trial)
            elif trial.live:
                trial.goes_on += 1
                trial.answered.notify_all()
        elif kind == "done":
            self.stop_trial(trial)
        else:
            self._fail(trial, content)


def report(content: dict[str, Any]) -> None:
    """In the place of ``tune.report``."""
    World.present.current.process.worker.report(content)


class Signal:
    """In the place of Ray's handle of the actor that tells trials to stop."""

    def __init__(self, name: str) -> None:
        self.request = SimpleNamespace(remote=lambda: World.present.stops.add(name))


@contextmanager
def watching(executor: Executor, inbox: Inbox) -> Iterator[None]:
    """In the place of what watches signals and requests: the present driver can be interrupted from now on."""
    world, process, watched = World.present, World.present.current.process, True
    process.executor = executor

    def look() -> None:
        while watched:
            inbox.look()
            world.sleep(LOOK_SECONDS)

    if world.asking:
        process.start(look)
    try:
        yield
    finally:
        watched = False
