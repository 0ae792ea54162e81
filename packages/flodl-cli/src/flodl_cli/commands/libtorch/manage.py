"""``list``, ``info``, ``which``, ``activate``, ``remove`` and ``prune``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flodl_cli.commands.libtorch.place import (
    GlobalOption,
    JsonOption,
    Place,
    RootOption,
    VariantArgument,
    place_of,
)
from flodl_cli.errors import LibtorchError, UsageError
from flodl_cli.libtorch.coverage import uncovered
from flodl_cli.libtorch.store import Variant, size_of
from flodl_cli.libtorch.wheel import stale_reason
from flodl_sys.gpu import scan_gpus

_MIB = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command("list")(list_command)
    app.command("info")(info_command)
    app.command("which")(which_command)
    app.command("activate")(activate_command)
    app.command("remove")(remove_command)
    app.command("prune")(prune_command)


def list_command(
    ctx: typer.Context,
    root: RootOption = None,
    is_global: GlobalOption = False,
    as_json: JsonOption = False,
) -> int:
    """List the installed variants."""
    place = place_of(ctx, root, is_global=is_global)
    active = _active_id(place)
    variants = place.store.variants()
    if as_json:
        place.print_json([_as_data(each, active) for each in variants])
        return 0
    lines = [f"  {each.id}{_marks(each, active)}" for each in variants]
    place.show("\n".join(lines) or "no variants: fdl libtorch download, or fdl libtorch link")
    return 0


def info_command(
    ctx: typer.Context,
    variant: VariantArgument = None,
    root: RootOption = None,
    is_global: GlobalOption = False,
    as_json: JsonOption = False,
) -> int:
    """Say what the active variant is."""
    place = place_of(ctx, root, is_global=is_global)
    chosen = place.store.chosen(variant)
    if as_json:
        place.print_json(_as_data(chosen, _active_id(place)))
        return 0
    metadata = chosen.metadata
    rows = [
        ("Active" if chosen.id == _active_id(place) else "Variant", chosen.id),
        ("Version", metadata.torch or "unknown"),
        ("Vendor", metadata.vendor),
        ("CUDA", metadata.cuda or "none"),
        *([("ROCm", metadata.rocm)] if metadata.rocm else []),
        ("Archs", metadata.archs or "unknown"),
        ("Source", metadata.source or "unknown"),
        ("Path", str(chosen.prefix)),
        ("ABI", f"C++11 {'on' if metadata.abi != '0' else 'off'}, C++{metadata.cxx or '17'}"),
    ]
    place.show("\n".join(f"{name + ':':9}{value}" for name, value in rows))
    reason = stale_reason(chosen)
    if reason is not None:
        place.context.terminal.note(f"stale: {reason}; run `fdl libtorch link` again")
    return 0


def which_command(
    ctx: typer.Context,
    variant: VariantArgument = None,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Print the path of the active variant."""
    place = place_of(ctx, root, is_global=is_global)
    place.context.terminal.print(str(place.store.chosen(variant).prefix))
    return 0


def activate_command(
    ctx: typer.Context,
    variant: Annotated[
        str | None,
        typer.Argument(metavar="VARIANT", help="Variant, out of `fdl libtorch list`."),
    ] = None,
    case: Annotated[
        str, typer.Option("--as", help="Name of a case, chosen with FDL_LIBTORCH_CASE.")
    ] = "",
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Make a variant the active one."""
    place = place_of(ctx, root, is_global=is_global)
    if variant is None:
        ids = "\n".join(f"  {each.id}" for each in place.store.variants())
        place.context.terminal.say(ids or "  no variants")
        raise UsageError("name the variant to activate", hint="fdl libtorch activate VARIANT")
    place.store.activate(variant, case=case)
    place.show(f"active{f' as {case}' if case else ''}: {variant}")
    return 0


def remove_command(
    ctx: typer.Context,
    variants: Annotated[list[str], typer.Argument(metavar="VARIANT")],
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Delete variants; what they link to stays."""
    place = place_of(ctx, root, is_global=is_global)
    for each in variants:
        place.store.variant(each)  # all of them exist before the first one goes
    for each in dict.fromkeys(variants):
        cleared = place.store.remove(each)
        pointers = f"; it was active: {', '.join(cleared)} cleared" if cleared else ""
        place.context.terminal.print(f"removed {each}{pointers}")
    return 0


def prune_command(
    ctx: typer.Context, root: RootOption = None, is_global: GlobalOption = False
) -> int:
    """Delete what is left over. Parts of downloads, staging folders and the build cache."""
    place = place_of(ctx, root, is_global=is_global)
    leftovers = place.store.leftovers()
    lines = [f"  {size / _MIB:8.1f} MiB  {path}" for path, size in leftovers]
    place.show("\n".join(lines) or "nothing to delete")
    if leftovers:
        place.store.prune()
    return 0


def _active_id(place: Place) -> str | None:
    try:
        return place.store.active_id()
    except LibtorchError as error:
        place.context.terminal.note(error.message)
        return None


def _marks(variant: Variant, active: str | None) -> str:
    marks = " (active)" if variant.id == active else ""
    reason = stale_reason(variant)
    return marks + (f" (stale: {reason}; run `fdl libtorch link` again)" if reason else "")


def _as_data(variant: Variant, active: str | None) -> dict[str, Any]:
    metadata = variant.metadata
    gpus = [gpu.arch for gpu in scan_gpus().gpus if gpu.arch is not None]
    return {
        "variant": variant.id,
        "active": variant.id == active,
        "torch": metadata.torch,
        "cuda": None if metadata.cuda in ("", "none") else metadata.cuda,
        "rocm": metadata.rocm or None,
        "archs": list(metadata.arch_tokens),
        "source": metadata.source,
        "verified": metadata.verified == "yes",
        "path": str(variant.prefix),
        "size_bytes": size_of(variant.directory),
        "covers_gpus": not uncovered(metadata.arch_tokens, gpus) if gpus else None,
        "stale": stale_reason(variant),
    }
