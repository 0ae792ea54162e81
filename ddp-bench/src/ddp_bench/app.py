"""The command line of ddp-bench: parse, call one service, print."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

FAILED, MISUSE, INTERRUPTED = 1, 2, 130
NOTHING_STARTED = "interrupted: nothing was started"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train published set-ups with flodl, and judge the results.",
)

_Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, all talk on stderr.")
]
_Seed = Annotated[int | None, typer.Option(min=0, help="Seed of weights, order and dropout (42).")]
_Output = Annotated[
    Path | None,
    typer.Option(
        help="Folder that <model>/<mode> folders go to (runs/mini; real data: runs).",
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def root(  # noqa: PLR0913 (the signature is the list of options)
    context: typer.Context,
    *,
    list_all: Annotated[bool, typer.Option("--list", help="List models and modes.")] = False,
    as_json: _Json = False,
    model: Annotated[
        str | None, typer.Option(help="Models to train: a comma list, or all (all).")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="Modes to train them in: a comma list, or all (all).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data (the set-up's).")
    ] = None,
    lr_scale: Annotated[
        float | None, typer.Option(help="Factor on the model's learning rate.")
    ] = None,
    no_lr_autoscale: Annotated[
        bool | None,
        typer.Option(
            "--no-lr-autoscale", help="Keep the learning rate in runs longer than the set-up's."
        ),
    ] = None,
    seed: _Seed = None,
    source: Annotated[
        Literal["mini", "real"] | None,
        typer.Option(help="Small data inside the package, or the real data sets (mini)."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the real data sets (flodl's cache folder)."),
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None,
        typer.Option(help="auto: a GPU where torch sees one (auto)."),
    ] = None,
    output: _Output = None,
    save_dashboard: Annotated[
        bool | None,
        typer.Option("--save-dashboard", help="Keep the whole portal as dashboard.html."),
    ] = None,
    dashboard_theme: Annotated[
        Literal["light", "dark", "auto"] | None, typer.Option(help="Look of that page (auto).")
    ] = None,
    record_log: Annotated[
        Path | None, typer.Option(help="Folder to write every record to, a folder for each cell.")
    ] = None,
    reports_per_epoch: Annotated[
        int | None, typer.Option(min=0, help="Reports within each epoch (0).")
    ] = None,
    monitor: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to serve the live portal on, cell after cell."),
    ] = None,
) -> None:
    """Run models in modes, each into its own folder; or run one of the commands below."""
    options = {
        "models": model,
        "modes": mode,
        "epochs": epochs,
        "lr_scale": lr_scale,
        "lr_autoscale": None if no_lr_autoscale is None else not no_lr_autoscale,
        "seed": seed,
        "source": source,
        "data_dir": data_dir,
        "device": device,
        "output": output,
    }
    watched = {
        "save_dashboard": save_dashboard,
        "dashboard_theme": dashboard_theme,
        "record_log": record_log,
        "reports_per_epoch": reports_per_epoch,
        "monitor": monitor,
    }
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    watch: dict[str, Any] = {k: v for k, v in watched.items() if v is not None}
    with _reported():
        if watch:
            from ddp_bench.watch import Watch

            given["watch"] = Watch(**watch)
        if context.invoked_subcommand is not None:
            _reject_with(context.invoked_subcommand, given or list_all or as_json)
        elif list_all:
            _reject_with("--list", given)
            _list(as_json=as_json)
        else:
            _run(given, as_json=as_json)


@app.command("list")
def list_command(*, as_json: _Json = False) -> None:
    """List models and modes; what cannot run says why."""
    with _reported():
        _list(as_json=as_json)


@app.command()
def quick(*, seed: _Seed = None, output: _Output = None, as_json: _Json = False) -> None:
    """Train every model on its mini data on the CPU: real results in about a minute."""
    given = {"seed": seed, "output": output}
    options = {name: value for name, value in given.items() if value is not None}
    with _reported():
        _run({**options, "modes": "solo-0", "device": "cpu", "source": "mini"}, as_json=as_json)


def _run(options: dict[str, Any], *, as_json: bool) -> None:
    from ddp_bench.matrix import Request
    from ddp_bench.session import Session

    raise typer.Exit(Session(Request(**options), as_json=as_json).run())


def _list(*, as_json: bool) -> None:
    from ddp_bench.listing import list_document, list_text
    from ddp_bench.registry import load_models
    from ddp_bench.results import dump_json

    models = load_models()
    typer.echo(dump_json(list_document(models)) if as_json else list_text(models), nl=False)


def _reject_with(name: str, given: object) -> None:
    if given:
        from ddp_bench.errors import UsageError

        raise UsageError(
            f"{name} takes none of the options before it",
            hint=f"put what it understands after it: ddp-bench {name} --help",
        )


@contextmanager
def _reported() -> Iterator[None]:
    """Turn errors and Ctrl-C into a message on stderr and an exit code."""
    from ddp_bench.errors import UsageError
    from flodl import FlodlError

    try:
        yield
    except FlodlError as error:
        typer.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", []):
            typer.echo(note, err=True)
        raise typer.Exit(MISUSE if isinstance(error, UsageError) else FAILED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of a pipe has gone; typer ends quietly
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo(NOTHING_STARTED, err=True)
        raise typer.Exit(INTERRUPTED) from None
