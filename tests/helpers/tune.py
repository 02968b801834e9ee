"""Ray Tune's controller, as far as a scheduler of ours reaches into it, and a storage that answers at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from trainables.errors import InputError


def tune_controller(*trials: object, **more: Any) -> SimpleNamespace:
    """The wrapper that Tune hands to schedulers, of a controller that lists these trials."""
    sets = ("live_trials", "stopped_trials", "failed_trials", "trials_to_cache", "resetting_trials", "pending_trials")
    known: dict[str, object] = {f"_{name}": set() for name in sets}
    known |= {"_trials": [], "_trial_to_actor": {}, "_trial_metadata": {}}
    of_actors = (
        "pending_actors_to_enqueued_actor_tasks",
        "pending_actors_to_attrs",
        "live_actors_to_ray_actors_resources",
    )
    known["_actor_manager"] = SimpleNamespace(**{f"_{name}": {} for name in of_actors})
    does = {name: Mock() for name in ("_search_alg", "_cleanup_cached_actors", "stop_trial")}
    return SimpleNamespace(get_trials=lambda: trials, _tune_controller=SimpleNamespace(**(known | does | more)))


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
