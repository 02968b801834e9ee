"""Small pure statistics, over numbers alone: no ledger, no study in them.

Most are of paired differences: one number a seed, arm A's yardstick minus arm B's. Everything is deterministic:
where chance is used (levels found by simulation), the generator's seed is fixed, so that a ledger always yields the
same verdict.
"""
