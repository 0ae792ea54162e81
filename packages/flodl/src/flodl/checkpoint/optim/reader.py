"""Reading a state file: every way in which it can be wrong has its own reason."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from flodl.checkpoint.content import read_tensors
from flodl.checkpoint.files import is_gzip, os_error_hint, unzipped_chunks
from flodl.checkpoint.format import (
    LEGACY_MAGIC,
    MAX_HEADER_BYTES,
    Header,
    begins_safetensors,
    parse_header,
)
from flodl.core.errors import CheckpointFormatError, CheckpointVersionError, StateFileError

Source = str | os.PathLike[str] | BinaryIO

_MIGRATE = "convert it with migrate_optim_state_file"
_FOREIGN = {
    b"PK\x03\x04": ("a zip archive, as torch.save writes", _MIGRATE),
    b"\x80": ("a pickle", _MIGRATE),
    LEGACY_MAGIC: ("a model checkpoint of the Rust original", "load it with load_checkpoint"),
}


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file that is sound: its kind, the JSON of its state, its tensors on the CPU."""

    name: str
    kind: str
    document: Any
    tensors: dict[str, Tensor]


def read_state_file(source: Source) -> StateFile:
    """Return the content of a state file, whole and checked.

    Raises:
        StateFileError: It cannot be read; ``reason`` says why.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "state stream"
    try:
        with _plain_content(source, name) as file:
            header, base = _read_header(file, name)
            _check_length(file, header, base, name)
            kind = _kind(header, name)
            tensors = _read_tensors(file, header, name)
    except FileNotFoundError as error:
        raise StateFileError(
            name, None, "not found", hint="check the spelling of the path"
        ) from error
    except OSError as error:
        detail = error.strerror or str(error)
        raise StateFileError(name, None, "unreadable", detail, hint=os_error_hint(error)) from error
    return StateFile(name, kind, _document(header, name), tensors)


def damaged(name: str, error: Exception) -> StateFileError:
    """Return the error for a sound container whose state makes no sense."""
    return StateFileError(
        name, None, "damaged state", str(error), hint="save the state again with this flodl"
    )


@contextlib.contextmanager
def _plain_content(source: Source, name: str) -> Iterator[BinaryIO]:
    with contextlib.ExitStack() as stack:
        file: BinaryIO = (
            stack.enter_context(Path(source).open("rb"))
            if isinstance(source, str | os.PathLike)
            else source
        )
        file.seek(0)
        packed = is_gzip(file.read(9))
        file.seek(0)
        if packed:
            plain = stack.enter_context(tempfile.TemporaryFile())
            _unpack(file, plain, name)
            file = plain
        yield file


def _unpack(packed: BinaryIO, plain: BinaryIO, name: str) -> None:
    """Unpack no more than the header says there is."""
    limit: int | None = None
    try:
        for chunk in unzipped_chunks(packed, name=name):
            plain.write(chunk)
            if limit is None:
                limit = _declared_bytes(plain, name)
            if limit is not None and plain.tell() > limit:
                raise _trailing(name, limit)
    except CheckpointFormatError as error:
        raise StateFileError(name, None, "damaged gzip", hint=error.hint) from error


def _declared_bytes(plain: BinaryIO, name: str) -> int | None:
    """Return the length of the whole content, once enough of it is there to know."""
    written = plain.tell()
    plain.seek(0)
    head = plain.read(9)
    whole = len(head) == 9 and written >= 8 + _header_length(head, name)
    total = None
    if whole:
        header, base = _read_header(plain, name)
        total = base + header.data_bytes
    plain.seek(written)
    return total


def _header_length(head: bytes, name: str) -> int:
    """Return the length of the header from the first nine bytes."""
    if begins_safetensors(head):
        return int.from_bytes(head[:8], "little")
    for magic, (what, hint) in _FOREIGN.items():
        if head.startswith(magic):
            raise StateFileError(name, 0, "not a state file", f"it is {what}", hint=hint)
    if len(head) < 9:
        raise StateFileError(
            name, len(head), "truncated", "a state file has at least 9 bytes", hint="save it again"
        )
    length = int.from_bytes(head[:8], "little")
    if head[8:9] != b"{":
        raise StateFileError(
            name,
            8,
            "not a state file",
            "no header follows its length; the Rust original's files have none",
            hint=f"if it is one of those, {_MIGRATE}",
        )
    if length > MAX_HEADER_BYTES:
        raise StateFileError(
            name, 0, "header too large", f"{length} bytes, {MAX_HEADER_BYTES} are possible"
        )
    return length


def _read_header(file: BinaryIO, name: str) -> tuple[Header, int]:
    file.seek(0)
    length = _header_length(file.read(9), name)
    file.seek(8)
    text = file.read(length)
    if len(text) < length:
        raise StateFileError(
            name, 8 + len(text), "truncated", f"the header alone ends at byte {8 + length}"
        )
    try:
        return parse_header(text, name=name), 8 + length
    except CheckpointVersionError as error:
        detail = error.message.removeprefix(f"{name}: ")
        raise StateFileError(name, None, "newer version", detail, hint=error.hint) from error
    except CheckpointFormatError as error:
        reason = "offsets outside the file" if _reaches_beyond(file, text) else "damaged header"
        detail = error.message.removeprefix(f"{name}: damaged header: ")
        raise StateFileError(name, 8, reason, detail) from error


def _reaches_beyond(file: BinaryIO, text: bytes) -> bool:
    """Return whether a header that was refused has tensors beyond the end of the file."""
    data_bytes = file.seek(0, 2) - 8 - len(text)
    try:
        entries = [entry for key, entry in json.loads(text).items() if key != "__metadata__"]
        return any(max(entry["data_offsets"]) > data_bytes for entry in entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _check_length(file: BinaryIO, header: Header, base: int, name: str) -> None:
    length, expected = file.seek(0, 2), base + header.data_bytes
    if length < expected:
        raise StateFileError(
            name,
            length,
            "truncated",
            f"the header describes {expected} bytes",
            hint="save it again",
        )
    if length > expected:
        raise _trailing(name, expected)


def _trailing(name: str, end: int) -> StateFileError:
    detail = "bytes follow that do not belong to it"
    return StateFileError(name, end, "trailing bytes", detail, hint="copy or save it again")


def _kind(header: Header, name: str) -> str:
    kind = header.metadata.get("fdl.kind", "")
    if header.metadata.get("format") != "fdl" or not kind:
        raise StateFileError(name, None, "not a state file", "it is a plain safetensors file")
    if kind == "model":
        raise StateFileError(
            name,
            None,
            "not a state file",
            "it is a model checkpoint",
            hint="load it with load_checkpoint",
        )
    return kind


def _read_tensors(file: BinaryIO, header: Header, name: str) -> dict[str, Tensor]:
    wrong = StateFileError(
        name,
        None,
        "digest mismatch",
        "the content is not what was saved",
        hint="the file was damaged or changed: copy or save it again",
    )
    if not header.metadata.get("fdl.digest"):
        raise wrong
    try:
        stored = read_tensors(file, header, wanted=set(header.entries), name=name, verify=True)
    except CheckpointFormatError as error:
        raise wrong from error
    return stored | {alias: stored[target] for alias, target in header.aliases.items()}


def _document(header: Header, name: str) -> Any:
    try:
        return json.loads(header.metadata["fdl.state"])
    except (KeyError, ValueError, RecursionError) as error:
        raise damaged(name, error) from error
