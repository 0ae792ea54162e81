"""Training over several ranks."""
