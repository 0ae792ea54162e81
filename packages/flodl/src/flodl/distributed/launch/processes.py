"""The two processes that a launcher starts, and the port that it opens for them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import Role, RunPlace
from flodl.distributed.hostd.command import Command
from flodl.distributed.hostd.options import HostOptions
from flodl_sys import names

_DAEMON = ("-P", "-m", "flodl.distributed.hostd")
_PAYLOAD = ("-c", "from flodl.distributed.hostd.birth import enter_payload; enter_payload()")
_BACKLOG = 128


def bound_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one.

    Raises:
        LaunchError: Nobody can listen there.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise LaunchError(
            f"the controller cannot listen on {host}:{port}: {error.strerror}",
            hint="choose another port, or 0 to take any free one",
        ) from error
    return listener


def start_daemon(options: HostOptions) -> subprocess.Popen[bytes]:
    """Start the host daemon of this host, and tell it its options on its standard input.

    Raises:
        LaunchError: The system starts no process.
    """
    daemon = _started([sys.executable, *_DAEMON], stdin=subprocess.PIPE)
    assert daemon.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed elsewhere
        daemon.stdin.write(options.to_json().encode() + b"\n")
        daemon.stdin.close()
    return daemon


def start_controller(
    place: RunPlace, command: Command | None, token: str, log: Path
) -> subprocess.Popen[bytes]:
    """Start the controller, with all devices hidden.

    Args:
        place: Its place in the run, with the listening socket that it inherits.
        command: Program to run again; ``None`` where the place names a payload.
        token: The run's token.
        log: File that its output is appended to.

    Raises:
        LaunchError: The system starts no process.
    """
    environ = {
        **os.environ,
        **place.environ(Role.CONTROLLER),
        names.INTERNAL_TOKEN.name: token,
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
    }
    with log.open("ab") as stream:
        return _started(
            [sys.executable, *(_PAYLOAD if command is None else command.words)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environ,
            pass_fds=(place.listen_fd,),
        )


def _started(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    try:
        process: subprocess.Popen[bytes] = subprocess.Popen(argv, start_new_session=True, **options)
    except OSError as error:
        raise LaunchError(f"{argv[0]} cannot be started: {error.strerror}") from error
    return process
