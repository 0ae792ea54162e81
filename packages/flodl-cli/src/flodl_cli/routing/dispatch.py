"""Carries out what the walk found: composes the command and runs, or explains, it."""

from __future__ import annotations

import shlex

from flodl_cli.config.tree import Level
from flodl_cli.context.application import AppContext
from flodl_cli.names import OVERLAY_VARIABLE
from flodl_cli.routing.availability import refuse_overlay
from flodl_cli.routing.walk import RunEntry, RunScript
from flodl_cli.runner import entry, script
from flodl_cli.runner.launch import (
    ChildSettings,
    Launch,
    child_environment,
    explain,
    refuse_missing,
    run,
)


def execute(outcome: RunScript | RunEntry, root: Level, context: AppContext) -> int:
    """Run the command, or print what would be run, and return the exit code.

    Raises:
        FdlError: The command cannot be composed or started.
    """
    refuse_overlay(context.environ.get(OVERLAY_VARIABLE) or None, f"${OVERLAY_VARIABLE}")
    launch = _compose(outcome, root, context)
    if context.flags.explain:
        context.terminal.print(explain(launch, outcome.files))
        return 0
    return run(launch, context.environ, context.terminal)


def _compose(outcome: RunScript | RunEntry, root: Level, context: AppContext) -> Launch:
    flags = context.flags
    match outcome:
        case RunScript(command=command, tail=tail):
            refuse_missing(command.missing)
            directory, manifest_env = command.directory, command.env
            shown = script.compose(command, tail, append=not flags.no_append)
            argv = ["sh", "-c", shown]
        case RunEntry(program=program, words=words):
            refuse_missing(program.missing)
            directory, manifest_env = program.directory, program.env
            argv = entry.compose(program, words)
            shown = shlex.join(argv)
    settings = ChildSettings(
        verbosity=flags.verbosity,
        color=flags.color,
        gpus=flags.gpus,
        project_root=root.directory,
    )
    return Launch(
        shown=shown,
        argv=tuple(argv),
        directory=directory,
        env=child_environment(settings, manifest_env, context.environ),
    )
