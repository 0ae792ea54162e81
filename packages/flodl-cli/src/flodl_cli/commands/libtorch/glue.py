"""``env``, ``flags``, ``cmake`` and ``run``: how programs find a libtorch, link and load it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Literal

import typer

from flodl_cli.commands.libtorch.place import (
    GlobalOption,
    Place,
    RootOption,
    VariantArgument,
    place_of,
)
from flodl_cli.errors import UsageError
from flodl_cli.host.process import run_child
from flodl_cli.libtorch import compiler, environment
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.metadata import replace_text
from flodl_cli.libtorch.store import Variant
from flodl_cli.libtorch.versions import tch_above


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command("env")(env_command)
    app.command("flags")(flags_command)
    app.command("cmake")(cmake_command)
    app.command("run")(run_command)


def env_command(  # noqa: PLR0913 - one parameter for each flag of the command
    ctx: typer.Context,
    *,
    variant: VariantArgument = None,
    shell: Annotated[
        Literal["sh", "fish", "powershell", "cmd"] | None, typer.Option(help="Spelling.")
    ] = None,
    form: Annotated[
        Literal["json", "dotenv", "github", "cargo"] | None,
        typer.Option("--format", help="Something else than lines for a shell."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Lines that take it back.")] = False,
    bypass: Annotated[
        bool, typer.Option("--bypass-version-check", help="Let tch-rs accept other versions.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --format cargo: merge into .cargo/config.toml.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a change.")] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Print variables for tch-rs and C++. Use: eval "$(fdl libtorch env)".

    LIBTORCH_INCLUDE and LIBTORCH_LIB are left out on purpose: build scripts take them as roots
    and add include and lib themselves.
    """
    place = place_of(ctx, root, is_global=is_global)
    chosen = place.store.chosen(variant)
    _refuse_contradictions(shell, form, unset=unset, write=write)
    if not unset and not bypass:
        _warn_of_tch(place, chosen)
    environ = place.context.environ
    terminal = place.context.terminal
    if form == "cargo":
        return _cargo(place, chosen, bypass=bypass, write=write, yes=yes)
    if form == "github":
        file = environment.append_github(chosen, place.platform, environ, bypass=bypass)
        terminal.say(f"appended to {file}")
        return 0
    if form is not None:
        text = environment.json_text if form == "json" else environment.dotenv_text
        terminal.print(text(chosen, place.platform, environ, bypass=bypass))
        return 0
    spelling = shell or ("powershell" if place.platform.system == "windows" else "sh")
    if unset:
        terminal.print(environment.unset_lines(chosen, place.platform, environ, spelling))
    else:
        terminal.print(
            environment.shell_lines(chosen, place.platform, environ, spelling, bypass=bypass)
        )
    return 0


def flags_command(
    ctx: typer.Context,
    *,
    variant: VariantArgument = None,
    cflags: Annotated[bool, typer.Option("--cflags", help="Only those of the compiler.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Only those of the linker.")] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Print flags for a compiler. Use: g++ a.cpp $(fdl libtorch flags)."""
    place = place_of(ctx, root, is_global=is_global)
    compiler.refuse_windows_flags(place.platform.system)
    chosen = place.store.chosen(variant)
    place.context.terminal.print(compiler.flags_line(chosen, cflags=cflags, libs=libs))
    return 0


def cmake_command(
    ctx: typer.Context,
    *,
    variant: VariantArgument = None,
    out: Annotated[Path | None, typer.Option(help="File to write instead of stdout.")] = None,
    find_package: Annotated[
        bool, typer.Option("--find-package", help="Print the usual way instead.")
    ] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Print a CMake file. Its target libtorch::libtorch needs no CUDA toolkit."""
    place = place_of(ctx, root, is_global=is_global)
    chosen = place.store.chosen(variant)
    text = compiler.find_package_snippet(chosen) if find_package else compiler.cmake_text(chosen)
    if out is None:
        place.context.terminal.print(text)
        return 0
    replace_text(out, text)
    place.context.terminal.say(
        f"wrote {out}; with find_package(Torch) instead:\n{compiler.find_package_snippet(chosen)}"
    )
    return 0


def run_command(
    ctx: typer.Context,
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="VARIANT", help="Variant; the active one by default."),
    ] = None,
    bypass: Annotated[
        bool, typer.Option("--bypass-version-check", help="Let tch-rs accept other versions.")
    ] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Run one program on a variant. Use: fdl libtorch run [VARIANT] -- PROGRAM ARGUMENTS."""
    place = place_of(ctx, root, is_global=is_global)
    program = place.context.tail
    before = list(words or [])[: -len(program) or None] if program else list(words or [])
    if not program or len(before) > 1:
        raise UsageError(
            "run takes at most a variant, then -- and the program",
            hint="fdl libtorch run -- cargo test",
        )
    chosen = place.store.chosen(before[0] if before else None)
    if not bypass:
        _warn_of_tch(place, chosen)
    env = environment.loader_environment(
        chosen, place.platform, place.context.environ, bypass=bypass
    )
    return run_child(program, directory=place.context.directory, env=env)


def _cargo(place: Place, variant: Variant, *, bypass: bool, write: bool, yes: bool) -> int:
    from flodl_cli.libtorch import cargo

    terminal = place.context.terminal
    if not write:
        terminal.print(cargo.config_text(variant, place.platform, bypass=bypass))
        return 0
    before = cargo.config_in(place.directory)
    after = cargo.config_text(variant, place.platform, before, bypass=bypass)
    if after == before:
        terminal.say(f"{cargo.CONFIG_FILE} says so already")
        return 0
    if before:
        name = str(cargo.CONFIG_FILE)
        changes = difflib.unified_diff(
            before.splitlines(), after.splitlines(), name, name, lineterm=""
        )
        terminal.say("\n".join(changes))
        if not yes and not terminal.confirm(f"Change {name}?", default=False):
            raise UsageError(f"{name} is left as it was", hint="add --yes to change it")
    terminal.say(f"wrote {cargo.write_config(place.directory, after)}")
    return 0


def _warn_of_tch(place: Place, variant: Variant) -> None:
    """Say so when the crate of the project will refuse this version."""
    crate = tch_above(place.directory)
    needed = load_catalog(place.platform).torch_for_tch(crate) if crate else None
    if needed is not None and needed != variant.metadata.torch:
        place.context.terminal.note(
            f"tch {crate} of Cargo.lock expects torch {needed}, and {variant.id} is "
            f"{variant.metadata.torch}: fdl libtorch download --version {needed}, "
            "or add --bypass-version-check"
        )


def _refuse_contradictions(
    shell: str | None, form: str | None, *, unset: bool, write: bool
) -> None:
    if form is not None and (shell is not None or unset):
        other = "--shell" if shell is not None else "--unset"
        raise UsageError(f"--format {form} and {other} exclude each other")
    if write and form != "cargo":
        raise UsageError("--write has no effect without --format cargo")
