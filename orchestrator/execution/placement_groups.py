"""Devices that killed trials have left taken."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.state import list_actors, list_placement_groups
from ray.util.state.exception import RayStateApiException

_LOOKS = 4
"""In a row that find a group empty. Between its making and its workers' is a moment: with a look every few seconds,
never as many."""
_MOST = 10_000  # groups and actors that Ray lists at once, dead ones too; of more it lists none, and none is removed
_SECONDS = 10  # for it to answer


class PlacementGroups:
    """Finds placement groups of Ray Train that nobody works in any more.

    A trial's process that is killed while its workers start leaves its group to Ray, whose cleaner was not told of it
    yet and so never frees it (https://github.com/ray-project/ray/issues/62753): its devices would stay taken until the
    study ends. Meant are those of this process's job whose every bundle has the workers' ``CPU`` and ``GPU``; the job's
    others are its user's, or Ray Tune's.
    """

    def __init__(self, worker_resources: Mapping[str, float]) -> None:
        self._worker_resources = dict(worker_resources)
        context = ray.get_runtime_context()
        self._job = context.get_job_id()
        self._address = context.gcs_address  # else Ray looks for a cluster, and of several takes none
        self._empty: Counter[str] = Counter()

    def remove_empty(self) -> int:
        """Look once, remove the groups that have been empty for some looks, and tell how many."""
        made = [("creator_job_id", "=", self._job), ("state", "=", "CREATED")]
        living = [("job_id", "=", self._job), ("state", "!=", "DEAD")]
        try:
            groups = self._listed(list_placement_groups, made)
            actors = self._listed(list_actors, living)
        except (RayStateApiException, OSError):  # it cannot answer now, or this cluster has no dashboard
            return 0
        taken = {actor.placement_group_id for actor in actors}
        empty = {
            group.placement_group_id
            for group in groups
            if group.placement_group_id not in taken
            and all(bundle["unit_resources"] == self._worker_resources for bundle in group.bundles)
        }
        self._empty = Counter({name: self._empty[name] + 1 for name in empty})
        orphaned = [name for name, looks in self._empty.items() if looks >= _LOOKS]
        for name in orphaned:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
            del self._empty[name]
        return len(orphaned)

    def _listed(self, list_all: Callable[..., list[Any]], filters: list[tuple[str, str, str]]) -> list[Any]:
        return list_all(self._address, filters=filters, detail=True, limit=_MOST, timeout=_SECONDS)
