"""Runs of several ranks: what the trainer tells the processes, and what it takes from them."""
