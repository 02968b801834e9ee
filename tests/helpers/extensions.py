"""The objective and the yardstick that the documentation writes, and an objective that varies a shipped one."""

from __future__ import annotations

import re

from tests.helpers.repository import REPOSITORY

COUNTS = '''
"""Contrastive weight tying in which a frequent token counts less often than it is there."""

from dataclasses import replace

from pydantic import Field

from trainables.objectives.contrastive import Tied, TiedOptions


class TemperedOptions(TiedOptions):
    power: float = Field(0.5, ge=0, le=1)
    """A token that is there m times counts m ** power times."""


class Tempered(Tied):
    """The paper's loss at power 1; every candidate once at 0."""

    name, task, Options = "tempered_clm", "causal", TemperedOptions

    def candidates(self, pool):
        found = super().candidates(pool)
        return replace(found, log_count_C=self.options.power * found.log_count_C)
'''


def documented_code() -> tuple[str, str]:
    """Of the objective, and of the yardstick."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    objective, yardstick = re.findall(r"```python\n(.*?)```", page, re.S)
    return objective, yardstick


def members(code: str) -> dict[str, type]:
    """The classes that some code makes."""
    made: dict[str, type] = {"__name__": "my_package"}
    exec(code, made)
    return made
