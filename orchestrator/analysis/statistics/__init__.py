"""Small pure statistics, over numbers alone: no ledger, no study in them.

Most are of paired differences: one number a seed, arm A's yardstick minus arm B's. Everything is deterministic:
where chance is used (permutations too many to enumerate; boundaries found by simulation), the
generator's seed is fixed, so that a ledger always yields the same verdict.

================  ==================================================================================
``paired``         a fixed number of pairs: interval, permutation test, equivalence, Holm's adjustment
``planning``       power, the smallest difference that can be found, seeds still needed
``sequential``     seeds added one pair at a time until the question is answered
``tuning_curves``  the best of n search trials, with a confidence band
``time_to_target`` how much less one arm spends to get as far as the other
================  ==================================================================================
"""
