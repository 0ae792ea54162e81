"""Damaged files, and saves that are killed: nothing crashes, hangs, or loads as what it is not."""

import gzip
import io
import json
import random
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from flodl.checkpoint import checkpoint_info, load_checkpoint, save_checkpoint
from flodl.core.errors import CheckpointError

TENSORS = {
    "layer.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "layer.bias": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "empty": torch.empty(0, 2),
}


def whole_file():
    stream = io.BytesIO()
    save_checkpoint(stream, TENSORS, hash="a" * 64, meta={"epoch": 1}, label="net")
    return stream.getvalue()


def legacy_file():
    raw = struct.pack("<12f", *range(12))
    entry = struct.pack("<I", 12) + b"layer/weight" + struct.pack("<Iqq", 2, 3, 4)
    head = b"FDLC" + struct.pack("<I", 2) + bytes(32) + struct.pack("<I", 1)
    return head + entry + struct.pack("<BQ", 3, len(raw)) + raw


def mutate(data, rng):
    """Return the bytes with a few random changes, some of them of the header's JSON."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(6)
        place = rng.randrange(len(data)) if data else 0
        if kind == 0 and data:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            data[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
        elif kind == 3 and data:
            del data[place : place + rng.randint(1, 9)]
        elif kind == 4 and len(data) >= 8:
            data[:8] = struct.pack("<Q", rng.choice([0, 1, 2**20, 2**40, 2**63, 2**64 - 1]))
        elif data:
            number = str(rng.choice([-1, 0, 2**31, 2**62, 2**70])).encode()
            digits = [i for i, byte in enumerate(data[8:2000], 8) if 48 <= byte <= 57]
            if digits:
                at = rng.choice(digits)
                data[at : at + 1] = number
    return bytes(data)


def check_one(path, content):
    """Load a changed file: it is refused, or its content is proven to be the original's."""
    path.write_bytes(content)
    targets = {name: torch.full_like(value, 3) for name, value in TENSORS.items()}
    before = {name: value.clone() for name, value in targets.items()}
    try:
        report = load_checkpoint(path, targets, max_bytes=1 << 20)
    except CheckpointError:
        assert all(torch.equal(before[name], value) for name, value in targets.items())
        return False
    info = checkpoint_info(path)
    if info.version == 3 and info.kind == "model" and info.hash:
        # The digest holds, so nothing that it covers was changed.
        for name in report.loaded:
            assert torch.equal(targets[name], TENSORS[name])
    return True


def fuzz(tmp_path, count, seed):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))
    rng, started, slowest = random.Random(seed), time.monotonic(), 0.0
    sources = [whole_file(), gzip.compress(whole_file()), legacy_file()]
    try:
        for _ in range(count):
            begun = time.monotonic()
            check_one(tmp_path / "a.fdl", mutate(rng.choice(sources), rng))
            slowest = max(slowest, time.monotonic() - begun)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert slowest < 30, "one file took as long as a hang"
    return time.monotonic() - started


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory through Linux")
def test_changed_files_are_refused_or_proven(tmp_path):
    fuzz(tmp_path, 400, seed=0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory through Linux")
def test_ten_thousand_changed_files_are_refused_or_proven(tmp_path):
    fuzz(tmp_path, 10_000, seed=1)


def test_the_unchanged_files_load(tmp_path):
    for content in (whole_file(), gzip.compress(whole_file()), legacy_file()):
        assert check_one(tmp_path / "a.fdl", content)


def test_header_that_promises_more_than_there_is_allocates_nothing(tmp_path):
    header = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(header).encode()
    (tmp_path / "a.fdl").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(CheckpointError, match="truncated"):
        load_checkpoint(tmp_path / "a.fdl", {"a": torch.zeros(1)})


KILLER = """
import os, random, signal, sys, time, torch
from flodl.checkpoint import load_checkpoint, save_checkpoint

path, kills = sys.argv[1], int(sys.argv[2])
rng = random.Random(0)
torch.set_num_threads(1)

def save_forever():
    step = 0
    while True:
        step += 1
        values = {"a": torch.full((1 << 18,), float(step)), "b": torch.tensor(step)}
        save_checkpoint(path, values)

for _ in range(kills):
    child = os.fork()
    if child == 0:
        save_forever()
    deadline = time.monotonic() + 0.02 + rng.random() * 0.08
    while time.monotonic() < deadline or not os.path.exists(path):
        pass  # the moment of the kill is random; nothing is waited for
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    target = {"a": torch.zeros(1 << 18), "b": torch.tensor(0)}
    assert load_checkpoint(path, target, strict=True).is_complete
    assert torch.equal(target["a"], torch.full((1 << 18,), float(target["b"])))
print("sound after", kills)
"""


def killed_saves(path, kills):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLER, str(path), str(kills)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout == f"sound after {kills}\n", done.stderr


@pytest.mark.multiproc
@pytest.mark.slow
def test_two_hundred_killed_saves_leave_a_sound_file(tmp_path):
    killed_saves(tmp_path / "a.fdl", 200)


@pytest.mark.multiproc
def test_killed_saves_leave_a_sound_file(tmp_path):
    killed_saves(tmp_path / "a.fdl", 10)
