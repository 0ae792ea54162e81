"""Everything a run shows to its viewers: the record tree, the epoch feed, and what the run is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Literal, Protocol

from flodl.records.hardware import Card
from flodl.records.record import RunStatus, encode_json
from flodl.records.tree import RecordTree

BoardEvent = Literal["epoch", "complete"]
BoardListener = Callable[[BoardEvent, bytes, int], None]


class TimelineSource(Protocol):
    """A timeline that can be read while it grows."""

    def body(self, start_ms: float | None = None, end_ms: float | None = None) -> dict[str, Any]:
        """Return the JSON form of the part between two times since its start."""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """The model's picture, colored by what its nodes cost on one kind of device."""

    model: str
    svg: str


class RunBoard:
    """What the viewers of one run see; safe to use from any thread.

    Args:
        tree: The run's records; ``None`` makes a new tree.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self, tree: RecordTree | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tree = RecordTree() if tree is None else tree
        self._clock = clock
        self._started = clock()
        self._ended: float | None = None
        self._lock = RLock()
        self._status: RunStatus = "waiting"
        self._epochs: list[bytes] = []
        self._facts: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}
        self._progress: dict[str, Any] = {}
        self._svg: str | None = None
        self._heatmaps: list[Heatmap] = []
        self._timelines: dict[str, TimelineSource] = {}
        self._archive: str | None = None
        self._losses: dict[str, Callable[[], int]] = {}
        self._listeners: list[BoardListener] = []

    @property
    def status(self) -> RunStatus:
        """How far the run is."""
        return self._status

    @property
    def progress(self) -> dict[str, Any]:
        """Epochs done, of how many, and seconds left; empty before the first."""
        return dict(self._progress)

    @property
    def seconds(self) -> float:
        """Seconds since the start; stands still once the run has ended."""
        return (self._clock() if self._ended is None else self._ended) - self._started

    @property
    def svg(self) -> str | None:
        """The model's picture, as it was given."""
        return self._svg

    @property
    def heatmaps(self) -> Sequence[Heatmap]:
        """Pictures colored by cost, one per kind of device."""
        return tuple(self._heatmaps)

    @property
    def timelines(self) -> Mapping[str, TimelineSource]:
        """Timelines by host name; the first is the controller's."""
        return dict(self._timelines)

    @property
    def metadata(self) -> dict[str, Any]:
        """Settings of the run, as its user gave them."""
        return dict(self._metadata)

    def set_facts(self, **facts: Any) -> None:
        """Set ``label``, ``hash``, ``hardware`` or ``gpus`` of ``/api/meta``."""
        with self._lock:
            self._facts.update(facts)

    def set_hardware(self, text: str, cards: Sequence[Card]) -> None:
        """Say what the run runs on; viewers are told when that has changed."""
        gpus = [
            {"dev": card.device, "name": card.name, "vram_total": card.vram_total} for card in cards
        ]
        with self._lock:
            if self._facts.get("hardware") == text and self._facts.get("gpus") == gpus:
                return
            self._facts.update(hardware=text, gpus=gpus)
        self.tree.describe(hardware=text)

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the settings shown for the run; every value must have a JSON form."""
        with self._lock:
            self._metadata = dict(metadata)

    def set_svg(self, svg: str) -> None:
        """Show this picture of the model."""
        self._svg = svg

    def add_heatmap(self, model: str, svg: str) -> None:
        """Show a picture colored by what nodes cost on one kind of device."""
        with self._lock:
            self._heatmaps = [h for h in self._heatmaps if h.model != model]
            self._heatmaps.append(Heatmap(model, svg))

    def add_timeline(self, host: str, source: TimelineSource) -> None:
        """Offer the timeline of one host."""
        with self._lock:
            self._timelines[host] = source

    def count_losses(self, where: str, count: Callable[[], int]) -> None:
        """Count what a reader of the board has lost, under a name."""
        with self._lock:
            self._losses[where] = count

    def losses(self) -> dict[str, int]:
        """Return how much each reader of the board has lost."""
        with self._lock:
            counters = dict(self._losses)
        return {where: count() for where, count in counters.items()}

    def start(self) -> None:
        """Mark the run as running."""
        if self._status == "waiting":
            self._status = "running"

    def set_progress(self, *, epoch: int, total: int, eta: float | None) -> None:
        """Say where the run is: epochs done, of how many, and seconds left."""
        self._progress = {"epoch": epoch, "total": total, "eta": eta}

    def add_epoch(self, feed: Mapping[str, Any]) -> None:
        """Append one epoch to the feed and tell the viewers."""
        line = encode_json(feed)
        with self._lock:
            self.start()
            self._epochs.append(line)
            self._tell("epoch", line)

    def amend_epoch(self, feed: Mapping[str, Any]) -> None:
        """Replace the newest epoch of the feed, of which more is known now."""
        with self._lock:
            if self._epochs:
                self._epochs[-1] = encode_json(feed)

    def finish(self, status: RunStatus, *, archive: str | None = None) -> None:
        """End the run and tell the viewers; further calls do nothing."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = self._clock()
            self._status = status
            self._archive = archive
            self._tell("complete", encode_json(self.completion()))

    def epochs(self) -> list[bytes]:
        """Return the epoch feed as JSON objects, oldest first."""
        with self._lock:
            return list(self._epochs)

    def completion(self) -> dict[str, Any]:
        """Return how the run ended."""
        return {
            "status": self._status,
            "seconds": round(self.seconds, 3),
            "archive": self._archive,
        }

    def clock_face(self) -> dict[str, Any]:
        """Return epoch, total, seconds left and seconds elapsed."""
        return {**self._progress, "elapsed": round(self.seconds, 1)}

    def api_meta(self) -> dict[str, Any]:
        """Return the facts about the run, its settings and its status."""
        with self._lock:
            shown: dict[str, Any] = {"label": None, "hash": None, "hardware": None, "gpus": []}
            return {
                **shown,
                **self._facts,
                "metadata": dict(self._metadata),
                "status": self._status,
                "graph": self._svg is not None,
            }

    def state(self) -> dict[str, Any]:
        """Return all that is neither a record nor an epoch, as JSON; for a copy of the board."""
        with self._lock:
            return {
                "facts": dict(self._facts),
                "metadata": dict(self._metadata),
                "progress": dict(self._progress),
                "svg": self._svg,
                "heatmaps": [[heatmap.model, heatmap.svg] for heatmap in self._heatmaps],
                "status": self._status,
                "archive": self._archive,
                "started": self._started,
            }

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Become a copy of the board whose :meth:`state` this is, on the same machine."""
        with self._lock:
            self._facts = dict(state["facts"])
            self._metadata = dict(state["metadata"])
            self._progress = dict(state["progress"])
            self._svg = state["svg"]
            self._heatmaps = [Heatmap(model, svg) for model, svg in state["heatmaps"]]
            self._started = state["started"]
            if state["status"] in {"waiting", "running"}:
                self._status = state["status"]
            else:
                self.finish(state["status"], archive=state["archive"])

    def listen(
        self, listener: BoardListener, *, since_epoch: int = 0
    ) -> tuple[list[bytes], Callable[[], None]]:
        """Return the epochs from ``since_epoch`` on, and call ``listener`` with what follows.

        A listener gets the event, its JSON, and how many epochs there are then. The second part
        of the answer ends it.
        """
        with self._lock:
            self._listeners.append(listener)
            return self._epochs[since_epoch:], lambda: self._leave(listener)

    def _leave(self, listener: BoardListener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _tell(self, event: BoardEvent, payload: bytes) -> None:
        for listener in tuple(self._listeners):
            listener(event, payload, len(self._epochs))
