"""``h2h serve``: a storage's studies as pages that follow them. It reads ledgers, and writes nothing."""
