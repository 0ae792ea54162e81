"""A stream read by several child processes, each its share, for sources that are slow in Python."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flodl.core.errors import DataWorkerError
from flodl.data.processes import Child, failure, kill_all, messages, result_of, send
from flodl.data.streamstate import BatchStream, StreamItem, StreamState

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

AHEAD = 2  # batches that each child forms before they are asked for


@dataclass(frozen=True, slots=True)
class _Opening:
    """What a child needs to begin its share of an epoch."""

    epoch: int
    rank: int
    world_size: int
    start: StreamState | None


class ProcessStream:
    """The batches of a stream, formed by child processes in turn.

    Each child reads as one of ``ranks * workers`` would, so a last small batch is left out, or
    given, once for each of them.

    Args:
        stream: Copied into each child.
        workers: Number of children.
    """

    def __init__(self, stream: BatchStream, workers: int) -> None:
        self._stream = stream
        self._workers = workers
        self._children: list[Child] = []
        self._generation = 0
        self._pipes = threading.Lock()
        self._end = weakref.finalize(self, kill_all, self._children, os.getpid())

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the stream, and the number of children."""
        return {**self._stream.settings, "workers": self._workers}

    def open(
        self, epoch: int, rank: int, world_size: int, start: StreamState | None
    ) -> Iterator[StreamItem]:
        """Return the batches of one rank, those after ``start`` when it is given.

        An epoch that was left may still wait for a batch in another thread: that is waited for.
        """
        places = _places(start, self._workers)
        with self._pipes:
            self._start_missing()
            self._generation += 1
            for number, child in enumerate(self._children):
                share = _Opening(
                    epoch,
                    rank * self._workers + number,
                    world_size * self._workers,
                    _share_of(start, places[number]),
                )
                child.send((self._generation, share))
                self._ask(number, AHEAD)
            return self._items(self._generation, places, start)

    def _start_missing(self) -> None:
        for number, child in enumerate(self._children):
            if not child.process.is_alive():
                self._children[number] = Child(_serve, self._stream)
        while len(self._children) < self._workers:
            self._children.append(Child(_serve, self._stream))

    def _ask(self, number: int, count: int) -> None:
        for _ in range(count):
            self._children[number].send((self._generation, None))

    def _next(self, number: int, generation: int) -> StreamItem | None:
        """Return what a child has next, and ask it for one more; ``None`` when there is nothing.

        Answers for an epoch that was left are dropped, and such an epoch gets none.
        """
        while True:
            with self._pipes:
                if generation != self._generation:
                    return None
                found, answer = self._received(number)
                if found == generation:
                    item: StreamItem | None = result_of(answer)
                    if item is not None:
                        with suppress(DataWorkerError):  # the next receive says that it died
                            self._ask(number, 1)
                    return item

    def _received(self, number: int) -> Any:
        try:
            return self._children[number].receive()
        except DataWorkerError:
            self.abort()  # what killed one may be about to kill others: the next epoch starts anew
            raise

    def _items(
        self, generation: int, places: list[dict[str, Any]], start: StreamState | None
    ) -> Iterator[StreamItem]:
        index = 0 if start is None else start.batches
        turn = 0 if start is None or start.source is None else start.source["turn"]
        while not all(place["is_done"] for place in places):
            if not places[turn]["is_done"]:
                item = self._next(turn, generation)
                if item is None:
                    places[turn] = {**places[turn], "is_done": True}
                else:
                    places[turn] = {
                        "samples": item.samples,
                        "batches": places[turn]["batches"] + 1,
                        "source": item.source,
                        "is_done": False,
                    }
                    item.batch.index = index
                    index += 1
                    yield StreamItem(
                        batch=item.batch,
                        samples=sum(place["samples"] for place in places),
                        source={"turn": (turn + 1) % self._workers, "workers": list(places)},
                    )
            turn = (turn + 1) % self._workers

    def abort(self) -> None:
        """End the children at once; whoever waits for one gets an error."""
        kill_all(self._children, os.getpid())


def _places(start: StreamState | None, workers: int) -> list[dict[str, Any]]:
    if start is not None and start.source is not None:
        return [dict(place) for place in start.source["workers"]]
    fresh = {"samples": 0, "batches": 0, "source": None, "is_done": False}
    return [dict(fresh) for _ in range(workers)]


def _share_of(start: StreamState | None, place: dict[str, Any]) -> StreamState | None:
    if start is None or not place["batches"]:
        return None
    return replace(
        start, batches=place["batches"], samples=place["samples"], source=place["source"]
    )


def _serve(pipe: Connection, parent: int, stream: BatchStream) -> None:
    items: Iterator[StreamItem] | None = None
    opening: _Opening | None = None
    for generation, share in messages(pipe, parent):
        if share is not None:
            opening, items = share, None
            continue
        assert opening is not None
        try:
            if items is None:
                items = stream.open(opening.epoch, opening.rank, opening.world_size, opening.start)
            answer: Any = ("item", next(items, None), "")
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer, items = failure(error), iter(())
        send(pipe, (generation, answer))
