"""Carries out what the walk found: composes the command and runs, or explains, it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flodl_cli.config.tree import Level, Program
from flodl_cli.context.application import AppContext
from flodl_cli.context.launching import environment_for, in_service, refresh
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.project.schema import known_schema, wants_probe
from flodl_cli.routing.arguments import check_arguments, without_variables
from flodl_cli.routing.walk import RunEntry, RunScript
from flodl_cli.runner import entry, script
from flodl_cli.runner.launch import Launch, explain, refuse_missing, run


def execute(outcome: RunScript | RunEntry, root: Level, context: AppContext) -> int:
    """Run the command, or print what would be run, and return the exit code.

    Raises:
        FdlError: The command cannot be composed or started.
    """
    if context.flags.refresh_schema:
        return _refresh(outcome, root, context)
    launch = _compose(outcome, root, context)
    if context.flags.explain:
        context.terminal.print(explain(launch, outcome.files))
        return 0
    return run(launch, context.environ, context.terminal)


def run_program(argv: Sequence[str], directory: str, context: AppContext) -> int:
    """Run a program that no manifest describes, or explain it, and return the exit code."""
    launch = Launch(
        shown=shlex.join(argv),
        argv=tuple(argv),
        directory=context.directory,
        env=environment_for({}, directory, context),
    )
    if context.flags.explain:
        context.terminal.print(explain(launch, ()))
        return 0
    return run(launch, context.environ, context.terminal)


def _compose(outcome: RunScript | RunEntry, root: Level, context: AppContext) -> Launch:
    line: str | None = None
    match outcome:
        case RunScript(command=command, tail=tail):
            refuse_missing(command.missing)
            directory, manifest_env, service = command.directory, command.env, command.docker
            shown = line = script.compose(command, tail, append=not context.flags.no_append)
            argv = ["sh", "-c", shown]
        case RunEntry(program=program, words=words):
            refuse_missing(program.missing)
            directory, manifest_env, service = program.directory, program.env, program.docker
            argv = entry.compose(_checked(program, words, root, context), words)
            shown = shlex.join(argv)
    env = environment_for(manifest_env, root.directory, context)
    launch = Launch(shown=shown, argv=tuple(argv), directory=directory, env=env)
    return launch if service is None else in_service(launch, line, service, manifest_env, context)


def _checked(program: Program, words: Sequence[str], root: Level, context: AppContext) -> Program:
    """The program, without flags that its variables stand in for, if the words fit its schema."""
    known = known_schema(program)
    schema = known.schema
    if wants_probe(program, known) and not context.flags.explain:
        try:
            schema = refresh(program, root.directory, context)
        except FdlError as error:
            loud = context.flags.verbosity is not None and context.flags.verbosity > 1
            first = error.message.splitlines()[0]
            context.terminal.note(error.message if loud else f"{first} (more with -v)")
    if schema is None:
        return program
    check_arguments(schema, program, words)
    return program._replace(flags=without_variables(program.flags, schema, context.environ))


def _refresh(outcome: RunScript | RunEntry, root: Level, context: AppContext) -> int:
    if isinstance(outcome, RunScript):
        raise UsageError(
            f"{outcome.command.name} is a line for the shell and has no schema",
            hint="--refresh-schema is for commands with an entry",
        )
    refresh(outcome.program, root.directory, context)
    context.terminal.say(f"schema of {outcome.program.entry} refreshed")
    return 0
