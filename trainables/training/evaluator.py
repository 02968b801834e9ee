"""What a trial's model makes of the held-out text and tasks."""

from collections.abc import Mapping

from trainables.corpora.stream.token_stream import TokenStream
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.item_scores import items_file, to_parquet
from trainables.evaluation.passes import Languages, Taken, take
from trainables.evaluation.tables import take_of_tables
from trainables.hashing import checksum
from trainables.objectives.objective import Scorer
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints
from trainables.training.config import TrialConfig
from trainables.training.meters import OverheadMeter
from trainables.training.state import Floors
from trainables.training.stepper import Stepper
from trainables.training.world import World


class Evaluator:
    """Takes a trial's yardsticks, which the meter counts. Into the ``study_folder``, if it is named, the scores of the
    held-out text's items are written, while the trial is the one whose ``checkpoints`` count."""

    def __init__(
        self,
        config: TrialConfig,
        stream: TokenStream,
        world: World,
        meter: OverheadMeter,
        study_folder: Location | None,
        checkpoints: Checkpoints | None,
    ) -> None:
        tasks = None if config.tasks is None else Location(config.tasks)
        self.held_out = {
            final: HeldOut(stream.corpus, config.evaluation, config.split, final=final, tasks=tasks)
            for final in (False, True)
        }
        self._config, self._world, self._meter = config, world, meter
        self._study_folder, self._checkpoints = study_folder, checkpoints

    def take(self, stepper: Stepper, *, final: bool, others: bool = True) -> dict[Scorer, Taken]:
        """By scorer, that of the objective first; before the end by that alone, of the primary yardstick. Empty on
        workers that only keep copies of the first one's model. All workers must call it together."""
        names = self._config.yardsticks if final else self._config.yardsticks[:1]
        with self._meter.measure("evaluation"), stepper.evaluated() as learner:
            if self._world.rank > 0 and self._config.training.parallel == "ddp":
                return {}
            # Sharded weights are gathered layer by layer, by all workers together.
            scorers = learner.objective.scorers
            return take(learner, self.held_out[final], names, scorers if final and others else scorers[:1])

    def floors(self, stepper: Stepper) -> Floors | None:
        """What the yardsticks are of a model that has learned nothing, and of tables of counts; None where
        :meth:`take` is empty. All workers must call it together."""
        taken = self.take(stepper, final=True, others=False)
        if not taken:
            return None
        (untrained,) = taken.values()
        with self._meter.measure("evaluation"):
            task = stepper.learner.objective.task
            tables = take_of_tables(self.held_out[True], task, self._config.yardsticks)
        items = {name: own.items for name, own in (tables | {"untrained": untrained}).items() if own.items}
        return Floors(
            untrained=untrained.scores,
            tables={kind: own.scores for kind, own in tables.items()},
            items=self._write(items, floors=True),
        )

    def keep_items(self, taken: Mapping[Scorer, Taken]) -> str | None:
        """Write the file; its digest. None where there is none to write, and on all workers but the first."""
        return self._write({str(scorer): own.items for scorer, own in taken.items() if own.items}, floors=False)

    def _write(self, found: Mapping[str, Mapping[str, Languages]], *, floors: bool) -> str | None:
        if self._study_folder is None or self._world.rank > 0 or not found:
            return None
        if self._checkpoints is not None:
            self._checkpoints.require_newest()
        with self._meter.measure("evaluation"):
            content, file = to_parquet(found), items_file(self._study_folder, self._config.trial, floors=floors)
            if floors and file.exists():
                return checksum(file.read_bytes())  # an earlier attempt's: the ledger may have its digest
            file.write_bytes(content)
        return checksum(content)
