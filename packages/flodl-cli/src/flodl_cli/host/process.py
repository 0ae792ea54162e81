"""Runs a child program in the foreground and passes on its signals and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from flodl_cli.errors import LaunchError

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None

_INTERRUPTED = 130
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Answer(NamedTuple):
    """What a program said before it ended: its exit code, its output, its complaints."""

    code: int
    out: str
    err: str


def ask(
    argv: Sequence[str],
    *,
    directory: str | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    words: str | None = None,
) -> Answer:
    """Run ``argv`` without a terminal, tell it ``words``, and return what it said.

    Raises:
        LaunchError: There is no such program, it may not be executed, or it took too long.
    """
    try:
        done = subprocess.run(
            argv,
            cwd=directory,
            env=env,
            input=words,
            stdin=subprocess.DEVNULL if words is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{argv[0]!r} gave no answer within {limit_s:g} s") from error
    except OSError as error:
        raise LaunchError(
            f"{argv[0]!r} cannot be run: {error.strerror}",
            exit_code=127 if isinstance(error, FileNotFoundError) else 126,
        ) from error
    return Answer(done.returncode, done.stdout, done.stderr)


def run_child(argv: Sequence[str], *, directory: str, env: Mapping[str, str]) -> int:
    """Run ``argv`` to its end and return the code to exit with.

    That is the child's own code; 128+N when signal N ended it; 130 when Ctrl-C came and the
    child did not end well after it. SIGINT, SIGTERM and SIGHUP are passed on to the child.

    Raises:
        LaunchError: There is no such program, or it may not be executed.
    """
    own_group = not _in_foreground()
    relay = _Relay(whole_group=own_group)
    with relay:
        try:
            child = subprocess.Popen(
                argv, cwd=directory, env=env, process_group=0 if own_group else None
            )
        except FileNotFoundError as error:
            raise LaunchError(
                f"there is no program {argv[0]!r} to run",
                hint="install it, or correct the entry",
                exit_code=127,
            ) from error
        except OSError as error:
            raise LaunchError(
                f"{argv[0]!r} cannot be run: {error.strerror}",
                hint="is it executable, and made for this machine?",
                exit_code=126,
            ) from error
        relay.attach(child)
        code = child.wait()
    if relay.interrupted and code != 0:
        return _INTERRUPTED
    return 128 - code if code < 0 else code


def _in_foreground() -> bool:
    """Whether this process group owns a terminal: Ctrl-C then reaches the child by itself.

    A child in a group of its own could not read from that terminal.
    """
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


class _Relay:
    """Passes signals on to the child while it runs."""

    def __init__(self, *, whole_group: bool) -> None:
        self.interrupted = False
        self._whole_group = whole_group
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> None:
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def attach(self, child: subprocess.Popen[bytes]) -> None:
        """Name the child; what came before it was there is passed on now."""
        self._child = child
        for number in self._early:
            self._pass_on(number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupted = True
        if self._child is None:
            self._early.append(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        assert self._child is not None
        if self._whole_group:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._child.pid, number)
        elif number != signal.SIGINT:
            self._child.send_signal(number)
