"""Training: the loop, its budget, optimiser, schedules, checkpoints and measures. Nothing here needs Ray."""
