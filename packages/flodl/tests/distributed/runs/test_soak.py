"""The soak of one mode, as long as there is time for in a run of all tests.

All modes at full length, on a machine that has nothing else to do:

    python packages/flodl/tests/distributed/runs/soak.py --seconds 120
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")
SECONDS = os.environ.get("SOAK_SECONDS", "30")


@pytest.mark.slow
def test_killing_ranks_at_random_loses_nothing_and_leaves_nothing():
    command = [sys.executable, str(SOAK), "--modes", "cpu_cadence", "--seconds", SECONDS]
    limit_s = float(SECONDS) + 300
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("cpu_cadence: ")
