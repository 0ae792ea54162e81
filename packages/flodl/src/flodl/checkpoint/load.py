"""Loading a checkpoint into a module or into named tensors, whole or in part."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from flodl.checkpoint.content import read_header, read_tensors
from flodl.checkpoint.files import DEFAULT_MAX_BYTES, open_plain
from flodl.checkpoint.info import unreadable
from flodl.core.errors import (
    CheckpointError,
    CheckpointKeyError,
    CheckpointMismatchError,
    CheckpointShapeError,
)

if TYPE_CHECKING:
    from flodl.checkpoint.format import Header

Rename = Mapping[str, str] | Callable[[str], str]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did, by name.

    Attributes:
        loaded: Names whose values came from the file.
        skipped: Names in the file only.
        missing: Names in the model only; they keep their values.
        cast: Loaded names whose dtype was converted.
        hash_checked: Whether file and model both had a structural hash, found equal.
        path: The file.
    """

    loaded: tuple[str, ...]
    skipped: tuple[str, ...]
    missing: tuple[str, ...]
    cast: tuple[str, ...]
    hash_checked: bool
    path: str

    @property
    def is_complete(self) -> bool:
        """Whether every name of the model was loaded and none of the file was left over."""
        return not self.skipped and not self.missing

    def __str__(self) -> str:
        parts = [f"{self.path}: {len(self.loaded)} loaded"]
        for word in ("cast", "skipped", "missing"):
            names: tuple[str, ...] = getattr(self, word)
            if names:
                parts.append(f"{len(names)} {word} ({_shortened(names)})")
        parts.append("hash checked" if self.hash_checked else "hash not checked")
        return ", ".join(parts)


