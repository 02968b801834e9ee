"""The places that trials wait for, and devices that killed trials have left taken.

Both are told by the cluster's control service (GCS), which every cluster has, and not by Ray's dashboard.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, remove_placement_group

_LOOKS = 4
"""In a row that find a group empty. Between its making and its workers' is a moment: with a look every few seconds,
never as many."""
_PENDING = (PlacementGroupTableData.PENDING, PlacementGroupTableData.RESCHEDULING)
_LIVING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE")  # the last one last: actors go on to it


class PlacementGroups:
    """The placement groups of trials' workers: those of this process's job whose every bundle has the workers' ``CPU``
    and ``GPU``; the job's others are its user's, or Ray Tune's."""

    def __init__(self, worker_resources: Mapping[str, float]) -> None:
        self._worker_resources = dict(worker_resources)
        self._job = ray.JobID(bytes.fromhex(ray.get_runtime_context().get_job_id()))
        self._empty: Counter[bytes] = Counter()

    def waiting_workers(self) -> int:
        """Workers for which there is no room now."""
        return sum(len(group.bundles) for group in self._ours() if group.state in _PENDING)

    def remove_empty(self) -> int:
        """Look once for groups of Ray Train that nobody works in any more, remove those that have been empty for some
        looks, and tell how many.

        A trial's process that is killed while its workers start leaves its group to Ray, whose cleaner was not told of
        it yet and so never frees it (https://github.com/ray-project/ray/issues/62753), or cannot, on a cluster without
        a dashboard: its devices would stay taken until the study ends.
        """
        made = {bytes(g.placement_group_id) for g in self._ours() if g.state == PlacementGroupTableData.CREATED}
        empty = made - self._taken() if made else made  # asked for second: what a group is made for comes after it
        self._empty = Counter({name: self._empty[name] + 1 for name in empty})
        orphaned = [name for name, looks in self._empty.items() if looks >= _LOOKS]
        for name in orphaned:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(name)))
            del self._empty[name]
        return len(orphaned)

    def _ours(self) -> Iterator[PlacementGroupTableData]:
        for data in state._connect_and_get_accessor().get_placement_group_table():
            group = PlacementGroupTableData.FromString(data)
            of_this_job = group.creator_job_id == self._job.binary()
            if of_this_job and all(dict(one.unit_resources) == self._worker_resources for one in group.bundles):
                yield group

    def _taken(self) -> set[bytes]:
        """The groups in which actors of this job live."""
        accessor = state._connect_and_get_accessor()
        actors = (data for living in _LIVING for data in accessor.get_actor_table(self._job, living))
        return {bytes(ActorTableData.FromString(data).placement_group_id) for data in actors}
