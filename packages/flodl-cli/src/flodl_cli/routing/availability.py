"""Refuses what the command line may one day ask for, instead of ignoring it."""

from __future__ import annotations

from flodl_cli.context.flags import GlobalFlags
from flodl_cli.errors import UsageError


def refuse_unavailable(flags: GlobalFlags) -> None:
    """Stop a call whose flags ask for what this version of fdl does not have.

    Raises:
        UsageError: They do.
    """
    refuse_overlay(flags.overlay, "the command line")
    if flags.no_prebuild:
        raise UsageError(
            "--no-prebuild: this version of fdl prepares no hosts", hint="leave the flag out"
        )


def refuse_overlay(name: str | None, source: str) -> None:
    """Stop a call that asks for an overlay.

    Raises:
        UsageError: ``name`` is not ``None``.
    """
    if name is not None:
        raise UsageError(
            f"overlay {name!r} is asked for by {source}, "
            "but this version of fdl cannot merge overlays",
            hint="leave it out to use the manifest as it stands",
        )
