"""Asks the user's package client for the newest versions: a program that nobody waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flodl_cli.errors import FdlError
from flodl_cli.host.packages import package_client
from flodl_cli.updates.settings import change_settings, read_settings, settings_file

LIMIT_S = 10.0


def look(names: Sequence[str]) -> dict[str, str]:
    """The newest published version of each name that the client knows."""
    found = {}
    client = package_client()
    for name in names:
        try:
            found[name] = client.newest(name, limit_s=LIMIT_S)
        except FdlError:  # not published, or no network: what was known stays
            continue
    return found


def main(names: Sequence[str]) -> int:
    """Look, and write what was found into the user's file; 1 when nothing could be asked."""
    file = settings_file()
    try:
        found = look(names)
    except FdlError:
        return 1
    change_settings(file, latest_known={**read_settings(file).latest_known, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
