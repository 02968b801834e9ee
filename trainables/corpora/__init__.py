"""Text to pretrain on: where it comes from and how it is made."""
