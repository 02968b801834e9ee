"""From packed tokens to batches: a pure function of corpus, seed and place."""
