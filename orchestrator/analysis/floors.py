"""Whether an arm has learned more than counting does: its runs against the tables of their held-out text."""

from collections.abc import Mapping

from orchestrator.analysis.comparison import ArmSummary, Floor
from orchestrator.analysis.held_out_text import of_differences
from orchestrator.analysis.selection import Runs, worth
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_floors
from orchestrator.ledger.trials import TrialHistory
from trainables.training.state import Floors

FEWEST = 2  # runs of an arm: of one nothing shows how much they vary


def floors_of(history: History, arm: str, runs: Runs) -> Mapping[str, Floor]:
    """By table, where the arm's completed runs stand to it on the primary yardstick; empty where no run of the study
    measured tables on the arm's task. Raises InputError where a file of item scores is gone or another."""
    measured = _measured(history, arm)
    if measured is None:
        return {}
    primary = history.design.yardsticks.primary
    run, floors = measured
    return {
        table: _floor(history, runs, run, table, scores[primary].overall)
        for table, scores in floors.tables.items()
        if primary in scores
    }


def below_floor(arm: ArmSummary, table: str) -> bool:
    """Whether an arm's runs are there, and not surely above what the table comes to."""
    floor = arm.floors.get(table)
    return floor is not None and floor.above is False


def _measured(history: History, arm: str) -> tuple[TrialHistory, Floors] | None:
    """The first run of the arm's task that measured its floors: tables and text are the same for all of them."""
    design = history.design
    arms = sorted(design.arms, key=lambda name: name != arm)
    same = [name for name in arms if design.arms[name].task == design.arms[arm].task]
    runs = (run for name in same for run in history.trials_of("confirm", name))
    return next(((run, run.floors) for run in runs if run.floors is not None), None)


def _floor(history: History, runs: Runs, measured: TrialHistory, table: str, value: float) -> Floor:
    primary = history.design.yardsticks.primary
    values = worth(history, runs, primary)
    if len(values) < FEWEST:
        return Floor(value=value, difference=None, interval=None, above=None)
    floor = None if history.folder is None else read_floors(history.folder, measured).get((primary, table))
    differences = {seed: own - value for seed, own in values.items()}
    found = of_differences(history, primary, runs, differences, floor)
    low, high = found.interval(2 * ALPHA)  # one-sided
    above = high < 0 if history.design.lower_is_better(primary) else low > 0
    return Floor(value=value, difference=float(found.mean), interval=found.interval(ALPHA), above=above)
