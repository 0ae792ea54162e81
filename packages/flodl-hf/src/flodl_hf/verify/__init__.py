"""Checks against the reference library; it is loaded here, and nowhere else."""
