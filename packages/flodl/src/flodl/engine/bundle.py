"""A checkpoint of several files that count only together: written so, and verified so."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flodl.checkpoint import checkpoint_info, load_checkpoint
from flodl.core.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointKeyError,
    CheckpointShapeError,
    CheckpointVersionError,
)
from flodl.engine.drafts import (
    META,
    SCHEMA_VERSION,
    Draft,
    PartWriter,
    described,
    with_suffix,
)
from flodl.engine.numbered import numbered_stems

MODEL = ".fdl"
_MOST_META_BYTES = 64 << 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A complete checkpoint.

    Attributes:
        stem: Path that the names of its files begin with.
        meta: What is known about it.
    """

    stem: Path
    meta: dict[str, Any]

    def part(self, suffix: str) -> Path | None:
        """Return the file of a part, ``None`` when the bundle has no such part."""
        return with_suffix(self.stem, suffix) if suffix in self.meta["parts"] else None


def write_bundle(
    stem: Path, parts: Mapping[str, PartWriter], meta: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Write all parts beside their final places, then let them take these, the list last.

    Returns the parts by suffix, with digest and size.

    Args:
        stem: Path that the names begin with.
        parts: What writes each part, by suffix.
        meta: JSON values about the run.

    Raises:
        CheckpointError: A part cannot be written; the bundle before is whole.
    """
    draft = Draft(stem, secrets.token_hex(4))
    try:
        listed = {suffix: draft.write(suffix, write) for suffix, write in parts.items()}
        draft.seal(listed, meta)
    finally:
        draft.discard()
    return listed


def find_bundle(path: str | os.PathLike[str], *, reads_own_parts: bool = True) -> Bundle:
    """Return the bundle of a stem, of a ``.meta.json`` file, or the newest whole one of a folder.

    A stem without a list stands for the newest whole one of its numbered bundles.

    Args:
        path: What to look at.
        reads_own_parts: Whether the content of parts that are one rank's own is compared with the
            list as well, and not their size alone: many ranks need not read all of them each.

    Raises:
        CheckpointError: There is none.
        CheckpointFormatError: A part is missing or is not the one that was written; names it.
        CheckpointVersionError: It needs a newer flodl.
    """
    given = Path(path)
    if given.is_dir():
        files = sorted(given.glob(f"*{META}"), key=lambda file: file.stat().st_mtime_ns)
        stems = [file.with_name(file.name.removesuffix(META)) for file in files]
        return _newest(stems, given, reads_own_parts)
    stem = Path(str(given).removesuffix(META).removesuffix(".fdl"))
    if not with_suffix(stem, META).exists() and stem.parent.is_dir():
        numbered = numbered_stems(stem)
        if numbered:
            return _newest(numbered, given, reads_own_parts)
    return _read(stem, reads_own_parts)


def _newest(stems: Sequence[Path], given: Path, reads_own_parts: bool) -> Bundle:
    """Return the last whole bundle."""
    for stem in reversed(stems):
        try:
            return _read(stem, reads_own_parts)
        except CheckpointFormatError as error:
            _logger.warning("skipping an incomplete checkpoint: %s", error)
    raise CheckpointError(
        f"resume_from={str(given)!r}: no complete checkpoint in this folder",
        hint=f"a checkpoint has a file that ends in {META}",
    )


def _read(stem: Path, reads_own_parts: bool) -> Bundle:
    file = with_suffix(stem, META)
    try:
        with file.open("rb") as opened:
            meta = json.loads(opened.read(_MOST_META_BYTES))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"resume_from={str(stem)!r}: there is no {file.name}",
            hint="give the save_path of the run, its .meta.json file, or their folder",
        ) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointFormatError(f"{file}: is no list of a checkpoint's parts") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("parts"), dict):
        raise CheckpointFormatError(f"{file}: is no list of a checkpoint's parts")
    version = meta.get("schema_version")
    if version != SCHEMA_VERSION:
        raise CheckpointVersionError(
            f"{file}: schema version {version!r}; this flodl reads {SCHEMA_VERSION}",
            hint="use the version of flodl that wrote it, or a newer one",
        )
    shared = {*meta.get("shards", ()), *(part for part in meta["parts"] if ".rank" not in part)}
    for suffix, expected in meta["parts"].items():
        part = with_suffix(stem, suffix)
        reads = reads_own_parts or suffix in shared
        if not part.is_file() or not _is_as_listed(part, expected, reads=reads):
            what = "is missing" if not part.is_file() else "is not the one that was written with it"
            raise CheckpointFormatError(
                f"checkpoint {stem}: its part {part.name} {what}",
                hint="resume from an older checkpoint",
            )
    return Bundle(stem, meta)


def _is_as_listed(part: Path, expected: dict[str, Any], *, reads: bool) -> bool:
    if part.stat().st_size != expected["bytes"]:
        return False
    return not reads or described(part) == expected


def load_model(bundle: Bundle, model: nn.Module) -> None:
    """Write a bundle's model, in one part or in several, into tensors of the same names, in place.

    Raises:
        CheckpointError: It does not fit; nothing was written.
    """
    shards = bundle.meta.get("shards") or [MODEL]
    files = [_needed(bundle, suffix) for suffix in shards]
    if len(files) == 1:
        load_checkpoint(files[0], model, strict=True)
        return
    values: dict[str, Tensor] = {}
    for file in files:
        values |= read_tensors(file, str(getattr(model, "structural_hash", "")))
    entries = model.state_dict(keep_vars=True)
    if values.keys() != entries.keys():
        raise CheckpointKeyError(
            f"checkpoint {bundle.stem}: its tensors are not those of the model; they differ in "
            f"{', '.join(sorted(values.keys() ^ entries.keys())[:5])}",
            hint="build the model that it was saved from",
        )
    wrong = [name for name, value in values.items() if value.shape != entries[name].shape]
    if wrong:
        raise CheckpointShapeError(
            f"checkpoint {bundle.stem}: other shapes in the model: {', '.join(wrong[:5])}",
            hint="build the model that it was saved from",
        )
    with torch.no_grad():
        for name, value in values.items():
            entries[name].copy_(value)


def read_tensors(file: Path, structural_hash: str = "") -> dict[str, Tensor]:
    """Return all tensors of a part, on the CPU; names of one memory share it.

    Args:
        file: The part.
        structural_hash: What it must have been saved from; empty: anything.

    Raises:
        CheckpointError: It is damaged, or was saved from something else.
    """
    info = checkpoint_info(file)
    tensors = {
        name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in info.tensors.items()
    }
    tensors |= {name: tensors[stored] for name, stored in info.aliases.items()}
    load_checkpoint(file, tensors, structural_hash, check_hash=bool(structural_hash), strict=True)
    return tensors


def _needed(bundle: Bundle, suffix: str) -> Path:
    part = bundle.part(suffix)
    if part is None:
        raise CheckpointFormatError(f"checkpoint {bundle.stem}: it has no part {suffix}")
    return part
