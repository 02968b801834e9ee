"""Pages: HTML that needs no network, made of a study's report."""
