"""What a study will take before it takes it."""
