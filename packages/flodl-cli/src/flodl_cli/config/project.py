"""The project a call stands in: its manifest, as a tree of commands."""

from __future__ import annotations

from collections.abc import Iterator

from flodl_cli import __version__
from flodl_cli.config.discover import find_manifest
from flodl_cli.config.tree import Level, PathCommand
from flodl_cli.config.tree_cache import load_tree, store_tree
from flodl_cli.errors import ConfigError


def open_project(start: str) -> Level | None:
    """The command tree of the project that the absolute path ``start`` belongs to, if any.

    Raises:
        ConfigError, ConfigErrors: The manifest is at fault.
    """
    file = find_manifest(start)
    if file is None:
        return None
    kept = load_tree(file, __version__)
    if kept is not None:
        return kept
    # Reading YAML and checking it takes ten times as long as all the rest.
    from flodl_cli.config.resolve import resolve

    resolution = resolve(file)
    if not any(problems_below(resolution.level)):
        store_tree(resolution.level, resolution.files, resolution.absent, __version__)
    return resolution.level


def problems_below(level: Level) -> Iterator[ConfigError]:
    """What is wrong in the manifests below ``level``."""
    for command in level.commands.values():
        if isinstance(command, PathCommand):
            yield from command.problems
            if command.level is not None:
                yield from problems_below(command.level)
