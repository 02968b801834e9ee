"""Downstream tasks: what a model is good for beyond the text it was trained on."""
