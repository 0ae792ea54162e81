"""Finds manifests: the one that rules a directory, and the one inside a given directory."""
# ruff: noqa: PTH113, PTH118, PTH119, PTH120
# On the help path, where importing pathlib would take a fifth of the time.

from __future__ import annotations

import os.path

from flodl_cli.errors import ConfigError
from flodl_cli.names import MANIFEST_FILES


def find_manifest(start: str) -> str | None:
    """The nearest manifest from the absolute path ``start`` upwards.

    Raises:
        ConfigError: A directory on the way holds two manifests.
    """
    directory = start
    while True:
        found = manifest_in(directory)
        above = os.path.dirname(directory)
        if found is not None or above == directory:
            return found
        directory = above


def manifest_in(directory: str) -> str | None:
    """The manifest in ``directory`` itself.

    Raises:
        ConfigError: There are two.
    """
    paths = [os.path.join(directory, name) for name in MANIFEST_FILES]
    found = [path for path in paths if os.path.isfile(path)]
    if len(found) > 1:
        names = [os.path.basename(path) for path in found]
        raise ConfigError(
            f"{' and '.join(names)} stand in one directory", file=found[0], hint="keep one of them"
        )
    return found[0] if found else None
