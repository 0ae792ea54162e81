"""``fdl config``: checks manifests and prints their schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.config.check import Report, check, manifest_schema, write_text
from flodl_cli.context.application import AppContext, build_context
from flodl_cli.context.flags import GlobalFlags
from flodl_cli.errors import ConfigErrors
from flodl_cli.terminal import shown_path

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Check the manifests of a project, and print what a manifest may hold."""
    if ctx.invoked_subcommand is None:
        _context(ctx).terminal.print(ctx.get_help())


@app.command("check")
def check_command(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> int:
    """Check fdl.yml and every manifest below it."""
    context = _context(ctx)
    report = check(context.directory)
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
        _context(ctx).terminal.print(manifest_schema())
    else:
        write_text(out, manifest_schema())
    return 0


def _context(ctx: typer.Context) -> AppContext:
    """The context of the front door; one of its own when the app is run without it."""
    return ctx.obj if isinstance(ctx.obj, AppContext) else build_context(GlobalFlags())


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
    }
