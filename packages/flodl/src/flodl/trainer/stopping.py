"""How an observer, or a loop of the user's own, ends a run in good order."""

from __future__ import annotations


class StopTraining(Exception):
    """Raised by ``metrics_fn``, ``eval_result_fn`` or one's own loop: the run ends in good order.

    The batch at hand is finished before.
    """


def is_leaving(error: BaseException | None) -> bool:
    """Return whether a loop is left on purpose: without an error, or by one that says so."""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    return error is None or isinstance(error, StopTraining)
