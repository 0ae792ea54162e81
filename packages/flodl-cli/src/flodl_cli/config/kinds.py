"""Which kind a command is, and which of its keys that kind has no use for."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from flodl_cli.config.model import CommandSpec
from flodl_cli.config.presets import BLOCKS

PRESET_KEYS = ("entry", "args", *BLOCKS)


class Kind(StrEnum):
    """What running a command means."""

    RUN = "run"
    PATH = "path"
    PRESET = "preset"


def kind_of(spec: CommandSpec, *, has_entry: bool) -> Kind:
    """The kind of a command in a manifest that has, or has not, an ``entry``."""
    if spec.run is not None:
        return Kind.RUN
    if spec.path is not None or not has_entry:
        return Kind.PATH
    return Kind.PRESET


def misplaced(spec: CommandSpec, kind: Kind) -> Iterator[tuple[str, str, str]]:
    """Key, message and hint for every key that ``kind`` cannot have."""
    if kind is Kind.RUN:
        if spec.path is not None:
            yield (
                "path",
                "run and path exclude each other",
                "keep run for a shell line, path for a way to another manifest",
            )
        for key in PRESET_KEYS:
            if getattr(spec, key) is not None:
                yield key, f"{key} has no effect on a run command", "write it into the run line"
        return
    if spec.append is not None:
        yield (
            "append",
            f"append belongs to a run command, and this is a {kind} command",
            "use args to pin arguments",
        )
    if spec.docker is not None:
        yield (
            "docker",
            f"docker belongs to a run command, and this is a {kind} command",
            "put docker beside the entry that it shall wrap",
        )
