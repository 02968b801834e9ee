"""Studies, results and comparisons as a notebook shows them."""

from __future__ import annotations

from orchestrator import formatting
from orchestrator.analysis.answer import Answer
from orchestrator.analysis.comparison import Comparison
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.reporting.page.page import answer_part, render, source, table_part
from orchestrator.reporting.result_tables import arms_table, comparison_table
from orchestrator.reporting.table import Table
from trainables.storage import Location


def comparison_html(comparison: Comparison, verdict: str = "") -> str:
    """What each arm came to, and their differences."""
    tables = table_part(arms_table(comparison), "arms")
    if comparison.pairs:
        tables += table_part(comparison_table(comparison), "comparison")
    return framed(answer_part(comparison, verdict) + tables)


def results_html(folder: Location, history: History, answer: Answer) -> str:
    """What a study found so far."""
    standing = "finished" if history.finished else "stopped" if history.stop == "end" else "not finished"
    name = "" if history.study is None else history.study.name
    title = render("titled.html", title=name, question=history.design.question, said=f"{standing} · {folder.uri}")
    return framed(title) + comparison_html(answer.comparison, answer.verdict)


def study_html(spec: StudySpec, folder: Location) -> str:
    """What a study will do, before it has begun."""
    unit, amount = spec.budget.unit, spec.budget.amount
    rows = [(name, arm.objective) for name, arm in spec.arms.items()]
    said = (
        f"not begun · {formatting.quantity(amount, unit)} a trial · a search budget of "
        f"{spec.search.budget_per_arm:g} trials an arm · {'up to ' if spec.confirm.stopping else ''}"
        f"{formatting.plural(spec.confirm.seeds, 'seed')} · {folder.uri}"
    )
    title = render("titled.html", title=spec.name, question=spec.question, said=said)
    return framed(title + table_part(Table.of(["arm", "objective"], rows), "differed"))


def framed(body: str) -> str:
    """With its style, which leaves the notebook's own alone."""
    return f'<div class="h2h"><style>{source("notebook.css")}</style>{body}</div>'
