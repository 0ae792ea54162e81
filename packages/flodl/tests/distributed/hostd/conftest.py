"""A control port of the test's own process, which host daemons dial."""

import runpy
from pathlib import Path

import pytest

PORT = runpy.run_path(str(Path(__file__).parent.parent / "programs" / "control_port.py"))


@pytest.fixture
def core():
    return PORT["RecordingCore"]()


@pytest.fixture
def controller(tmp_path, core):
    running = PORT["RunningController"](tmp_path, core)
    yield running
    running.end()
