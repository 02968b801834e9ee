"""Which trial runs next, and whether it is paid for."""
