"""The project a call stands in: its manifest, as a tree of commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flodl_cli import __version__
from flodl_cli.config.discover import find_manifest
from flodl_cli.config.tree import Level, PathCommand, Preset, RunCommand
from flodl_cli.config.tree_cache import load_tree, store_tree
from flodl_cli.config.variables import blocks_of_settings, has_settings, settings_of
from flodl_cli.errors import ConfigError, ConfigErrors, UsageError
from flodl_cli.terminal import listed


def open_project(
    start: str, overlay: str | None = None, environ: Mapping[str, str] | None = None
) -> Level | None:
    """The command tree of the project that the absolute path ``start`` belongs to, if any.

    ``environ`` may hold settings such as ``FDL_TRAINING__EPOCHS``, laid on top of all layers.

    Raises:
        ConfigError, ConfigErrors: The manifest is at fault.
        UsageError: A variable holds what no manifest may hold.
    """
    file = find_manifest(start)
    if file is None:
        return None
    on_top = None
    if environ is not None and has_settings(environ):
        on_top = blocks_of_settings(settings_of(environ))
    else:
        kept = load_tree(file, overlay, __version__)
        if kept is not None:
            return kept
    # Reading YAML and checking it takes ten times as long as all the rest.
    from flodl_cli.config.resolve import resolve

    resolution = resolve(file, overlay, on_top)
    if on_top is None and not any(problems_below(resolution.level)):
        store_tree(resolution.level, overlay, resolution.files, resolution.absent, __version__)
    return resolution.level


def command_at(root: Level, words: Sequence[str]) -> Level | RunCommand | Preset:
    """The command that ``words`` lead to; ``root`` itself when there are none.

    Raises:
        UsageError: They lead nowhere.
        ConfigErrors: They lead to a manifest that has problems.
    """
    here: Level | RunCommand | Preset = root
    for index, word in enumerate(words):
        commands = here.commands if isinstance(here, Level) else {}
        if word not in commands:
            where = f" in {' '.join(words[:index])}" if index else ""
            raise UsageError(f"no command {word!r}{where}; commands: {listed(commands)}")
        found = commands[word]
        if isinstance(found, PathCommand):
            if found.level is None:
                raise ConfigErrors(found.problems)
            here = found.level
        else:
            here = found
    return here


def problems_below(level: Level) -> Iterator[ConfigError]:
    """What is wrong in the manifests below ``level``."""
    for command in level.commands.values():
        if isinstance(command, PathCommand):
            yield from command.problems
            if command.level is not None:
                yield from problems_below(command.level)
