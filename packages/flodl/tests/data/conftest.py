"""Data tests reach this machine only, unless they are live, and run without data settings."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# how long an example takes says more about what else the machine does
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("live") is not None:
        return
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] != "127.0.0.1":
            raise AssertionError(f"a data test connected to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def no_data_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLODL_DATA_PATH", "FLODL_DATA_SOURCE", "FLODL_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
