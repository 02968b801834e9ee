"""Ray, and nothing else."""
