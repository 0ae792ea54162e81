"""The processes of one model: one an arm, all alive, one at work."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any, Self

from ddp_bench.errors import BenchError
from ddp_bench.speed.arms import Policy
from ddp_bench.speed.workload import Task

READY_S = 600.0
RUN_S = 600.0
_END_S = 20.0
_STDERR_CHARS = 600


class WorkerFailedError(BenchError):
    """A process of the suite said that it failed, ended, or did not answer in time."""


class Worker:
    """One arm of one model in a process of its own.

    Args:
        task: What it measures.
        environment: Variables for it, beside those of this process.
    """

    def __init__(self, task: Task, environment: Mapping[str, str]) -> None:
        self.task = task
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ddp_bench.speed.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment, "OMP_NUM_THREADS": str(task.threads)},
        )
        self._rest = b""
        self._send(dataclasses.asdict(task))

    def ready(self, timeout_s: float = READY_S) -> dict[str, Any]:
        """Return what the worker says of its first epoch, once that is over.

        Raises:
            WorkerFailedError: It failed.
        """
        answer: dict[str, Any] = self._receive(timeout_s)["ready"]
        return answer

    def run(
        self, policy: Policy, epochs: int, *, reset_memory: bool = False, timeout_s: float = RUN_S
    ) -> dict[str, Any]:
        """Train epochs and return them, with the memory that was used.

        Raises:
            WorkerFailedError: It failed.
        """
        self._send({"policy": policy, "epochs": epochs, "reset_memory": reset_memory})
        return self._receive(timeout_s)

    def end(self) -> dict[str, Any]:
        """Let the worker finish and return what it found out.

        Raises:
            WorkerFailedError: It failed.
        """
        self._send({"end": True})
        answer: dict[str, Any] = self._receive(_END_S)["facts"]
        return answer

    def close(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(message) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailedError(self._last_words()) from None

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        line = self._line(time.monotonic() + timeout_s)
        if line is None:
            self._process.kill()
            raise WorkerFailedError(f"no answer within {timeout_s:.0f} s")
        if not line:
            raise WorkerFailedError(self._last_words())
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise WorkerFailedError(message["error"])
        return message

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line, nothing at the end of the stream, ``None`` when it is late."""
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([file], [], [], left)[0]:
                return None
            read = os.read(file, 1 << 16)
            if not read:
                return b""
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        text = " ".join(self._stderr.read().decode(errors="replace").split())
        return f"the process ended with {code}: {text[-_STDERR_CHARS:]}"
