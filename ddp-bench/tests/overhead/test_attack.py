"""What a client that means harm leaves behind in the process that serves: nothing."""

import json
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ddp_bench.overhead import attack
from flodl.testing.fake_run import FakeRun, FakeRunShape, serve_board

ATTACKED_S = 4.0


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def soon(url):
    """The answer, once the server has recovered: what came too fast is paid back first."""
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            assert error.code == 503
            assert time.monotonic() < end


@pytest.mark.parametrize("kind", list(attack.KINDS))
def test_the_same_seed_asks_the_same(kind):
    make = attack.KINDS[kind]
    first, second = ([make(rng) for _ in range(20)] for rng in (random.Random(1), random.Random(1)))
    assert first == second
    assert len(set(first)) > 1


@pytest.mark.slow
def test_a_server_under_attack_answers_afterwards_and_leaks_nothing():
    run = FakeRun(FakeRunShape(ranks=4, hosts=2, epochs=100, windows=20))
    run.run_epochs(1)
    threads, before = threading.active_count(), descriptors()
    server = serve_board(run.board)
    command = [sys.executable, "-m", "ddp_bench.overhead.attack", str(server.port)]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "open\n"
            end = time.monotonic() + ATTACKED_S
            while time.monotonic() < end:
                run.step()
                time.sleep(0.05)
            assert server._hub.stream_count <= 64
            assert descriptors() < before + 300
            process.stdin.close()
            answers = json.loads(process.stdout.read())
        assert not [line for kind in answers.values() for line in kind if " 500 " in line]
        assert sum(answers["stream"].values()) > 0
        assert sum(answers["noise"].values()) > 0
        assert json.loads(soon(f"http://127.0.0.1:{server.port}/healthz"))["status"] == "running"
    finally:
        server.stop()
    deadline = time.monotonic() + 10
    while threading.active_count() > threads or descriptors() > before:
        assert time.monotonic() < deadline, "something was left behind"
        time.sleep(0.05)
