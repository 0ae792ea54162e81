"""What a checkpoint file holds, read from its head only."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from flodl.checkpoint.content import read_head, read_header
from flodl.checkpoint.files import (
    DEFAULT_MAX_BYTES,
    is_gzip,
    open_plain,
    os_error_hint,
    unzipped_chunks,
)
from flodl.checkpoint.format import Header, header_length
from flodl.checkpoint.legacy import is_legacy
from flodl.core.errors import CheckpointError, CheckpointFormatError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """The head of a checkpoint.

    Attributes:
        path: The file.
        version: Format version; 0 for a plain safetensors file.
        kind: What it holds, ``"model"`` for parameters; empty if unknown.
        hash: Structural hash, empty if none was stored.
        label: Name given when it was saved.
        flodl_version: Version of flodl that wrote it.
        torch_version: Version of torch it was written with.
        tensors: Dtype and shape of each stored tensor by name.
        aliases: Names that share a stored tensor, each with the stored name.
        buffers: Names of tensors that are buffers, not parameters.
        meta: The user's own values.
        topology: The architecture, if the file has it.
    """

    path: str
    version: int
    kind: str
    hash: str
    label: str
    flodl_version: str
    torch_version: str
    tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]]
    aliases: dict[str, str]
    buffers: tuple[str, ...]
    meta: dict[str, Any]
    topology: dict[str, Any] | None


def checkpoint_info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """Return what the head of a checkpoint says; no tensor is read.

    Raises:
        CheckpointError: The file cannot be read.
        CheckpointFormatError: It is no checkpoint, or its head is damaged.
        CheckpointVersionError: It needs a newer flodl.
    """
    name = os.fspath(path)
    header = _read_header_only(path, name)
    said = header.metadata
    return CheckpointInfo(
        path=name,
        version=format_version(header, name=name),
        kind=said.get("fdl.kind", ""),
        hash=said.get("fdl.hash", ""),
        label=said.get("fdl.label", ""),
        flodl_version=said.get("fdl.flodl", ""),
        torch_version=said.get("fdl.torch", ""),
        tensors={entry.name: (entry.dtype, entry.shape) for entry in header.entries.values()},
        aliases=header.aliases,
        buffers=tuple(_json_value(said, "fdl.buffers", list, name)),
        meta=_json_value(said, "fdl.meta", dict, name),
        topology=_json_value(said, "fdl.topology", dict, name) if "fdl.topology" in said else None,
    )


def checkpoint_keys(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of all tensors in a checkpoint, sorted, names of tied ones included."""
    return _read_header_only(path, os.fspath(path)).names()


def checkpoint_version(path: str | os.PathLike[str]) -> int:
    """Return the format version of a checkpoint, 0 for a plain safetensors file."""
    return checkpoint_info(path).version


def format_version(header: Header, *, name: str) -> int:
    """Return the version a header states, 0 when it is no ``.fdl`` header."""
    text = header.metadata.get("fdl.version", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise CheckpointFormatError(f"{name}: damaged header: fdl.version is {text!r}")
    return int(text)


def _read_header_only(path: str | os.PathLike[str], name: str) -> Header:
    try:
        with Path(path).open("rb") as file:
            packed = is_gzip(file.read(9))
            file.seek(0)
            if not packed:
                return read_header(file, name=name)[0]
            head = _unzipped_head(file, name)
            if not is_legacy(head):
                return read_head(io.BytesIO(head), name=name)[0]
        # A legacy file has no head: what it holds stands between the data.
        with open_plain(path, name=name, max_bytes=DEFAULT_MAX_BYTES) as plain:
            return read_header(plain, name=name)[0]
    except OSError as error:
        raise unreadable(name, error) from error


def _unzipped_head(file: BinaryIO, name: str) -> bytes:
    head = bytearray()
    for chunk in unzipped_chunks(file, name=name):
        head += chunk
        if len(head) < 9:
            continue
        if is_legacy(bytes(head[:8])) or len(head) >= 8 + header_length(bytes(head[:9]), name=name):
            break
    return bytes(head)


def unreadable(name: str, error: OSError) -> CheckpointError:
    """Return the error for a file that the operating system does not give."""
    return CheckpointError(
        f"cannot read checkpoint {name}: {error.strerror or error}", hint=os_error_hint(error)
    )


def _json_value(metadata: dict[str, str], key: str, kind: type, name: str) -> Any:
    try:
        value = json.loads(metadata[key]) if key in metadata else kind()
    except (ValueError, RecursionError) as error:
        raise CheckpointFormatError(f"{name}: damaged header: {key} is no JSON") from error
    if not isinstance(value, kind):
        raise CheckpointFormatError(f"{name}: damaged header: {key} is no JSON {kind.__name__}")
    return value
