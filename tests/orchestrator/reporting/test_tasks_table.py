"""The table of downstream tasks says by what a task is uninformative."""

import pytest

from orchestrator.analysis.comparison import MetricRow, TaskRow, VariesBy
from orchestrator.reporting.result_tables import TaskPair, tasks_table

ROW = TaskRow(
    role="exploratory",
    lower_is_better=False,
    n=3,
    mean_a=0.5,
    mean_b=0.5,
    difference=0.0,
    interval=(-0.1, 0.1),
    deviation=0.1,
    seed_error=0.05,
    text_error=0.05,
    p=0.9,
    p_adjusted=0.9,
    task="pairs",
    tier="zero-shot",
    languages=("en",),
    items=100,
    chance=0.5,
    untrained=None,
    informative=False,
)


@pytest.mark.parametrize(
    ("untrained", "says"), [(None, "above chance"), (0.5, "above chance, the untrained model and its embeddings alone")]
)
def test_a_bar_that_was_not_measured_is_not_named(untrained, says):
    table = tasks_table([TaskPair(a="a", b="b", row=ROW.model_copy(update={"untrained": untrained}))])
    assert table.notes == (f"uninformative: no arm is surely {says}",)


def test_a_learning_rate_at_the_grids_edge_is_told_once():
    edge = {"task": "rte", "tier": "fine-tuned", "rate_a": 1e-4, "rate_b": 3e-4, "rate_a_at_edge": True}
    row = ROW.model_copy(update={**edge, "informative": True})
    table = tasks_table([TaskPair(a="a", b="b", row=row), TaskPair(a="a", b="c", row=row)])
    assert table.notes == ("the best learning rate of fine-tuning is the grid's first or last: rte by a (0.0001)",)


def test_a_metric_has_a_line_of_its_own_below_what_is_right():
    metric = MetricRow(
        name="matthews", chance=0.0, n=3, mean_a=0.213, mean_b=0.101, difference=0.112, interval=(0.05, 0.17)
    )
    row = ROW.model_copy(update={"task": "cola", "tier": "probe", "informative": True, "metric": metric, "bag_a": 0.5})
    table = tasks_table([TaskPair(a="a", b="b", row=row)])
    right, own = (line.cells for line in table.rows)
    assert right[1] == "cola, probe"
    assert own == (
        "a –\nb",
        "cola, probe:\nmatthews",
        "100",
        "0.000",
        "0.213\n0.101",
        "–",
        "+0.112\n[0.050, 0.170]",
        "–",
    )
    assert any("by the seeds alone" in note for note in table.notes)


@pytest.mark.parametrize(("share", "helps"), [(0.08, "would hardly help"), (0.3, "would help")])
def test_what_a_difference_of_fine_tuned_models_varies_by_is_told(share, helps):
    varies_by = VariesBy(pretraining=0.6, fine_tuning=share, items=0.4 - share)
    row = ROW.model_copy(update={"task": "rte", "tier": "fine-tuned", "informative": True, "varies_by": varies_by})
    (note,) = tasks_table([TaskPair(a="a", b="b", row=row)]).notes
    assert note.startswith("rte, fine-tuned, a – b: ")
    assert f"pretraining seeds to 60%, of examples to {0.4 - share:.0%} and of fine-tuning seeds to {share:.0%}" in note
    assert note.endswith(helps)
