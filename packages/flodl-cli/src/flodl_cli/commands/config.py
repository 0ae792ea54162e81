"""``fdl config``: shows what a manifest comes to, checks manifests, and prints their schema."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.config.check import Report, check, manifest_schema, write_text
from flodl_cli.config.discover import find_manifest
from flodl_cli.config.layers import load_layers
from flodl_cli.config.overlay import require_overlay
from flodl_cli.config.project import command_at, open_project
from flodl_cli.config.show import Line, aligned, as_data, show
from flodl_cli.config.tree import Level, Preset, Program, RunCommand
from flodl_cli.config.variables import settings_of
from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import ConfigErrors, UsageError
from flodl_cli.runner import entry, script
from flodl_cli.terminal import Paint, listed, shown_path

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Show what the manifests of a project come to, check them, print what one may hold."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


@app.command("show")
def show_command(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENV", help="Overlay; the active one by default."),
    ] = None,
    command: Annotated[
        bool, typer.Option("--command", help="The words name a command: show what it runs with.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the values as JSON.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Leave out where values are from.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also name what an overlay deleted.")
    ] = False,
) -> int:
    """Print the merged manifest. Each value says which file and line it is from."""
    context = context_of(ctx.obj)
    if command:
        return _show_command(context, words or [], as_json=as_json)
    if words and len(words) > 1:
        raise UsageError(
            f"one overlay can be shown, and {len(words)} are named: {listed(words)}",
            hint="add --command to show a command",
        )
    env = words[0] if words else None
    overlay = env or context.overlay
    manifest = _manifest(context)
    if env is not None:
        require_overlay(context.directory, env, "config show")
    layers, settings = load_layers(manifest, overlay), settings_of(context.environ)
    if as_json:
        context.terminal.print(json.dumps(as_data(layers, settings), indent=2))
        return 0
    lines = aligned(show(layers, settings, everything=everything))
    if plain:
        kept = [line.text.rstrip() for line in lines if not line.text.startswith("#")]
        context.terminal.print("\n".join(kept))
        return 0
    heading = f"# resolved manifest, base{' + overlay' if overlay is not None else ''}"
    paint = context.terminal.paint
    context.terminal.print("\n".join([heading, *(_painted(line, paint) for line in lines)]))
    return 0


@app.command("check")
def check_command(
    ctx: typer.Context,
    all_envs: Annotated[
        bool, typer.Option("--all-envs", help="Check with every overlay, one after the other.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> int:
    """Check fdl.yml and every manifest below it."""
    context = context_of(ctx.obj)
    report = check(context.directory, context.overlay, all_envs=all_envs)
    for note in report.notes:
        context.terminal.note(note)
    if as_json:
        context.terminal.print(json.dumps(_as_data(report), indent=2))
        return 2 if report.problems else 0
    if report.problems:
        raise ConfigErrors(report.problems)
    for file in report.files:
        context.terminal.print(f"{shown_path(file)}: ok")
    return 0


@app.command("schema")
def schema_command(
    ctx: typer.Context,
    out: Annotated[Path | None, typer.Option(help="File to write instead of stdout.")] = None,
) -> int:
    """Print the JSON Schema of fdl.yml, for editors."""
    if out is None:
        context_of(ctx.obj).terminal.print(manifest_schema())
    else:
        write_text(out, manifest_schema())
    return 0


def _show_command(context: AppContext, words: list[str], *, as_json: bool) -> int:
    """The effective settings of one command, and the words that it runs."""
    root = open_project(context.directory, context.overlay, context.environ)
    if root is None:
        _manifest(context)
    target = command_at(root, words) if root is not None else None
    match target:
        case RunCommand():
            settings, argv = {}, ["sh", "-c", script.compose(target, ())]
        case Level(program=Program() as program) | Preset(program=program):
            settings, argv = program.settings, entry.compose(program, ())
        case _:
            raise UsageError(f"{' '.join(words) or 'the manifest'} has no entry to run")
    if as_json:
        context.terminal.print(json.dumps({"settings": settings, "argv": argv}, indent=2))
        return 0
    lines = [f"{name}: {value}" for name, value in settings.items()]
    context.terminal.print("\n".join([*lines, f"# runs: {shlex.join(argv)}"]))
    return 0


def _manifest(context: AppContext) -> str:
    manifest = find_manifest(context.directory)
    if manifest is None:
        raise UsageError(
            f"no fdl.yml in {context.directory} or above",
            hint="go to the project that is to be shown",
        )
    return manifest


def _painted(line: Line, paint: Paint) -> str:
    return line.text + paint.aside(line.tag)


def _as_data(report: Report) -> dict[str, object]:
    return {
        "files": list(report.files),
        "problems": [
            {
                "file": problem.file,
                "line": problem.line,
                "key_path": problem.key_path,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in report.problems
        ],
        "notes": list(report.notes),
    }
