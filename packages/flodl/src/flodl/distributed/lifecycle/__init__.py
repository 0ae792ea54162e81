"""What a rank and a host do next: pure machines, fed with events, that answer with commands."""
