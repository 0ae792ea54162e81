"""Composes the command lines of a manifest's commands and runs them."""
