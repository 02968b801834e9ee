"""Probes: what a model's features know of a task, whatever head it was trained with."""
