"""What the run does next: a pure machine that hosts, ranks and people feed with events."""
