"""Parts of a checkpoint under names of their own, until all of them take their places together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl.checkpoint import write_atomically
from flodl.core.errors import CheckpointError

SCHEMA_VERSION = 1
META = ".meta.json"
PartWriter = Callable[[Path], None]
"""Writes a part to a file; what it raises ends the checkpoint."""

_CHUNK_BYTES = 1 << 20
_SUFFIX = r"(?:\.outer|\.rank\d+)?\.fdl|(?:\.schedule|\.rank\d+)?\.optim|\.meta\.json"
_DRAFT = r"\.tmp-[\w-]+"
_HIDDEN = r"\.[0-9a-f]+\.tmp"


@dataclass(frozen=True, slots=True)
class Draft:
    """One attempt at a checkpoint, which several processes may write parts of.

    Attributes:
        stem: Path that the names of its files begin with.
        nonce: What tells it from other attempts; the same in all processes.
    """

    stem: Path
    nonce: str

    def write(self, suffix: str, writer: PartWriter) -> dict[str, Any]:
        """Write a part under its temporary name, and return how the list describes it.

        Raises:
            CheckpointError: It cannot be written.
        """
        file = self._temporary(suffix)
        try:
            writer(file)
            return described(file)
        except OSError as error:
            raise _unwritable(self.stem, error) from error

    def seal(self, listed: Mapping[str, Mapping[str, Any]], meta: Mapping[str, Any]) -> None:
        """Let the parts take their places, and write the list, which makes them a checkpoint.

        Args:
            listed: What ``write`` returned, by suffix.
            meta: JSON values about the run.

        Raises:
            CheckpointError: A part is not there, or the list cannot be written.
        """
        text = json.dumps(
            {**meta, "schema_version": SCHEMA_VERSION, "parts": listed}, indent=1, sort_keys=True
        )
        try:
            for suffix in listed:
                self._temporary(suffix).replace(with_suffix(self.stem, suffix))
            with write_atomically(with_suffix(self.stem, META)) as listing:
                listing.write(text.encode())
        except OSError as error:
            raise _unwritable(self.stem, error) from error

    def discard(self) -> None:
        """Remove what was written under temporary names."""
        _remove(self.stem, re.escape(f".tmp-{self.nonce}"))

    def _temporary(self, suffix: str) -> Path:
        return with_suffix(self.stem, f"{suffix}.tmp-{self.nonce}")


def discard_drafts(stem: Path) -> None:
    """Remove what killed processes have left of attempts at a checkpoint."""
    _remove(stem, _DRAFT)


def remove_bundle(stem: Path) -> None:
    """Remove a checkpoint, its list first: from then on it is none."""
    with_suffix(stem, META).unlink(missing_ok=True)
    _remove(stem, "")


def described(file: Path) -> dict[str, Any]:
    """Return a part's digest and size, as the list holds them."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
    return {"sha256": digest.hexdigest(), "bytes": file.stat().st_size}


def with_suffix(stem: Path, suffix: str) -> Path:
    """Return the path of a part."""
    return stem.with_name(stem.name + suffix)


def _remove(stem: Path, draft: str) -> None:
    pattern = re.compile(
        rf"(?:\.{re.escape(stem.name)}(?:{_SUFFIX}){draft}{_HIDDEN})|"
        rf"(?:{re.escape(stem.name)}(?:{_SUFFIX}){draft})"
    )
    for file in stem.parent.iterdir():
        if pattern.fullmatch(file.name):
            file.unlink(missing_ok=True)


def _unwritable(stem: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot write checkpoint {stem}: {error.strerror or error}",
        hint="check the folder and the room on its disk",
    )
