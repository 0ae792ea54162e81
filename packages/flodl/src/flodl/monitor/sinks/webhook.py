"""Alerts to a web address."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from flodl.core.errors import ConfigError
from flodl.records.record import Record, RunStatus, Severity, encode_json

_ORDER: tuple[Severity, ...] = ("info", "warn", "critical")
_TRIES = 3
_TIMEOUT_S = 10.0


class WebhookSink:
    """Posts each alert as JSON to an address; a failure is tried three times.

    Args:
        url: Address, ``http`` or ``https``.
        min_sev: Lowest severity that is posted.
        sleep: Waits between tries; for tests.

    Raises:
        ConfigError: The address or the severity is none.
    """

    def __init__(
        self,
        url: str,
        *,
        min_sev: Severity = "critical",
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError(f"WebhookSink({url!r}): must be an http or https address")
        if min_sev not in _ORDER:
            raise ConfigError(
                f"WebhookSink(min_sev={min_sev!r}): must be one of {', '.join(_ORDER)}"
            )
        self._url = url
        self._wanted = frozenset(_ORDER[_ORDER.index(min_sev) :])
        self._sleep = sleep
        self._run: Mapping[str, Any] = {}

    def open(self, run: Mapping[str, Any]) -> None:
        """Remember which run the alerts are of."""
        self._run = {key: run.get(key) for key in ("id", "label")}

    def write(self, records: Sequence[Record]) -> None:
        """Post the alerts among the records.

        Raises:
            OSError: The address did not take one in three tries.
        """
        for record in records:
            if record.kind == "event":
                body = record.body()
                if body["sev"] in self._wanted:
                    self._post(encode_json({"run": self._run, "alert": body}))

    def close(self, status: RunStatus) -> None:
        """Do nothing: alerts are posted as they come."""

    def _post(self, content: bytes) -> None:
        request = urllib.request.Request(  # noqa: S310 (the scheme was checked)
            self._url, content, {"content-type": "application/json"}, method="POST"
        )
        for attempt in range(1, _TRIES + 1):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
                    return
            except urllib.error.URLError:
                if attempt == _TRIES:
                    raise
                self._sleep(2.0**attempt)
