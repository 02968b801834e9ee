"""What a study found, read from its folder alone: no Ray, no torch.

python examples/read_results.py studies/NAME
"""

import sys

from orchestrator import Results

results = Results(sys.argv[1])

for arm, summary in results.answer.comparison.arms.items():
    print(f"{arm} ({summary.objective}): {results.best(arm)}")

# What was spent, in steps that count and beside them, by arm.
spending = results.spending
useful, device = spending["useful.device_seconds"], spending["device_seconds"]
print(spending.assign(useful=useful, device=device).groupby("arm")[["useful", "device"]].sum().round(1))

# Learning curves of the confirmation: the mean over seeds at each evaluation.
ledger = results.ledger
evaluated = ledger[ledger["counts"] & (ledger["phase"] == "confirm")].dropna(subset="yardsticks.bits_per_byte.overall")
print(evaluated.groupby(["arm", "progress"])["yardsticks.bits_per_byte.overall"].agg(["mean", "std", "count"]))

print(results.comparison[["a", "b", "yardstick", "n", "difference", "interval_low", "interval_high", "p"]].to_string())
print(results.verdict)
