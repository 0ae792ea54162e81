"""Lines that tell people how far a long measurement is."""

from __future__ import annotations

import sys


def to_stderr(line: str) -> None:
    """Print a line about the progress."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
