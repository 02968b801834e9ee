"""What happened, and what it adds up to."""
