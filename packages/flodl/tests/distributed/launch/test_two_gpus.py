"""A plain script on two GPUs: it promotes itself, and survives what happens to a rank.

Each test is a program of its own, with a process a GPU. The bars are those of the requirements; on
the CPU ``programs/promoted.py WHAT FOLDER --ranks 2`` runs the same script.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.nccl,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
PROGRAM = Path(__file__).parent / "programs" / "promoted.py"
LIMIT_S = 280
SAMPLES = 2048
MODES = ["nccl_sync", "nccl_cadence", "cpu_sync", "cpu_cadence", "cpu_async", "nccl_cadence-diloco"]


@pytest.fixture
def run(tmp_path):
    """Run the script, and return what it printed last."""

    def started(what, *options, folder="run", **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FLODL_"))}
        place = tmp_path / folder
        place.mkdir()
        ran = subprocess.run(
            [sys.executable, str(PROGRAM), what, str(place), *map(str, options)],
            env=kept | variables,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    return started


def whole(epochs):
    return [[SAMPLES, SAMPLES]] * epochs


def steps_of(folder, rank, life=0):
    """When the steps of a rank began, and how much memory of its GPU was free."""
    lines = (folder / f"steps-{rank}-{life}").read_text().splitlines()
    return [tuple(map(float, line.split())) for line in lines]


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_two_gpus_train_like_one_with_the_whole_batch(run, capture):
    options = ("--epochs", 20, "--capture", capture)
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    both = run("train", *options, "--batch", SAMPLES // 2, folder="both")
    one = run("train", *options, "--batch", SAMPLES, folder="one", CUDA_VISIBLE_DEVICES=visible)
    assert (both["world"], one["world"]) == (2, 1)
    assert both["accounts"] == whole(20)
    assert both["loss"] == pytest.approx(one["loss"], rel=1e-4)
    for name, values in one["parameters"].items():
        assert both["parameters"][name] == pytest.approx(values, rel=1e-3, abs=1e-4), name


def test_a_slow_gpu_takes_less_and_costs_little(run, tmp_path):
    options = ("--epochs", 12, "--batch", 16)
    cadence = run("slow", *options, "--mode", "nccl_cadence", folder="cadence")
    sync = run("slow", *options, "--mode", "nccl_sync", folder="sync")
    assert cadence["accounts"] == sync["accounts"] == whole(12)
    fast, slow = (steps_of(tmp_path / "cadence", rank) for rank in range(2))
    since = slow[len(slow) // 2][0]  # windows enough to know both
    late = [sum(at >= since for at, _ in steps) for steps in (fast, slow)]
    assert late[0] / late[1] == pytest.approx(2.5, rel=0.1)
    assert cadence["wall_s"] <= 0.7 * sync["wall_s"]


def test_a_rank_killed_time_and_again_comes_back_and_memory_stays(run, tmp_path):
    found = run("kill", "--epochs", 100_000)
    folder = tmp_path / "run"
    deaths = sorted(folder.glob("death-*"), key=lambda path: int(path.name.split("-")[1]))
    assert len(deaths) == len(found["deaths"]) == 25
    assert set(found["deaths"]) == {"signal 9"}
    assert found["generations"] >= 50, "one without the rank, and one with it again, each time"
    assert all(committed == total for committed, total in found["accounts"][:-1])
    steps, used = steps_of(folder, 0), []
    for life, path in enumerate(deaths):
        died_at = float(path.read_text())
        survivor = [step for step in steps if step[0] > died_at]
        # The first may have begun before the survivor came to the all-reduce that nobody joins.
        assert survivor[1][0] - died_at < 3
        assert steps_of(folder, 1, life + 1)[0][0] - died_at < 6
        used.append(-survivor[1][1])
    assert max(used[-5:]) - max(used[:5]) < 64 << 20


def test_a_frozen_rank_is_replaced(run):
    found = run("freeze", "--epochs", 40, FLODL_NET_TIMEOUT_SCALE="0.2")
    assert found["accounts"] == whole(40)
    assert found["deaths"] == ["frozen"]


@pytest.mark.parametrize("mode", ["nccl_sync", "nccl_cadence"])
def test_captured_steps_outlive_a_generation(run, mode):
    found = run("between", "--epochs", 12, "--capture", "auto", "--mode", mode)
    assert found["accounts"] == whole(12)
    assert found["deaths"] == ["signal 9"]
    assert found["accuracy"][-1] > 0.9


def test_a_rank_without_memory_splits_its_batch(run):
    options = ("--epochs", 4, "--batch", 256)
    split, plain = (run(what, *options, folder=what) for what in ("oom", "train"))
    assert split["accounts"] == plain["accounts"] == whole(4)
    assert split["deaths"] == []
    assert split["loss"] == pytest.approx(plain["loss"], rel=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_all_modes_learn_the_task(run, mode, seed):
    found = run("train", "--mode", mode, "--seed", seed, "--epochs", 8, "--capture", "auto")
    assert found["accounts"] == whole(8)
    assert found["accuracy"][-1] > 0.95
