"""The front door: takes a command line apart and hands it to help, a built-in, or the manifest.

Standard library only: what is heavier loads when a command needs it.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130

try:
    import errno
    from collections.abc import Sequence
    from typing import TYPE_CHECKING

    from flodl_cli import __version__
    from flodl_cli.context.application import AppContext, build_context, wants_traceback
    from flodl_cli.context.flags import CommandLine, GlobalFlags, scan
    from flodl_cli.errors import ConfigError, ConfigErrors, FdlError, OverlayError, UsageError
    from flodl_cli.names import BUILTIN_COMMANDS, COMPLETE
    from flodl_cli.routing.availability import refuse_unavailable
    from flodl_cli.terminal import Terminal
except KeyboardInterrupt:  # Ctrl-C while the program loads is no traceback either
    sys.exit(_INTERRUPTED)

if TYPE_CHECKING:
    from flodl_cli.config.tree import Level

_REFUSALS: dict[int | None, str] = {
    errno.ENOSPC: "make room, then run the same command again",
    errno.EDQUOT: "make room, then run the same command again",
    errno.EACCES: "check whose it is, and its permissions",
    errno.EPERM: "check whose it is, and its permissions",
    errno.EROFS: "this file system can only be read: choose another place",
}
"""What a system refuses to any program, such as room on a full disk, and what to do about it."""

_USE_OVERLAYS = ("config", "schema", "probe")


def entry_point() -> None:
    """The ``fdl`` program."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    argv = list(argv)
    terminal, trace = Terminal(), wants_traceback(GlobalFlags())
    if argv[:1] == [COMPLETE]:
        from flodl_cli.routing.completing import answer

        return answer(argv[1:], terminal)
    try:
        line = scan(argv)
        trace = wants_traceback(line.flags)
        context = build_context(line.flags, line.tail)
        terminal = context.terminal
        code = _dispatch(line, context)
        _speak_of_updates(argv, line, context)
        return code
    except FdlError as error:
        terminal.error(error, trace=trace)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader has gone, and knows it
        return 1
    except Exception as error:  # noqa: BLE001 - the last line before the user: say it once, plainly
        terminal.error(_unforeseen(error), trace=trace)
        return 1


def _speak_of_updates(argv: Sequence[str], line: CommandLine, context: AppContext) -> None:
    """Say last of all that a newer version is out; never for programs, and never for help."""
    flags = line.flags
    if flags.help or flags.version or not line.words or flags.verbosity == 0 or "--json" in argv:
        return
    if sys.stderr is None or not sys.stderr.isatty():
        return
    from flodl_cli.updates.check import is_wanted, nudge

    if is_wanted(context.environ):
        nudge(context.directory, context.terminal)


def _dispatch(line: CommandLine, context: AppContext) -> int:
    flags = line.flags
    if flags.version and not flags.help:
        context.terminal.print(f"flodl-cli {__version__}")
        return 0
    builtin = bool(line.words) and line.words[0] in BUILTIN_COMMANDS
    if builtin and (flags.help or line.words[0] not in _USE_OVERLAYS):
        return _builtin(line, context)
    from flodl_cli.routing.selection import select_overlay

    try:
        chosen = select_overlay(line, context.directory, context.environ, context.terminal)
    except (OverlayError, ConfigError, ConfigErrors) as error:
        if flags.help or not line.words:
            return _root_help(context, error)
        raise
    line, overlay = chosen
    context = context._replace(overlay=overlay)
    if not line.words:
        return _root_help(context)
    if line.words[0] in BUILTIN_COMMANDS:
        return _builtin(line, context)
    if not flags.help:
        refuse_unavailable(flags)
    return _project_command(line, context)


def _project_command(line: CommandLine, context: AppContext) -> int:
    from flodl_cli.config.project import open_project
    from flodl_cli.routing.templates import offer_copy
    from flodl_cli.routing.walk import ShowHelp, walk

    offer_copy(context, may_ask=not line.flags.help)
    try:
        root = open_project(context.directory, context.overlay, context.environ)
    except (ConfigError, ConfigErrors) as error:
        if line.flags.help:
            return _root_help(context, error)
        raise
    plugin = _plugin(line, root, context)
    if plugin is not None:
        return plugin
    if root is None:
        raise _no_project(line.words[0], context)
    try:
        outcome = walk(root, line)
    except (ConfigError, ConfigErrors):
        if line.flags.help:
            return _root_help(context)
        raise
    if isinstance(outcome, ShowHelp):
        from flodl_cli.routing.helptext import command_help

        context.terminal.print(command_help(outcome, context.terminal))
        return 0
    from flodl_cli.routing.dispatch import execute

    return execute(outcome, root, context)


def _plugin(line: CommandLine, root: Level | None, context: AppContext) -> int | None:
    """Run a plug-in when the first word names no command but does name one."""
    if root is not None and line.words[0] in root.commands:
        return None
    from flodl_cli.routing.plugins import find_plugin, run_plugin

    directory = root.directory if root is not None else context.directory
    program = find_plugin(line.words[0], directory, context.environ)
    return None if program is None else run_plugin(program, line, directory, context)


def _root_help(context: AppContext, problem: FdlError | None = None) -> int:
    from flodl_cli.config.project import open_project
    from flodl_cli.routing.helptext import root_help

    root = None
    if problem is None:
        try:
            root = open_project(context.directory, context.overlay, context.environ)
        except FdlError as error:
            problem = error
    context.terminal.print(root_help(root, problem, context.overlay, context.terminal))
    return 0


def _builtin(line: CommandLine, context: AppContext) -> int:
    from flodl_cli.app import run_builtin

    flags = line.flags
    name, *words = line.words
    useless = [
        flag
        for flag, given in (
            ("--gpus", flags.gpus is not None),
            ("--no-append", flags.no_append),
            ("--explain", flags.explain),
            ("--refresh-schema", flags.refresh_schema),
            ("--no-prebuild", flags.no_prebuild),
            ("--env", flags.overlay is not None and name not in _USE_OVERLAYS),
        )
        if given
    ]
    if useless:
        raise UsageError(
            f"{useless[0]} has no effect on the built-in command {name!r}",
            hint="it is for commands of a manifest",
        )
    if flags.help:
        words.append("--help")
    if line.tail is not None:
        words += ["--", *line.tail]
    return run_builtin(name, words, context)


def _no_project(word: str, context: AppContext) -> UsageError:
    from flodl_cli.routing.walk import unknown_command

    return unknown_command(
        word,
        (),
        tuple(BUILTIN_COMMANDS),
        hint=f"no fdl.yml in {context.directory} or above: go to a project for its own commands",
    )


def _unforeseen(error: Exception) -> FdlError:
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        about = f"{error.filename}: " if error.filename else ""
        return FdlError(f"{about}{error.strerror}", hint=_REFUSALS[error.errno])
    return FdlError(
        f"fdl failed in a way it should not: {type(error).__name__}: {error}",
        hint="run it again with -vvv to see where, and report that",
    )


if __name__ == "__main__":
    entry_point()
