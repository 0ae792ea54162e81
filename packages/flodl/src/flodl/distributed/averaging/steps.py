"""Exchanges written as generators: a step ends where something has to arrive first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from flodl.distributed.averaging.exchange import Exchange, Payload
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.group import Operation

__all__ = ["SteppedExchange", "Steps", "until_done"]

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]


def until_done(operation: Operation) -> Steps[None]:
    """Pause until an operation is over.

    Raises:
        CollectiveError: It failed.
    """
    while not operation.is_done():
        yield
    operation.finish()


class SteppedExchange(Exchange):
    """An exchange whose averages are generators that pause while they wait."""

    _running: Steps[None] | None = None

    def start(self, payload: Payload) -> None:
        """See `Exchange`."""
        if self._running is not None:
            raise CollectiveError("an average was started before the one before it was over")
        self._running = self._average(payload)

    def advance(self) -> bool:
        """See `Exchange`."""
        if self._running is None:
            return True
        try:
            next(self._running)
        except StopIteration:
            self._running = None
            return True
        return False

    @abstractmethod
    def _average(self, payload: Payload) -> Steps[None]:
        """Average a payload, pausing wherever nothing can be done yet."""
