"""The places that trials wait for, and devices that killed trials have left taken.

Both are told by the cluster's control service (GCS), which every cluster has, and not by Ray's dashboard.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, remove_placement_group

_LOOKS = 4
"""In a row that find nobody at work in a group. Between its making and its workers' is a moment: with a look every few
seconds, never as many."""
_PENDING = (PlacementGroupTableData.PENDING, PlacementGroupTableData.RESCHEDULING)
_LIVING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE")  # the last one last: actors go on to it

_NO_ACTOR = ray.ActorID.nil().binary()


class PlacementGroups:
    """The placement groups of trials' workers: those of this process's job whose every bundle has the workers' ``CPU``
    and ``GPU``; the job's others are its user's, or Ray Tune's."""

    def __init__(self, worker_resources: Mapping[str, float]) -> None:
        self._worker_resources = dict(worker_resources)
        self._job = ray.JobID(bytes.fromhex(ray.get_runtime_context().get_job_id()))
        self._left: Counter[bytes] = Counter()

    def waiting_workers(self) -> int:
        """Workers for which there is no room now."""
        return sum(len(group.bundles) for group in self._ours() if group.state in _PENDING)

    def remove_left(self) -> int:
        """Look once for groups that nobody works in for a trial that runs, remove those that some looks in a row have
        found so, and tell how many: groups without actors, and those whose maker, Ray Train's controller, has ended.

        A trial's process that is killed while its workers start leaves its group to Ray, whose cleaner was not told of
        it yet and so never frees it (https://github.com/ray-project/ray/issues/62753), or cannot, on a cluster without
        a dashboard: its devices would stay taken until the study ends.
        """
        made = [group for group in self._ours() if group.state == PlacementGroupTableData.CREATED]
        left = self._without_work(made) if made else set()  # asked for second: who works in a group comes after it
        self._left = Counter({name: self._left[name] + 1 for name in left})
        orphaned = [name for name, looks in self._left.items() if looks >= _LOOKS]
        for name in orphaned:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(name)))
            del self._left[name]
        return len(orphaned)

    def _ours(self) -> Iterator[PlacementGroupTableData]:
        for data in state._connect_and_get_accessor().get_placement_group_table():
            group = PlacementGroupTableData.FromString(data)
            of_this_job = group.creator_job_id == self._job.binary()
            if of_this_job and all(dict(one.unit_resources) == self._worker_resources for one in group.bundles):
                yield group

    def _without_work(self, groups: Iterable[PlacementGroupTableData]) -> set[bytes]:
        """The names of those that no actor lives in, or whose maker has ended."""
        accessor = state._connect_and_get_accessor()
        data = (data for living in _LIVING for data in accessor.get_actor_table(self._job, living))
        actors = [ActorTableData.FromString(one) for one in data]
        taken = {actor.placement_group_id for actor in actors}
        makers = {actor.actor_id for actor in actors} | {_NO_ACTOR, b""}  # this process is there
        return {
            group.placement_group_id
            for group in groups
            if group.placement_group_id not in taken or group.creator_actor_id not in makers
        }
