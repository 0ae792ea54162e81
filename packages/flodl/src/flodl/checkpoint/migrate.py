"""Converting optimizer states that other programs, or other versions, wrote."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch

from flodl.checkpoint.files import DEFAULT_MAX_BYTES, open_plain, os_error_hint
from flodl.checkpoint.format import LEGACY_MAGIC, begins_safetensors
from flodl.checkpoint.optim.files import write_image
from flodl.checkpoint.optim.image import OptimizerImage, from_json, kind_of
from flodl.checkpoint.optim.legacy import read_legacy
from flodl.checkpoint.optim.reader import damaged, read_state_file
from flodl.checkpoint.optim.torch_files import read_torch_file
from flodl.core.errors import CheckpointFormatError, StateFileError

OptimizerKind = str | type[torch.optim.Optimizer] | torch.optim.Optimizer
Rename = Mapping[str, str] | Callable[[str], str]


@dataclass(frozen=True, slots=True)
class OptimMigrateReport:
    """What a conversion did.

    Attributes:
        source_format: ``"flodl"``, ``"torch"`` or ``"rust"``.
        optimizer: Name of the optimizer's class.
        parameters: Names of the parameters in the new file, or their positions.
        renamed: Old and new name of each parameter that was renamed.
        without_state: Parameters that had not been stepped.
    """

    source_format: str
    optimizer: str
    parameters: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    without_state: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.optimizer} state of {len(self.parameters)} parameters from "
            f"{self.source_format}, {len(self.renamed)} renamed, "
            f"{len(self.without_state)} without state"
        )


def migrate_optim_state_file(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    optimizer: OptimizerKind | None = None,
    names: Sequence[str] | None = None,
    rename: Rename | None = None,
) -> OptimMigrateReport:
    """Convert an optimizer's state into a state file of this version.

    Reads state files of this format, files of ``torch.save(optimizer.state_dict(), ...)`` (plain
    values and tensors only, no code), and the files of the Rust original, which do not tell what
    they hold. Settings that the source does not have are left out; loading keeps the optimizer's.

    Args:
        src: The file to convert, compressed or not.
        dst: The file to write; another one than ``src``.
        optimizer: The class that ``src`` was saved from: its name, the class, or an optimizer of
            it. Needed for files of the Rust original.
        names: Names of the parameters in their order, for sources that have none.
        rename: Map or function from names to new names.

    Raises:
        StateFileError: ``src`` cannot be read; ``reason`` says why.
        CheckpointError: ``dst`` cannot be written.
        ValueError: ``src`` and ``dst`` are one file, or the names do not fit.
    """
    if os.path.realpath(src) == os.path.realpath(dst):
        raise ValueError(f"migrate_optim_state_file: {os.fspath(src)} is source and destination")
    kind = None if optimizer is None else _kind_name(optimizer)
    source_format, image = _read(src, kind)
    old = [parameter.name for parameter in image.parameters]
    image = _renamed(image, names, rename)
    write_image(dst, image)
    new = image.names()
    return OptimMigrateReport(
        source_format=source_format,
        optimizer=image.kind,
        parameters=tuple(new),
        renamed=tuple(
            (before, after)
            for before, after in zip(old, new, strict=True)
            if before is not None and before != after
        ),
        without_state=tuple(
            label
            for label, parameter in zip(new, image.parameters, strict=True)
            if not parameter.state
        ),
    )


def _kind_name(optimizer: OptimizerKind) -> str:
    if isinstance(optimizer, str):
        return optimizer
    if isinstance(optimizer, type):
        return str(getattr(optimizer, "state_class", optimizer.__name__))
    return kind_of(optimizer)


def _read(src: str | os.PathLike[str], kind: str | None) -> tuple[str, OptimizerImage]:
    name = os.fspath(src)
    try:
        with open_plain(src, name=name, max_bytes=DEFAULT_MAX_BYTES) as file:
            head = file.read(9)
            file.seek(0)
            if begins_safetensors(head) or head.startswith(LEGACY_MAGIC):
                return "flodl", _read_own(src, name)
            if head.startswith((b"PK\x03\x04", b"\x80")):
                return "torch", read_torch_file(file, kind, name)
            return "rust", _read_rust(file, kind, name)
    except CheckpointFormatError as error:
        raise StateFileError(name, None, "damaged gzip", hint=error.hint) from error
    except FileNotFoundError as error:
        raise StateFileError(
            name, None, "not found", hint="check the spelling of the path"
        ) from error
    except OSError as error:
        detail = error.strerror or str(error)
        raise StateFileError(name, None, "unreadable", detail, hint=os_error_hint(error)) from error


def _read_own(src: str | os.PathLike[str], name: str) -> OptimizerImage:
    file = read_state_file(src)
    if file.kind != "optimizer":
        raise StateFileError(name, None, "wrong kind", f"it holds the state of a {file.kind}")
    try:
        return from_json(file.document, file.tensors)
    except ValueError as error:
        raise damaged(name, error) from error


def _read_rust(file: BinaryIO, kind: str | None, name: str) -> OptimizerImage:
    if kind is None:
        raise StateFileError(
            name,
            0,
            "unknown class",
            "a file without a header does not tell what it holds",
            hint='pass the class it was saved from: optimizer="Adam", "AdamW", "SGD" or "RMSprop"',
        )
    return read_legacy(file.read(), kind, name)


def _renamed(
    image: OptimizerImage, names: Sequence[str] | None, rename: Rename | None
) -> OptimizerImage:
    labels = [parameter.name for parameter in image.parameters]
    if names is not None:
        if len(names) != len(labels):
            raise ValueError(f"names: {len(names)} given, the file has {len(labels)} parameters")
        labels = list(names)
    if rename is not None:
        if None in labels:
            raise ValueError("rename: the parameters of the file have no names; pass names= too")
        labels = [_new_name(label, rename) for label in labels if label is not None]
    known = [label for label in labels if label is not None]
    if len(set(known)) != len(known):
        double = sorted({label for label in known if known.count(label) > 1})
        raise ValueError(f"two parameters would have the name {', '.join(double)}")
    parameters = tuple(
        dataclasses.replace(parameter, name=label)
        for parameter, label in zip(image.parameters, labels, strict=True)
    )
    return dataclasses.replace(image, parameters=parameters)


def _new_name(name: str, rename: Rename) -> str:
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)