def load_checkpoint(  # noqa: PLR0913 - the published signature
    path: str | os.PathLike[str] | BinaryIO,
    target: nn.Module | Mapping[str, torch.Tensor],
    hash: str | None = None,  # noqa: A002 - the published name of the argument
    *,
    check_hash: bool = True,
    strict: bool = False,
    rename: Rename | None = None,
    cast: bool = True,
    verify: bool = True,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> LoadReport:
    """Copy the values of a checkpoint into the tensors of the same names, in place.

    Everything is read and checked before the first value is written: a load that raises has
    changed nothing. Tensors keep their identity and device, so optimizers stay valid. Plain
    safetensors files load too.

    Args:
        path: A ``.fdl`` or safetensors file, gzipped or not, or an open binary file.
        target: A module, or tensors by name.
        hash: Structural hash that the file must have; by default the module's own, if it has one.
        check_hash: ``False`` loads what fits from another architecture.
        strict: Raise when names are missing or left over.
        rename: Map or function from a name in the file to a name in the target.
        cast: Convert values to the target's dtype; ``False`` makes another dtype an error.
        verify: Compare the content with its digest.
        max_bytes: The most that a gzipped file may unpack to.

    Raises:
        CheckpointFormatError: The file is damaged or no checkpoint.
        CheckpointVersionError: The file needs a newer flodl.
        CheckpointMismatchError: The structural hashes differ.
        CheckpointShapeError: Shapes or dtypes do not fit; the message lists all of them.
        CheckpointKeyError: Names are missing or left over, under ``strict``.
        CheckpointError: The file cannot be read.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else "checkpoint stream"
    own_hash = str(getattr(target, "structural_hash", "")) if hash is None else hash
    tensors = _target_tensors(target)
    try:
        with open_plain(path, name=name, max_bytes=max_bytes) as file:
            header, _ = read_header(file, name=name)
            hash_checked = check_hash and _check_hash(header, own_hash, name)
            sources = _sources(header, rename, name)
            fitting = {target: stored for target, stored in sources.items() if target in tensors}
            _check_fit(header, fitting, tensors, cast=cast, name=name)
            report = _report(header, sources, fitting, tensors, hash_checked, name)
            if strict and not report.is_complete:
                raise CheckpointKeyError(
                    f"{name}: names differ: missing from the file: {_shortened(report.missing)}; "
                    f"only in the file: {_shortened(report.skipped)}",
                    hint="load with strict=False to take what fits, or map names with rename=",
                )
            values = read_tensors(
                file, header, wanted=set(fitting.values()), name=name, verify=verify
            )
    except OSError as error:
        raise unreadable(name, error) from error
    with torch.no_grad():
        for target_name, stored in fitting.items():
            tensors[target_name].copy_(values[stored])
    return report


def _target_tensors(target: nn.Module | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    source: Mapping[str, object] = (
        target.state_dict(keep_vars=True) if isinstance(target, nn.Module) else target
    )
    tensors = {name: value for name, value in source.items() if isinstance(value, torch.Tensor)}
    lazy = [name for name, value in tensors.items() if is_lazy(value) or value.is_meta]
    if lazy:
        raise CheckpointError(
            f"cannot load into {_shortened(tuple(lazy))}: no memory behind them yet",
            hint="run one forward, or give the module its device with to_empty(), before loading",
        )
    return tensors


def _check_hash(header: Header, own_hash: str, name: str) -> bool:
    stored = header.metadata.get("fdl.hash", "")
    if not stored or not own_hash:
        return False
    if stored != own_hash:
        label = header.metadata.get("fdl.label", "")
        raise CheckpointMismatchError(
            f"{name}{f' (label {label!r})' if label else ''} was saved from another architecture: "
            f"its structural hash is {stored}, the model's is {own_hash}",
            hint="build the same graph, or load what fits with check_hash=False",
        )
    return True


def _sources(header: Header, rename: Rename | None, name: str) -> dict[str, str]:
    """Return the stored name for each name that the file offers, after renaming."""
    aliases = header.aliases
    result: dict[str, str] = {}
    for stored in header.names():
        new = _renamed(stored, rename)
        if new in result:
            raise CheckpointKeyError(
                f"{name}: rename gives {new!r} to two tensors of the file; {stored!r} is one",
                hint="every new name must be given once",
            )
        result[new] = aliases.get(stored, stored)
    return result


def _renamed(name: str, rename: Rename | None) -> str:
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def _check_fit(
    header: Header,
    fitting: Mapping[str, str],
    tensors: Mapping[str, torch.Tensor],
    *,
    cast: bool,
    name: str,
) -> None:
    problems = []
    for target_name, stored in fitting.items():
        entry, tensor = header.entries[stored], tensors[target_name]
        if entry.shape != tuple(tensor.shape):
            problems.append(
                f"{target_name}: {list(entry.shape)} in the file, {list(tensor.shape)} here"
            )
        elif entry.dtype != tensor.dtype and not (cast and _can_cast(entry.dtype, tensor.dtype)):
            problems.append(f"{target_name}: {entry.dtype} in the file, {tensor.dtype} here")
    if problems:
        raise CheckpointShapeError(
            f"{name}: {len(problems)} tensors do not fit:\n  " + "\n  ".join(problems),
            hint="leave them out by giving them another name with rename=",
        )


def _can_cast(source: torch.dtype, target: torch.dtype) -> bool:
    if source.is_floating_point and target.is_floating_point:
        return True  # torch.can_cast does not know the 8-bit kinds everywhere
    return torch.can_cast(source, target)


def _report(
    header: Header,
    sources: Mapping[str, str],
    fitting: Mapping[str, str],
    tensors: Mapping[str, torch.Tensor],
    hash_checked: bool,
    name: str,
) -> LoadReport:
    # A tied tensor of which the file has another name is loaded with it.
    filled = {_place(tensors[target_name]) for target_name in fitting}
    missing = (
        target_name
        for target_name, tensor in tensors.items()
        if target_name not in fitting and _place(tensor) not in filled
    )
    return LoadReport(
        loaded=tuple(fitting),
        skipped=tuple(new for new in sources if new not in fitting),
        missing=tuple(missing),
        cast=tuple(
            target_name
            for target_name, stored in fitting.items()
            if header.entries[stored].dtype != tensors[target_name].dtype
        ),
        hash_checked=hash_checked,
        path=name,
    )


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    if tensor.numel() == 0:
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())


def _shortened(names: tuple[str, ...], most: int = 8) -> str:
    if not names:
        return "none"
    more = f", … {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
