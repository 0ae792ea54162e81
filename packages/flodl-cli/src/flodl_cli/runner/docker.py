"""Wraps commands for a compose service: ``docker compose run --rm SERVICE bash -c LINE``."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from flodl_cli.errors import FdlError
from flodl_cli.terminal import listed
from flodl_sys import names as variables

_COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_DEFAULT_ROOT = "/workspace"
_ANY_GPU = "gpu"


class Compose(NamedTuple):
    """A compose file: its folder, and for each service where that folder is mounted."""

    directory: str
    roots: Mapping[str, str]


def find_compose(directory: str) -> Compose:
    """The nearest compose file from ``directory`` upwards.

    Raises:
        FdlError: There is none, or it cannot be read.
    """
    for folder in (Path(directory), *Path(directory).parents):
        for name in _COMPOSE_FILES:
            if (folder / name).is_file():
                return Compose(str(folder), _roots(folder / name))
    raise FdlError(
        f"no compose file in {directory} or above; names: {listed(_COMPOSE_FILES)}",
        hint="add one with the service, or remove docker from the manifest",
        exit_code=2,
    )


def pick_service(asked: str, compose: Compose, feature: str) -> tuple[str, str | None]:
    """The service to use, and a remark when it is not the first choice.

    ``gpu`` stands for ``cuda`` or ``rocm``, by the kind of GPU code in the project's torch.
    """
    if asked != _ANY_GPU:
        return asked, None
    wanted = feature or "cuda"
    if wanted == "rocm" and "rocm" not in compose.roots:
        return "cuda", "the compose file has no service rocm: using cuda"
    return wanted, None


def wrap_line(line: str, service: str, env: Mapping[str, str]) -> list[str]:
    """A shell line of a run command, in the folder that the service starts in."""
    return [*_run(env), service, "bash", "-c", line]


def wrap_entry(
    argv: Sequence[str], directory: str, service: str, compose: Compose, env: Mapping[str, str]
) -> list[str]:
    """An entry, in the folder of its manifest as the container sees it."""
    root = compose.roots.get(service, _DEFAULT_ROOT)
    below = os.path.relpath(directory, compose.directory)
    inside = str(PurePosixPath(root, *Path(below).parts))
    line = f"cd {shlex.quote(inside)} && exec {shlex.join(argv)}"
    return [*_run({variables.PROJECT_ROOT.name: root, **env}), service, "bash", "-c", line]


def _run(env: Mapping[str, str]) -> list[str]:
    given = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    return ["docker", "compose", "run", "--rm", *given]


def _roots(file: Path) -> dict[str, str]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError) as error:
        raise FdlError(f"{file} cannot be read: {error}", exit_code=2) from error
    services = data.get("services") if isinstance(data, dict) else None
    return {str(name): _root(service) for name, service in (services or {}).items()}


def _root(service: Any) -> str:
    """Where the service has the folder of the compose file."""
    volumes = service.get("volumes") if isinstance(service, dict) else None
    for volume in volumes or ():
        if isinstance(volume, dict):
            source, target = volume.get("source"), volume.get("target")
        else:
            source, target, *_ = [*str(volume).split(":"), None]
        if source in (".", "./") and target:
            return str(target)
    return _DEFAULT_ROOT
