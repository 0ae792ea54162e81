"""The bytes of tensors: writing them into a container and reading them out of one."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import shutil
import tempfile
from typing import TYPE_CHECKING, BinaryIO

import torch
from safetensors import SafetensorError, safe_open

from flodl.checkpoint.files import CHUNK_BYTES
from flodl.checkpoint.format import (
    NO_DIGEST,
    Digest,
    Header,
    header_bytes,
    header_length,
    parse_header,
    place_tensors,
)
from flodl.checkpoint.legacy import is_legacy, read_legacy_header, read_legacy_tensors
from flodl.core.errors import CheckpointFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def write_container(
    file: BinaryIO, metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write a whole container into an empty seekable file, one tensor in memory at a time."""
    entries = place_tensors(
        (name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()
    )
    header = Header({**metadata, "fdl.digest": NO_DIGEST}, entries)
    head = header_bytes(header)
    file.write(head)
    digest = Digest(header.metadata)
    for name, entry in entries.items():
        digest.begin(entry)
        file.seek(len(head) + entry.start)
        for chunk in _chunks_of(tensors[name]):
            digest.update(chunk)
            file.write(chunk)
    # The digest is known only now; it is as long as its place-holder, so nothing moves.
    file.seek(0)
    sealed = {**header.metadata, "fdl.digest": digest.hexdigest()}
    file.write(header_bytes(dataclasses.replace(header, metadata=sealed)))


def _chunks_of(tensor: torch.Tensor) -> Iterator[bytes]:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    view = _memory_of(plain)
    for start in range(0, len(view), CHUNK_BYTES):
        # A copy, so that digest and file see the same bytes while training goes on.
        yield bytes(view[start : start + CHUNK_BYTES])


def _memory_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor; it lives as long as the tensor does."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(bytearray())
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def read_header(file: BinaryIO, *, name: str) -> tuple[Header, int]:
    """Return the header and where the data begins, after checking it against the file's length."""
    if is_legacy(file.read(4)):
        return read_legacy_header(file, name=name), 0
    file.seek(0)
    header, base = read_head(file, name=name)
    length = file.seek(0, 2)
    expected = base + header.data_bytes
    if length != expected:
        what = "truncated" if length < expected else "followed by bytes that do not belong to it"
        raise CheckpointFormatError(
            f"{name}: {what}: {length} bytes long, the header describes {expected}",
            hint="copy or save the file again",
        )
    return header, base


def read_head(file: BinaryIO, *, name: str) -> tuple[Header, int]:
    """Return the header and where the data begins; the data need not be there."""
    head = file.read(9)
    length = header_length(head, name=name)
    text = head[8:] + file.read(length - 1)
    if len(text) != length:
        raise CheckpointFormatError(
            f"{name}: truncated: {8 + len(text)} bytes long, the header alone takes {8 + length}",
            hint="copy or save the file again",
        )
    return parse_header(text, name=name), 8 + length


def read_tensors(
    file: BinaryIO, header: Header, *, wanted: set[str], name: str, verify: bool
) -> dict[str, torch.Tensor]:
    """Return the wanted stored tensors on the CPU, after checking the digest of the whole file.

    The header has been checked before; safetensors, which reads the tensors, checks it again.

    Raises:
        CheckpointFormatError: The digest does not fit (only with ``verify``), or data ends early.
    """
    if header.is_legacy:
        return read_legacy_tensors(file, header, wanted=wanted)
    stored_digest = header.metadata.get("fdl.digest", "")
    digest = Digest(header.metadata) if verify and stored_digest else None
    tensors: dict[str, torch.Tensor] = {}
    try:
        with _path_of(file) as path, safe_open(path, framework="pt") as source:
            for entry in header.entries.values():
                if digest is None and entry.name not in wanted:
                    continue
                tensor = source.get_tensor(entry.name)
                if entry.name in wanted:
                    # A copy: what safetensors returns is the file itself, mapped into memory.
                    tensor = tensors[entry.name] = tensor.clone()
                if digest is not None:
                    digest.begin(entry)
                    digest.update(_memory_of(tensor.contiguous()))
    except SafetensorError as error:
        raise CheckpointFormatError(
            f"{name}: damaged: {error}", hint="copy or save the file again"
        ) from error
    if digest is not None and digest.hexdigest() != stored_digest:
        raise CheckpointFormatError(
            f"{name}: content does not fit its digest: {stored_digest[:12]}… is stored, "
            f"{digest.hexdigest()[:12]}… was computed",
            hint="the file was damaged or changed: copy it again; verify=False reads it anyway",
        )
    return tensors


@contextlib.contextmanager
def _path_of(file: BinaryIO) -> Iterator[str]:
    """Give a path to the content of an open file, also of one that has no name any more.

    A stream that is no file of the system is copied to one.
    """
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy, CHUNK_BYTES)
            copy.flush()
            yield f"/dev/fd/{copy.fileno()}"
    else:
        file.flush()
        yield f"/dev/fd/{descriptor}"
