"""What a run says on the console: its lines, how far it is, and alerts as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock

from flodl.monitor.progress import ProgressOutput
from flodl.records.record import Record

_MOST_ALERTS = 200


class Speaker:
    """Puts lines out one after the other, whichever thread they come from.

    Args:
        output: Where they go.
    """

    def __init__(self, output: ProgressOutput) -> None:
        self._output = output
        self._lock = Lock()
        self._alerts: deque[str] = deque(maxlen=_MOST_ALERTS)

    def line(self, text: str) -> None:
        """Say one line, after the alerts that came before it."""
        with self._lock:
            self._say_alerts()
            self._output.line(text)

    def advance(self, epochs: float) -> None:
        """Show that so many epochs are done."""
        with self._lock:
            self._output.advance(epochs)

    def notice(self, records: Sequence[Record]) -> None:
        """Remember alerts among published records; called while the tree is locked."""
        for record in records:
            if record.kind == "event":
                event = record.body()
                if event["sev"] != "info":
                    times = f" ({event['count']} times)" if event["count"] > 1 else ""
                    where = f"{event['class']} at {event['path']}"
                    self._alerts.append(f"  {event['sev']}: {where}: {event['detail']}{times}")

    def say_alerts(self) -> None:
        """Say the alerts that came since the last time."""
        with self._lock:
            self._say_alerts()

    def close(self) -> None:
        """Say what is left, and remove the bar if there is one."""
        with self._lock:
            self._say_alerts()
            self._output.close()

    def _say_alerts(self) -> None:
        while self._alerts:
            self._output.line(self._alerts.popleft())
