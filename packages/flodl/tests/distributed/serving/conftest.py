"""A control port of the test's own process, to be talked to from outside."""

import runpy
from pathlib import Path

import pytest

PORT = runpy.run_path(str(Path(__file__).parent.parent / "programs" / "control_port.py"))


@pytest.fixture
def core():
    return PORT["RecordingCore"]()


@pytest.fixture
def running_controller(tmp_path, core):
    made = []

    def start(**options):
        made.append(PORT["RunningController"](tmp_path, core, **options))
        return made[-1]

    yield start
    for running in made:
        running.end()


@pytest.fixture
def controller(running_controller):
    return running_controller()
