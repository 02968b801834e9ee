"""What the records mean."""
