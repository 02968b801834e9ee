"""What ``h2h verify`` finds wrong with the course of a ledger."""

from __future__ import annotations

from orchestrator.analysis.course import check_course

from orchestrator.analysis.verification import Verification


def mismatches(records):
    found = Verification()
    check_course(found.check, records)
    return [mismatch.where for mismatch in found.mismatches]
