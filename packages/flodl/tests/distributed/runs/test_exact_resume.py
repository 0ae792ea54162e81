"""Checkpoints of real processes: cut at any window, and killed while they write one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flodl.engine.bundle import find_bundle

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.slow


def said(program, *arguments, folder):
    """What a script printed last, as JSON."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=environ,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("mode", "cuts"),
    [
        ("cadence", ["1", "4", "7", "11"]),
        ("async", ["1", "4", "7", "11"]),
        ("sync", ["1", "2"]),
        ("outer", ["3", "6"]),
    ],
)
def test_a_run_cut_at_any_window_ends_like_the_one_that_was_not(tmp_path, mode, cuts):
    found = said("exact.py", mode, str(tmp_path), *cuts, folder=tmp_path)
    assert len(found["loss"]) == 3
    for cut in cuts:
        again = found["cuts"][cut]
        assert again["differ"] == [], cut
        assert again["steps"] == [72, 72]
        assert again["loss"] == found["loss"][-len(again["loss"]) :]
        assert again["accounts"] == [[192, 192]] * 3
        assert again["deaths"] == []


@pytest.mark.parametrize("mode", ["full", "exact", "sharded"])
def test_a_rank_killed_while_it_writes_leaves_a_whole_checkpoint_and_no_half_of_one(tmp_path, mode):
    found = said("killed_saving.py", mode, str(tmp_path), folder=tmp_path)
    assert found["epoch"] == 6
    assert found["deaths"] == ["signal 9"]
    assert found["accounts"] == [[256, 256]] * 6
    assert find_bundle(tmp_path / "model-window2").meta["window"] >= 2
    for listing in tmp_path.glob("*.meta.json"):
        find_bundle(listing)
    assert [file.name for file in tmp_path.iterdir() if "tmp" in file.name] == []
