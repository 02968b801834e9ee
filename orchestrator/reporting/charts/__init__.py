"""A study's figures, as declarative specifications (Vega-Lite, by Altair).

Every number in them is the report's (:class:`orchestrator.analysis.report.StudyReport`). Seeds are collapsed, single
runs are thin behind; n, the intervals' method and missing runs stand in every legend.
"""

from __future__ import annotations

from orchestrator.analysis.report import StudyReport
from orchestrator.reporting.charts import differences, learning, search, spending
from orchestrator.reporting.charts.chart import Chart

__all__ = ["Chart", "charts"]

_KINDS = (
    differences.by_seed,
    learning.learning,
    differences.by_yardstick,
    differences.by_language,
    learning.performance_profile,
    spending.time_to_target,
    search.tuning,
    spending.by_kind,
)


def charts(report: StudyReport) -> dict[str, Chart]:
    """By name, those for which the study has numbers, in the order of a report."""
    return {chart.name: chart for kind in _KINDS for chart in kind(report)}
