"""Which ``run()`` of the program this is: processes of the k-th must pass over the ones before."""

from __future__ import annotations

import itertools

_calls = itertools.count()


def next_ordinal() -> int:
    """Count a call of ``run()``, and return how many there were before it."""
    return next(_calls)
