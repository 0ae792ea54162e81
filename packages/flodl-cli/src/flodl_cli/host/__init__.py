"""The rim towards the operating system."""
