"""What a process of a run is told when it is started, and how it is told.

The environment says which role a process has and carries one JSON document with the rest. The
token of the control port stands apart, so that the document can be logged.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from flodl.core.errors import LaunchError
from flodl_sys import names


class Role(StrEnum):
    """What a process is in a run over several processes."""

    LAUNCHER = "launcher"
    CONTROLLER = "controller"
    RANK = "rank"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlace:
    """The run that a started process belongs to, and its place in it."""

    run: str
    """Identity of the run; letters, digits and dashes."""
    nonce: str
    """Changes with every start, so that a process of an earlier one is told apart."""
    run_dir: str
    ordinal: int = 0
    """Which ``run()`` of the program this is, counted from 0."""
    payload: str | None = None
    """File of pickled objects, where the program cannot be run again."""
    entry: str | None = None
    """``module:function`` that takes the payload."""
    results: str = ""
    """Folder with what the ``run()`` calls before this one returned."""
    host: str = ""
    uid: str = ""
    number: int = -1
    incarnation: int = 0
    device: str = "cpu"
    """Device that the rank uses, as torch names it within the rank."""
    device_index: int = -1
    """Physical index of that device on its host; -1 on the CPU."""
    threads: int | None = None
    """Threads that the rank computes with on the CPU; ``None`` leaves the choice to torch."""
    parent: int = 0
    """Process whose end ends this one; 0 where there is none."""
    data_address: str = "127.0.0.1"
    """Address of the host that other hosts' ranks reach this rank by."""
    link_fd: int = -1
    page_fd: int = -1
    listen_fd: int = -1
    address: str = ""
    """``host:port`` of the controller, where it must be dialed."""
    attempt: int = 0
    """Times that the controller was started before."""

    def to_json(self) -> str:
        """Return the document that a process is given."""
        return json.dumps(dataclasses.asdict(self))

    def environ(self, role: Role) -> dict[str, str]:
        """Return the variables that tell a process its role and place."""
        return {names.INTERNAL_ROLE.name: role.value, names.INTERNAL_RUN.name: self.to_json()}


def role_of(environ: Mapping[str, str] = os.environ) -> Role:
    """Return what this process is; a process that nobody assigned a role is a launcher.

    Raises:
        LaunchError: The variable holds something else than a role.
    """
    text = environ.get(names.INTERNAL_ROLE.name) or Role.LAUNCHER.value
    try:
        return Role(text)
    except ValueError:
        raise LaunchError(
            f"{names.INTERNAL_ROLE.name}={text!r}: there are {', '.join(Role)}",
            hint=f"unset {names.INTERNAL_ROLE.name}: flodl sets it for the processes it starts",
        ) from None


def place_of(environ: Mapping[str, str] = os.environ) -> RunPlace:
    """Return the place of a process that was given one.

    Raises:
        LaunchError: The variable is missing, or holds no such document.
    """
    text = environ.get(names.INTERNAL_RUN.name) or ""
    try:
        return RunPlace(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise LaunchError(
            f"{names.INTERNAL_RUN.name} holds no place in a run: {error}",
            hint=f"unset {names.INTERNAL_ROLE.name}: flodl sets it for the processes it starts",
        ) from error
