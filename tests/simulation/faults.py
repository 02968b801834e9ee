"""What goes wrong in a history: what, when and for how long follows from its seed. In the end all of it is over."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster import NODES
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.histories import Setting

START = 1000.0
"""When the clock begins."""
HEADS = ("head-1", "head-2")


class Faults:
    """Lets things go wrong in a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.world, self.store = setting, setting.world, setting.world.store  # type: ignore[attr-defined]
        self.kinds: list[str] = []

    def plan(self, chance: random.Random, until: float) -> None:
        """Choose what happens until about then. One kind of fault, or several that meet."""
        kinds: dict[str, Callable[[], None]] = {
            name.removeprefix("_on_"): getattr(self, name) for name in dir(self) if name.startswith("_on_")
        }
        chosen = chance.sample(sorted(kinds), chance.choice((1, 2, 3, 5)))
        last = START
        for kind in chance.choices(chosen, k=chance.choice((1, 2, 3, 4, 6))):
            moment = START + chance.random() * (until - START)
            last = max(last, moment)
            self.kinds.append(kind)
            self.world.at(moment, lambda kind=kind: self._happen(kind, kinds[kind]))
        self.world.at(last + chance.uniform(300.0, 900.0), self._heal)

    def _happen(self, kind: str, fault: Callable[[], None]) -> None:
        self.world.note(f"-- {kind}")
        fault()

    def _heal(self) -> None:
        """All that is still wrong is put right."""
        self.world.note("-- all is well from now on")
        store, world = self.store, self.world
        store.silent.clear()
        store.loses = store.delays = world.doubling = world.restarting = 0.0
        store.full, store.latency = False, 0.02
        world.gone.clear()
        world.leaving.clear()
        for driver in self.setting.drivers:
            driver.go_on()

    def _for(self, seconds: tuple[float, float], change: Callable[[bool], Any]) -> None:
        """Make a change, and take it back after a while."""
        change(True)
        self.world.later(self.world.chance.uniform(*seconds), lambda: change(False))

    def _driver(self) -> Process | None:
        running = [driver for driver in self.setting.drivers if driver.alive]
        return self.world.chance.choice(running) if running else None

    def _workers(self, machine: str | None = None) -> list[Process]:
        return [worker for worker in self.world.workers if worker.alive and machine in (None, worker.machine)]

    def _on_trial_killed(self) -> None:
        if workers := self._workers():
            worker = self.world.chance.choice(workers)
            worker.kill()
            worker.worker.lost(self.world.chance.uniform(0.0, 5.0))

    def _on_trial_frozen(self) -> None:
        """It is taken for dead in the middle of whatever it does, and goes on with that later."""
        if workers := self._workers():
            world = self.world
            worker = world.chance.choice(workers)
            worker.pause()
            world.note(f"{worker.name} is frozen")
            worker.worker.lost(world.chance.uniform(1.0, 20.0))
            world.later(world.chance.uniform(10.0, 120.0), worker.go_on)
            world.later(world.chance.choice([150.0, 900.0]), worker.kill)

    def _on_node_killed(self) -> None:
        self._end_node(self.world.chance.choice(NODES))

    def _end_node(self, node: str) -> None:
        for worker in self._workers(node):
            worker.kill()
            worker.worker.lost(self.world.chance.uniform(0.0, 30.0))
        self._for((1.0, 90.0), lambda on: (self.world.gone.add if on else self.world.gone.discard)(node))

    def _on_node_cut_off(self) -> None:
        """It is taken for dead, and goes on; it may not reach the store either."""
        world, node = self.world, self.world.chance.choice(NODES)
        for worker in self._workers(node):
            worker.worker.lost(world.chance.uniform(1.0, 30.0))
            world.later(world.chance.choice([60.0, 900.0]), worker.kill)
        self._for((60.0, 300.0), lambda on: (world.gone.add if on else world.gone.discard)(node))
        if world.chance.random() < 0.5:
            self._for((5.0, 400.0), lambda on: (self.store.silent.add if on else self.store.silent.discard)(node))

    def _on_node_leaves(self) -> None:
        world, node = self.world, self.world.chance.choice(NODES)
        world.leaving.add(node)

        def end() -> None:
            world.leaving.discard(node)
            self._end_node(node)

        world.later(world.chance.uniform(5.0, 120.0), end)

    def _on_driver_killed(self) -> None:
        if driver := self._driver():
            driver.kill()

    def _on_driver_paused(self) -> None:
        """Another is started meanwhile, maybe elsewhere."""
        world = self.world
        if driver := self._driver():
            driver.pause()
            world.note(f"{driver.name} is paused")
            world.later(world.chance.choice([1.0, 35.0, 200.0, 700.0]), driver.go_on)
            world.later(world.chance.uniform(0.0, 100.0), lambda: self.setting.drive(world.chance.choice(HEADS)))

    def _on_second_driver(self) -> None:
        self.setting.drive(self.world.chance.choice(HEADS))

    def _on_interruption(self) -> None:
        driver = self._driver()
        if driver is None:
            return
        executor = getattr(driver, "executor", None)
        if executor is not None and executor.running and not executor.interrupted:
            executor.interrupt()
        else:
            driver.main.thrown = KeyboardInterrupt()  # type: ignore[attr-defined]

    def _on_clock_jump(self) -> None:
        self.world.epoch += self.world.chance.choice([-1e5, -100.0, -5.0, 5.0, 100.0, 1e5])

    def _on_outage(self) -> None:
        whose = self.world.chance.choice(["", "", *HEADS, *NODES])
        seconds = self.world.chance.choice([10.0, 60.0, 250.0, 600.0])
        self._for((seconds, seconds), lambda on: (self.store.silent.add if on else self.store.silent.discard)(whose))

    def _on_lost_answers(self) -> None:
        self._for((20.0, 200.0), lambda on: setattr(self.store, "loses", 0.3 if on else 0.0))

    def _on_late_writes(self) -> None:
        self._for((20.0, 200.0), lambda on: setattr(self.store, "delays", 0.3 if on else 0.0))

    def _on_slow_store(self) -> None:
        self._for((20.0, 300.0), lambda on: setattr(self.store, "latency", 8.0 if on else 0.02))

    def _on_full_disk(self) -> None:
        self._for((5.0, 60.0), lambda on: setattr(self.store, "full", on))

    def _on_doubled_reports(self) -> None:
        self._for((20.0, 200.0), lambda on: setattr(self.world, "doubling", 0.5 if on else 0.0))

    def _on_workers_started_again(self) -> None:
        self._for((20.0, 100.0), lambda on: setattr(self.world, "restarting", 0.15 if on else 0.0))
