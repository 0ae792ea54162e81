"""Bytes of data files: bounded reads that gunzip by sight, and writes that are whole or absent."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias, cast

from flodl.core.errors import DatasetFormatError, DatasetUnavailableError

StrPath: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = bytes | bytearray | memoryview | StrPath

SIZE_LIMIT = 1 << 30
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def source_name(source: Source) -> str:
    """Return what messages call these data."""
    if isinstance(source, bytes | bytearray | memoryview):
        return f"<{len(source)} bytes>"
    return os.fspath(source)


class ByteReader:
    """Sequential reads from bytes or a file, unpacked when they are gzip.

    Nothing is allocated for bytes that are not there, whatever a header promises.

    Raises:
        DatasetUnavailableError: The file cannot be opened or read.
        DatasetFormatError: Bad gzip, from ``take``.
    """

    def __init__(self, source: Source) -> None:
        self.offset = 0
        self.name = source_name(source)
        raw: BinaryIO
        if isinstance(source, bytes | bytearray | memoryview):
            raw = io.BytesIO(source)
        else:
            raw = _opened(Path(source))
        self._raw = raw
        is_gzip = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        self._stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip else raw

    def take(self, limit: int) -> bytearray:
        """Return the next ``limit`` bytes, or fewer where the data end."""
        taken = bytearray()
        while len(taken) < limit:
            chunk = self._read(min(limit - len(taken), _CHUNK))
            if not chunk:
                break
            taken += chunk
        self.offset += len(taken)
        return taken

    def read(self, limit: int = -1) -> bytes:
        """Return the next bytes as a file would; more than 1 GiB in all is an error."""
        chunk = self._read(_CHUNK if limit < 0 else min(limit, _CHUNK))
        self.offset += len(chunk)
        if self.offset > SIZE_LIMIT:
            raise self.error("more than 1 GiB of data")
        return chunk

    def _read(self, limit: int) -> bytes:
        try:
            return self._stream.read(limit)
        except EOFError:
            raise self.error("the gzip data are cut off") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self.error(f"bad gzip data: {error}") from error
        except OSError as error:
            raise DatasetUnavailableError(f"{self.name}: cannot be read: {error}") from error

    def error(self, reason: str, offset: int | None = None) -> DatasetFormatError:
        """Return the error for these data, at ``offset`` or where reading has come to."""
        return DatasetFormatError(self.name, self.offset if offset is None else offset, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DatasetUnavailableError(
            f"{path}: cannot be opened: {error.strerror or error}"
        ) from error


def write_whole(path: StrPath, payload: bytes) -> None:
    """Write a file so that it is there complete or not at all; ``.gz`` names are compressed.

    The same payload gives the same bytes under the same zlib: no time is stored.
    """
    target = Path(path)
    data = gzip.compress(payload, 9, mtime=0) if target.suffix == ".gz" else payload
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
