"""What turns a fresh process into a rank: its order, and the steps from the order to user code.

Both ways to start a rank, the copy of a zygote and the new interpreter, use this module, so a rank
cannot tell them apart by what it finds.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import importlib
import io
import json
import os
import random
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from flodl.distributed.cluster.role import Role, RunPlace
from flodl.distributed.hostd.command import Command, CommandKind

_OWN_FILES = frozenset({__file__, "<frozen runpy>", runpy.__file__})
"""Frames of these stand above a program's own, and are no part of its tracebacks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BirthOrder:
    """A rank to start: its place, what it runs, and its whole environment."""

    place: RunPlace
    environ: dict[str, str]
    cwd: str
    command: Command | None
    """``None`` where the place names a payload instead."""

    def to_json(self) -> str:
        """Return the order as a message."""
        body = {
            "place": dataclasses.asdict(self.place),
            "environ": self.environ,
            "cwd": self.cwd,
            "command": None if self.command is None else self.command.to_body(),
        }
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> BirthOrder:
        """Return the order of a message."""
        body = json.loads(text)
        command = body["command"]
        return cls(
            place=RunPlace(**body["place"]),
            environ=body["environ"],
            cwd=body["cwd"],
            command=None if command is None else Command.from_body(command),
        )

    def with_fds(self, *, link: int, page: int) -> BirthOrder:
        """Return the order for a process in which link and page have these numbers."""
        place = dataclasses.replace(self.place, link_fd=link, page_fd=page)
        return dataclasses.replace(self, place=place)

    def full_environ(self) -> dict[str, str]:
        """Return the environment of the rank, its place included."""
        return {**self.environ, **self.place.environ(Role.RANK)}

    def argv(self) -> list[str]:
        """Return the command line that starts the rank in an interpreter of its own."""
        if self.command is not None:
            return [sys.executable, *self.command.words]
        code = "from flodl.distributed.hostd.birth import enter_payload; enter_payload()"
        return [sys.executable, "-c", code]

    def assume(self) -> None:
        """Make this process, a fresh copy of a zygote, what the order says; user code is next."""
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.full_environ())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        random.seed()
        for module, function in (("numpy.random", "seed"),):
            if module in sys.modules:
                getattr(sys.modules[module], function)()
        if self.place.threads is not None:
            sys.modules["torch"].set_num_threads(self.place.threads)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        gc.enable()

    def enter(self) -> NoReturn:
        """Run the program, or take the payload, and end the process as the interpreter would."""
        leave(_exit_code(enter_payload if self.command is None else self._run_command))

    def _run_command(self) -> None:
        assert self.command is not None
        run_command(self.command)


def leave(code: int) -> NoReturn:
    """End this process as the interpreter would, without taking the interpreter down.

    That would touch all memory that is shared with a zygote, and takes a second where torch is
    loaded; what users can notice of it is done here.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def enter_payload() -> None:
    """Hand the payload of this process's place to the function that takes it."""
    from flodl.distributed.cluster.role import place_of

    place = place_of()
    module, _, function = (place.entry or "").partition(":")
    getattr(importlib.import_module(module), function)(Path(place.payload or ""))


def _exit_code(main: Callable[[], None]) -> int:
    """Run a program's main part and return the status that it ends with."""
    try:
        main()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 (the top of a program)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def run_command(command: Command) -> None:
    """Run a program in this process as if ``python`` had been started with it."""
    if command.kind is CommandKind.MODULE:
        _begin_path("" if sys.flags.safe_path else str(Path.cwd()))
        sys.argv = ["-m", *command.args]
        sys.orig_argv = [sys.executable, *command.words]
        runpy.run_module(command.target, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, *command.words]
    if command.kind is CommandKind.CODE:
        _begin_path("")
        sys.argv = ["-c", *command.args]
        source, filename = command.target, "<string>"
    else:
        sys.argv = [command.target, *command.args]
        file = Path(command.target).absolute()
        if file.is_dir() or file.suffix in {".zip", ".pyz"}:
            _begin_path(str(file))  # what runpy puts before it may be relative
            runpy.run_path(command.target, run_name="__main__")
            return
        _begin_path(str(file.resolve().parent))
        # runpy.run_path would take the module away again while threads and exit handlers use it
        with io.open_code(str(file)) as stream:
            source, filename = stream.read().decode("utf-8-sig"), str(file)
        main.__file__ = filename
    exec(compile(source, filename, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _begin_path(entry: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, entry)
