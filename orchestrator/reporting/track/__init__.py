"""A study in trackers of experiments: a projection of its history, made beside the study, never inside its trials."""
