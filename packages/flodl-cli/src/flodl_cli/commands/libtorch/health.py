"""``verify`` and ``repair``: whether a variant works, and what can be done when it does not."""

from __future__ import annotations

from typing import Annotated

import typer

from flodl_cli.commands.libtorch.place import (
    GlobalOption,
    JsonOption,
    RootOption,
    VariantArgument,
    place_of,
)
from flodl_cli.errors import UsageError
from flodl_cli.libtorch.repair import repair
from flodl_cli.libtorch.trial import trials
from flodl_cli.libtorch.verify import Check, Status, load_check, static_checks


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command("verify")(verify_command)
    app.command("repair")(repair_command)


def verify_command(
    ctx: typer.Context,
    variant: VariantArgument = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Also build and run a small program.")
    ] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Also add numbers on the GPU.")] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
    as_json: JsonOption = False,
) -> int:
    """Check whether a variant works. Files, architectures, ABI, dependencies, loading."""
    place = place_of(ctx, root, is_global=is_global)
    chosen = place.store.chosen(variant)
    checks = static_checks(chosen, place.platform)
    if all(check.status is not Status.FAIL for check in checks):
        checks.append(load_check(chosen, place.platform))
        if compile_:
            checks += trials(chosen, place.context.environ, gpu=False)
        if gpu:
            checks += trials(chosen, place.context.environ, gpu=True)
    failed = any(check.status is Status.FAIL for check in checks)
    if as_json:
        place.print_json(
            {
                "variant": chosen.id,
                "ok": not failed,
                "checks": [
                    {"name": c.name, "status": c.status, "message": c.message, "fix": c.fix or None}
                    for c in checks
                ],
            }
        )
    else:
        place.show("\n".join([f"{chosen.id}:", *(_line(check) for check in checks)]))
    return 1 if failed else 0


def repair_command(
    ctx: typer.Context,
    variant: VariantArgument = None,
    deps: Annotated[
        bool, typer.Option("--deps/--no-deps", help="Fetch NVIDIA's libraries where they lack.")
    ] = True,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Complete a variant. Links names that are asked for, and fetches NVIDIA's libraries."""
    place = place_of(ctx, root, is_global=is_global)
    chosen = place.store.chosen(variant)
    if chosen.metadata.source in ("wheel", "linked"):
        raise UsageError(
            f"{chosen.id} belongs to {chosen.metadata.path}, which fdl does not change",
            hint="repair it there, then run `fdl libtorch link` again",
        )
    terminal = place.context.terminal
    with place.store.locked():
        done = repair(chosen.prefix, chosen.metadata, with_packages=deps, tell=terminal.say)
    place.show("\n".join(done) or f"{chosen.id}: nothing to repair")
    return 0


def _line(check: Check) -> str:
    text = f"  {check.status:5}{check.name}: {check.message}"
    return f"{text}\n       fix: {check.fix}" if check.fix and check.status != Status.OK else text
