"""Whether what a study reports holds: ``h2h verify``."""
