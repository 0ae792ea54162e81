"""Scalars that step code reports, gathered in the scope of the running step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from flodl.core.log import warn_once

_logger = logging.getLogger(__name__)
_current: ContextVar[ScalarScope | None] = ContextVar("flodl_scalar_scope", default=None)


class ScalarScope:
    """Sums and counts of the scalars recorded while it is active.

    A value may be a number or a 0-d tensor. Tensors are summed where they live, so recording one
    never waits for its device; :meth:`drain` reads them, once.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, value: Any) -> None:
        """Add one value under ``name``.

        Raises:
            TypeError: ``value`` is neither a number nor a tensor of one element.
        """
        if hasattr(value, "detach"):
            if value.numel() != 1:
                raise TypeError(
                    f"record_scalar({name!r}): a tensor of shape {tuple(value.shape)} is not a "
                    "scalar; reduce it first, for example with .mean()"
                )
            # a copy: step code may reuse the tensor, and a captured step always does
            value = value.detach().reshape(()).clone()
        else:
            value = _as_number(name, value)
        if name in self._sums:
            self._sums[name] = self._sums[name] + value
            self._counts[name] += 1
        else:
            self._sums[name] = value
            self._counts[name] = 1

    def drain(self) -> dict[str, tuple[float, int]]:
        """Return ``{name: (sum, count)}`` in first-recorded order, and start afresh."""
        drained = {name: (float(total), self._counts[name]) for name, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        return drained

    def means(self) -> dict[str, float]:
        """Drain, and return the mean of each scalar over its calls."""
        return {name: total / count for name, (total, count) in self.drain().items()}

    @contextmanager
    def active(self) -> Iterator[ScalarScope]:
        """Make this the scope that :func:`record_scalar` writes to, within the ``with`` block."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


def record_scalar(name: str, value: Any) -> None:
    """Record one value of a scalar from step code; its mean appears in the epoch's metrics.

    Args:
        name: Name of the metric.
        value: A number or a 0-d tensor; a tensor is not read on the host until the epoch ends.

    Outside a run the value is dropped, with one warning.

    Raises:
        TypeError: ``value`` is neither a number nor a tensor of one element.
    """
    scope = _current.get()
    if scope is None:
        warn_once(_logger, "record_scalar(%r): no run is active, the value is dropped", name)
        return
    scope.add(name, value)


def drain_scalars() -> dict[str, tuple[float, int]]:
    """Return sum and count of each scalar recorded since the last drain, and start afresh.

    Meant for step code that reports by itself: what is drained no longer counts for the epoch's
    metrics. It waits for the devices that the values are on. Outside a run there is nothing.
    """
    scope = _current.get()
    return {} if scope is None else scope.drain()


def _as_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"record_scalar({name!r}): {value!r} is neither a number nor a tensor"
        ) from error
