"""The study as written, validated, frozen."""
