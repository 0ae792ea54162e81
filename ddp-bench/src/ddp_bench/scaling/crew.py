"""Starts the ranks of an arm, lets them train for their time, and ends them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from ddp_bench.errors import BenchError
from ddp_bench.scaling import torch_arms, torchft_arms
from ddp_bench.scaling.flodl_arm import MODES, wait_for_steps
from ddp_bench.scaling.task import Task

_PRELOADED = ["torch._dynamo", "ddp_bench.scaling.torch_arms"]
_BEGIN_S = 60.0
_END_S = 60.0
_LEAVE_S = 20.0
_LOG_CHARS = 800


def context() -> ForkServerContext:
    """Return what starts ranks of torch as copies of one process that has imported everything."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOADED)
    return found


def run(task: Task) -> None:
    """Run an arm; what it measured is in the task's folder afterwards.

    Raises:
        BenchError: It did not train, or did not end.
    """
    if task.arm in MODES:
        _run_flodl(task)
    elif task.arm in torchft_arms.NAMES:
        _run_forked(task, torchft_arms.run_rank)
    else:
        _run_forked(task, torch_arms.run_rank)


def _run_forked(task: Task, target: Callable[[Task, int, int], None]) -> None:
    """Run ranks that train until they are killed: all that matters is on disk at each step."""
    start = context()
    port, count = free_port(), 1 if task.arm == "solo" else task.ranks
    ranks = [
        start.Process(target=target, args=(task, rank, port), daemon=True) for rank in range(count)
    ]
    try:
        for rank in ranks:
            rank.start()
        started = wait_for_steps(task, _BEGIN_S, lambda: _any_ended(ranks))
        while time.monotonic() < started + task.run_s:
            if _any_ended(ranks):
                codes = [rank.exitcode for rank in ranks]
                raise BenchError(f"{task.arm}: its ranks ended early, with {codes}")
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.join()


def _any_ended(ranks: list[ForkServerProcess]) -> bool:
    return any(not rank.is_alive() for rank in ranks)


def _run_flodl(task: Task) -> None:
    file = Path(task.folder) / "task.json"
    file.write_text(task.to_json(), encoding="utf-8")
    log = Path(task.folder) / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ddp_bench.scaling.flodl_arm", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=user_environment(),
        )
        try:
            code = process.wait(_BEGIN_S + task.run_s + _END_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    if code != 0:
        text = log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS:]
        how = "did not end in time" if code is None else f"ended with {code}"
        raise BenchError(f"{task.arm}: {how}: {text}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that did not; one that is killed at once leaves its run to be taken up."""
    process.terminate()
    try:
        process.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def user_environment() -> dict[str, str]:
    """Return the variables of this process for programs that are to start as a user's do.

    Compiled modules are written and read: without them, each process compiles all that it imports.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
