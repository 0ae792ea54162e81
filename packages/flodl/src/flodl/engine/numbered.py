"""Checkpoints that are numbered by epoch or window: their names, their order, how many are kept."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Literal

from flodl.engine.drafts import META, remove_bundle, with_suffix

_logger = logging.getLogger(__name__)


def numbered_stem(base: str | Path, kind: Literal["epoch", "window"], number: int) -> str:
    """Return the stem of the checkpoint after an epoch or a window."""
    return f"{base}-{kind}{number}"


def base_of(stem: Path) -> Path | None:
    """Return the stem that a numbered one was made from, ``None`` where it has no number."""
    found = re.fullmatch(r"(.+)-(?:epoch|window)\d+", stem.name)
    return None if found is None else stem.with_name(found[1])


def numbered_stems(base: Path) -> list[Path]:
    """Return the stems of all numbered checkpoints that have a list, the oldest first."""
    pattern = re.compile(rf"{re.escape(base.name)}-(?:epoch|window)(\d+){re.escape(META)}")
    found: list[tuple[int, int, Path]] = []
    for file in base.parent.iterdir():
        match = pattern.fullmatch(file.name)
        if match is None:
            continue
        try:
            written = file.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # another process has removed it meanwhile
        found.append((written, int(match[1]), file.with_name(file.name.removesuffix(META))))
    return [stem for _, _, stem in sorted(found)]


def keep_last(base: Path, keep: int | None, spare: Path | None = None) -> None:
    """Remove all numbered checkpoints but the newest.

    Args:
        base: Stem without number.
        keep: How many stay; ``None``: all.
        spare: Stem that stays in any case, as a run goes on from it.
    """
    if keep is None:
        return
    for stem in numbered_stems(base)[:-keep]:
        if spare is not None and stem.absolute() == spare.absolute():
            continue
        try:
            remove_bundle(stem)
        except OSError as error:
            file = with_suffix(stem, META).name
            _logger.warning("%s: an old checkpoint could not be removed: %s", file, error)
