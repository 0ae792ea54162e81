"""Refuses what the command line may one day ask for, instead of ignoring it."""

from __future__ import annotations

from flodl_cli.context.flags import GlobalFlags
from flodl_cli.errors import UsageError


def refuse_unavailable(flags: GlobalFlags) -> None:
    """Stop a call whose flags ask for what this version of fdl does not have.

    Raises:
        UsageError: They do.
    """
    if flags.no_prebuild:
        raise UsageError(
            "--no-prebuild: this version of fdl prepares no hosts", hint="leave the flag out"
        )
