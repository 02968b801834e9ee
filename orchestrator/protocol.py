"""The protocol: what a study fixes before its first trial, so that its answer cannot be chosen afterwards.

Its digest is in the ledger's first record and, with the comparison, in the last. What a study measures beside it, and
all that it measures after the protocol was changed (``h2h extend``), is exploratory.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from orchestrator.spec import StudySpec
from orchestrator.statistics import ALPHA


def protocol(spec: StudySpec) -> dict[str, Any]:
    """What is fixed beforehand, as JSON: the question and what decides it."""
    return {
        "question": spec.question,
        "arms": {name: arm.objective for name, arm in spec.arms.items()},
        "budget": {spec.budget.unit: spec.budget.amount},
        "confirmation_budget": {spec.confirm_budget.unit: spec.confirm_budget.amount},
        "primary": spec.yardsticks.primary,
        "margin": spec.confirm.margin,
        "alpha": ALPHA,
        "stopping": {
            "seeds": spec.confirm.seeds,
            "looks_from": spec.confirm.stopping.minimum if spec.confirm.stopping else None,
        },
        "search_budget_per_arm": spec.search.budget_per_arm,
    }


def protocol_digest(content: dict[str, Any]) -> str:
    """blake2b of the protocol's JSON with sorted keys, hexadecimal."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
