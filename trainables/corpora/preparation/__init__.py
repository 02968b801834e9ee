"""From documents to packed tokens: once, for all trials and studies."""
