"""Data tests run without a network and without the caller's data settings."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a data test opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def no_data_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLODL_DATA_PATH", "FLODL_DATA_SOURCE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
