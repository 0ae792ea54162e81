"""Finds manifests: the one that rules a directory, the one inside it, and their overlays."""
# ruff: noqa: PTH112, PTH113, PTH118, PTH119, PTH120, PTH122, PTH208
# On the help path, where importing pathlib would take a fifth of the time.

from __future__ import annotations

import os.path
from collections.abc import Iterable

from flodl_cli.errors import ConfigError
from flodl_cli.names import MANIFEST_FILES

TEMPLATE_ENDINGS = (".example", ".dist")
"""What a project adds to the name of a manifest that everyone copies and changes."""


SCHEMA_FILE = "fdl.schema.json"
"""What editors check a manifest with: it lies beside it, needs no network, is no overlay."""


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
    """The manifest in ``directory`` itself; a template of one where there is no other.

    Raises:
        ConfigError: There are two, or it is no file.
    """
    found = _existing(directory, "") or _existing(directory, TEMPLATE_ENDINGS[0])
    found = found or _existing(directory, TEMPLATE_ENDINGS[1])
    if len(found) > 1:
        names = [os.path.basename(path) for path in found]
        raise ConfigError(
            f"{' and '.join(names)} stand in one directory", file=found[0], hint="keep one of them"
        )
    return found[0] if found else None


def is_template(manifest: str) -> bool:
    """Whether the file is one to be copied first, such as ``fdl.yml.example``."""
    return manifest.endswith(TEMPLATE_ENDINGS)


def _existing(directory: str, ending: str) -> list[str]:
    return _files(os.path.join(directory, name + ending) for name in MANIFEST_FILES)


def _files(paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that are there; a folder of such a name is something else.

    Raises:
        ConfigError: One of them is a link that leads nowhere, or a device.
    """
    there = [path for path in paths if os.path.lexists(path) and not os.path.isdir(path)]
    for path in there:
        if not os.path.isfile(path):
            raise ConfigError(
                "is no file, or a link to none", file=path, hint="correct the link, or remove it"
            )
    return there


def overlay_files(manifest: str, name: str) -> list[str]:
    """The paths at which an overlay ``name`` of ``manifest`` may stand."""
    directory = os.path.dirname(manifest)
    endings = [os.path.splitext(each)[1] for each in MANIFEST_FILES]
    files = [f"fdl.{name}{ending}" for ending in endings]
    return [os.path.join(directory, file) for file in files if file != SCHEMA_FILE]


def overlay_of(manifest: str, name: str) -> str | None:
    """The overlay ``name`` beside ``manifest``, if there is one.

    Raises:
        ConfigError: There are two, or it is no file.
    """
    found = _files(overlay_files(manifest, name))
    if len(found) > 1:
        names = [os.path.basename(path) for path in found]
        raise ConfigError(
            f"{' and '.join(names)} stand in one directory", file=found[0], hint="keep one of them"
        )
    return found[0] if found else None


def overlay_names(manifest: str) -> list[str]:
    """Names of all overlays beside ``manifest``."""
    endings = tuple(os.path.splitext(each)[1] for each in MANIFEST_FILES)
    try:
        files = os.listdir(os.path.dirname(manifest))
    except OSError:
        return []
    ours = (each for each in files if each.startswith("fdl.") and each != SCHEMA_FILE)
    stems = map(os.path.splitext, ours)
    return sorted({stem[4:] for stem, ending in stems if ending in endings and len(stem) > 4})
