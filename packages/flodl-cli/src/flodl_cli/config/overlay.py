"""Whether a call uses an overlay, and which: asked for by flag, by variable, or by first word."""
# ruff: noqa: PTH120
# On the help path, where importing pathlib would take a fifth of the time.

from __future__ import annotations

import os.path
from collections.abc import Iterator

from flodl_cli.config.discover import find_manifest, overlay_files, overlay_names, overlay_of
from flodl_cli.errors import OverlayError
from flodl_cli.names import near
from flodl_cli.terminal import listed


def require_overlay(start: str, name: str, source: str) -> None:
    """Make sure that the overlay ``name`` exists for the project that ``start`` belongs to.

    It may stand beside the nearest manifest, or beside one further up.

    Raises:
        OverlayError: It does not; the message names ``source`` and every path that was tried.
    """
    tried: list[str] = []
    known: list[str] = []
    for manifest in _manifests(start):
        if overlay_of(manifest, name) is not None:
            return
        tried += overlay_files(manifest, name)
        known += overlay_names(manifest)
    close = near(name, dict.fromkeys(known))
    raise OverlayError(
        f"overlay {name!r}, asked for by {source}, is not there; tried: {listed(tried)}",
        hint=f"did you mean {' or '.join(close)}?"
        if close
        else f"overlays here: {listed(dict.fromkeys(known))}",
    )


def has_overlay(start: str, name: str) -> bool:
    """Whether there is an overlay ``name`` for the project that ``start`` belongs to."""
    if os.path.basename(name) != name:  # noqa: PTH119 - as above
        return False
    return any(overlay_of(manifest, name) is not None for manifest in _manifests(start))


def _manifests(start: str) -> Iterator[str]:
    """The nearest manifest and those above it."""
    manifest = find_manifest(start)
    while manifest is not None:
        yield manifest
        directory = os.path.dirname(manifest)
        above = os.path.dirname(directory)
        manifest = find_manifest(above) if above != directory else None
