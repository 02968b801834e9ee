"""Ray Tune's controller, as far as a scheduler of ours reaches into it, and a storage that answers at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from trainables.errors import InputError


def tune_controller(*trials: object, **more: Any) -> SimpleNamespace:
    """The wrapper that Tune hands to schedulers, of a controller that lists these trials."""
    sets = (
        "_live_trials",
        "_stopped_trials",
        "_failed_trials",
        "_trials_to_cache",
        "_resetting_trials",
        "_pending_trials",
    )
    known = {name: set() for name in sets} | {"_trials": [], "_trial_to_actor": {}, "_trial_metadata": {}}
    of_actors = (
        "_pending_actors_to_enqueued_actor_tasks",
        "_pending_actors_to_attrs",
        "_live_actors_to_ray_actors_resources",
    )
    actors = SimpleNamespace(**{name: {} for name in of_actors})
    return SimpleNamespace(
        get_trials=lambda: trials, _tune_controller=SimpleNamespace(_actor_manager=actors, **known, **more)
    )


class AtOnce:
    """In the place of a ``ThreadPoolExecutor``: what is asked of it is done at once."""

    def __init__(self, **_: object) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work())
        except InputError as error:
            done.set_exception(error)
        return done
