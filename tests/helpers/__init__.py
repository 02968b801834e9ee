"""What tests share: one concept a module."""
