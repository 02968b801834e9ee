"""What ``h2h plan`` prints reads well, whatever the amounts."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from orchestrator import formatting
from orchestrator.config.files import load_study
from orchestrator.reporting.plan_table import show_plan


def plan(*overrides: str) -> str:
    console = Console(width=100, file=StringIO())
    console.print(show_plan(load_study("demo", overrides)), highlight=False)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("2000010", "2.0M tokens"), ("1e9", "1.0B tokens"), ("999999", "1.0M tokens"), ("8e12", "8.0T tokens")],
)
def test_amounts_have_a_prefix_and_few_digits(amount: str, shown: str) -> None:
    text = plan(f"budget.tokens={amount}")
    assert shown in text
    assert not re.search(r"\de[+]\d", text)
    assert not re.search(r"\d{5,}[kMBT]?\b", text)


def test_amounts_beyond_all_prefixes() -> None:
    """Not thousands of thousands of billions."""
    text = plan("budget.tokens=8e18")
    assert "8e+18 tokens" in text
    assert not re.search(r"\d{5,}T", text)
    assert formatting.quantity(999.4e12, "tokens") == "999T tokens"
    assert formatting.quantity(999.6e12, "tokens") == "1e+15 tokens"
    assert formatting.quantity(3e30, "flops") == "3e+30 FLOP"
