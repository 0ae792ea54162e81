"""Turns a composed command into a running child, or into words for ``--explain``."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flodl_cli.config.tree import Missing
from flodl_cli.errors import ConfigError
from flodl_cli.host.process import run_child
from flodl_cli.runner.gpus import GpuScope, device_masks
from flodl_cli.terminal import Terminal, shown_path
from flodl_sys import names as variables

_NORMAL_VERBOSITY = "1"
_CRASHES = ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")


class Launch(NamedTuple):
    """A command ready to run: ``shown`` for people, the rest for the system.

    ``env`` holds only what is added to the environment.
    """

    shown: str
    argv: tuple[str, ...]
    directory: str
    env: Mapping[str, str]


class ChildSettings(NamedTuple):
    """What the global flags and the project add to the environment of every child."""

    verbosity: int | None
    color: bool | None
    gpus: GpuScope | None
    project_root: str
    overlay: str | None = None
    gpu_feature: str = ""


def child_environment(
    settings: ChildSettings, manifest_env: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables added for a child: the manifest's, below what the command line asks for.

    Raises:
        FdlError: All GPUs are asked for, and none is found.
    """
    env = dict(manifest_env)
    known = {**environ, **manifest_env}
    if settings.verbosity is not None:
        env[variables.VERBOSITY.name] = str(settings.verbosity)
    elif not known.get(variables.VERBOSITY.name):
        env[variables.VERBOSITY.name] = _NORMAL_VERBOSITY
    if settings.color is not None:
        env[variables.COLOR.name] = "always" if settings.color else "never"
    elif not known.get(variables.COLOR.name):
        env[variables.COLOR.name] = "auto"
    env[variables.PROJECT_ROOT.name] = settings.project_root
    env[variables.GPU_FEATURE.name] = settings.gpu_feature
    if settings.overlay is not None:
        env[variables.ENV.name] = settings.overlay
    program = _own_program()
    if program is not None:
        env[variables.BIN.name] = program
    if settings.gpus is not None:
        env.update(device_masks(settings.gpus))
    return env


def refuse_missing(missing: tuple[Missing, ...]) -> None:
    """Stop a command that needs what this version of fdl does not have.

    Raises:
        ConfigError: ``missing`` is not empty.
    """
    for each in missing:
        raise ConfigError(
            each.message,
            file=each.place.file,
            line=each.place.line,
            key_path=each.place.key_path,
            hint=each.hint,
        )


def run(launch: Launch, environ: Mapping[str, str], terminal: Terminal) -> int:
    """Run the command in the foreground and return the code to exit with."""
    sys.stdout.flush()
    code = run_child(launch.argv, directory=launch.directory, env={**environ, **launch.env})
    crash = next((name for name in _CRASHES if code == 128 + signal.Signals[name]), None)
    if crash is not None:
        terminal.note(f"exit code {code}: ended by {crash}")
    return code


def explain(launch: Launch, files: tuple[str, ...]) -> str:
    """What ``run`` would do, for people to read."""
    rows = [("command", launch.shown), ("directory", launch.directory)]
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(launch.env.items())]
    rows += [("environment" if i == 0 else "", text) for i, text in enumerate(variables)]
    layers = [shown_path(file) for file in files]
    rows += [("layers" if i == 0 else "", text) for i, text in enumerate(layers)]
    return "\n".join(f"{label:13}{text}" for label, text in rows)


def _own_program() -> str | None:
    """The fdl that is running, when it is a program that a child can call."""
    program = Path(sys.argv[0]).absolute()
    callable_ = program.name in ("fdl", "flodl-cli") and os.access(program, os.X_OK)
    return str(program) if callable_ else None
