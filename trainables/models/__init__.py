"""Models and tokenizers: named shapes, and the learner that joins a body, a head and an objective."""
