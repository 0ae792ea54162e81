"""Replacing a file in one step, and reading one whether gzipped or not."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from flodl.checkpoint.format import begins_safetensors
from flodl.core.errors import CheckpointFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
DEFAULT_MAX_BYTES = 64 << 30
GZIP_MAGIC = b"\x1f\x8b"

_HINTS = {
    errno.ENOSPC: "free space on that file system, or choose another folder",
    errno.EDQUOT: "your quota is used up: free space, or choose another folder",
    errno.EFBIG: "the file would pass the size limit (see `ulimit -f`): raise it",
    errno.ENOENT: "create the folder first, and check the spelling of the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another path",
    errno.EISDIR: "the path is a folder: name a file in it",
    errno.EACCES: "choose a path that you may use, or change its permissions",
    errno.EPERM: "choose a path that you may use, or change its permissions",
    errno.EROFS: "that file system is read-only: choose another folder",
    errno.ENAMETOOLONG: "choose a shorter file name",
}


def os_error_hint(error: OSError) -> str:
    """Return what a user can do about a failed file operation."""
    return _HINTS.get(error.errno or 0, "check the path and the state of its disk")


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a seekable file that takes the place of ``path`` when the block ends without an error.

    Until then, and after any error or Ctrl-C, ``path`` is what it was before; the temporary file,
    which lies in the same folder, is removed. The content is on disk before the name changes
    hands, so a killed process or a power cut leaves the old file or the new one, never a part.
    A symbolic link stays, the file it points to is replaced; an old file's permissions are kept.

    Raises:
        OSError: As the operating system reports it; the folder is not created.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    # The name is cut: with the suffix it must stay below the usual limit of 255 bytes.
    temporary = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.tmp")
    try:
        # "x": never follow or overwrite what somebody put there; the umask decides the mode.
        with temporary.open("xb+") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = os.fspath(path)  # the one that its reader knows
        if temporary.exists():
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; they order renames by themselves.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(descriptor)


def gzip_into(plain: BinaryIO, out: BinaryIO) -> None:
    """Compress a whole file into another, the same bytes for the same content."""
    plain.seek(0)
    # Level 1: the mantissas of weights hardly compress, higher levels only take longer.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=out, mtime=0) as packed:
        shutil.copyfileobj(plain, packed, CHUNK_BYTES)


@contextlib.contextmanager
def open_plain(
    source: str | os.PathLike[str] | BinaryIO, *, name: str, max_bytes: int
) -> Iterator[BinaryIO]:
    """Give the uncompressed content as a seekable file; gzip is recognized by its first bytes.

    A gzipped file is unpacked into an anonymous temporary file, never more than ``max_bytes``.

    Raises:
        CheckpointFormatError: Damaged gzip data, or more than ``max_bytes`` of content.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(source, str | os.PathLike):
            file: BinaryIO = stack.enter_context(Path(source).open("rb"))
        else:
            file = source if source.seekable() else stack.enter_context(_spooled(source))
            file.seek(0)
        head = file.read(9)
        file.seek(0)
        if is_gzip(head):
            plain = stack.enter_context(tempfile.TemporaryFile())
            _unzip_into(file, plain, name=name, max_bytes=max_bytes)
            file = plain
        yield file


def is_gzip(head: bytes) -> bool:
    """Return whether a file that begins with these nine bytes is packed."""
    return head.startswith(GZIP_MAGIC) and not begins_safetensors(head)


def _spooled(stream: BinaryIO) -> BinaryIO:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's exit stack closes it
    shutil.copyfileobj(stream, copy, CHUNK_BYTES)
    return copy


def _unzip_into(file: BinaryIO, plain: BinaryIO, *, name: str, max_bytes: int) -> None:
    written = 0
    for chunk in unzipped_chunks(file, name=name):
        written += len(chunk)
        if written > max_bytes:
            raise CheckpointFormatError(
                f"{name}: unpacks to more than {max_bytes} bytes",
                hint="if the file is trusted, pass a larger max_bytes",
            )
        plain.write(chunk)
    plain.seek(0)


def unzipped_chunks(file: BinaryIO, *, name: str) -> Iterator[bytes]:
    """Yield the content of a gzip file in pieces of at most one mebibyte."""
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as packed:
            while chunk := packed.read(CHUNK_BYTES):
                yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckpointFormatError(
            f"{name}: damaged or truncated gzip data ({error})",
            hint="copy or download the file again",
        ) from error
