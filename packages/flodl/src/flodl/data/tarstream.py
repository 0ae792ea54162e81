"""Samples in tar archives, read as streams: files of one sample stand side by side."""

from __future__ import annotations

import gzip
import itertools
import logging
import operator
import os
import re
import tarfile
import zlib
from pathlib import Path
from tarfile import ReadError
from typing import IO, TYPE_CHECKING, Any, Literal, Self, cast

from flodl.core.errors import ConfigError, DatasetFormatError, DatasetUnavailableError
from flodl.data.sampler import check_seed, seeded_permutation, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Decoder = Callable[[bytes], Any]
    _Member = tuple[str, str, tarfile.TarInfo]

MEMBER_LIMIT = 1 << 30
_CHUNK = 1 << 16
_NO_HEADER = (
    tarfile.EmptyHeaderError,  # type: ignore[attr-defined] # not in the stubs, as those below
    tarfile.InvalidHeaderError,  # type: ignore[attr-defined]
    tarfile.TruncatedHeaderError,  # type: ignore[attr-defined]
)
_NUMBERS = re.compile(r"(\d+)\.\.(\d+)")

logger = logging.getLogger(__name__)


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern stands for: ``{0000..0009}`` counts, ``{a,b}`` lists.

    Raises:
        ConfigError: Braces that are not closed, or a count that runs backwards.
    """
    before, opened, rest = pattern.partition("{")
    if not opened:
        return [pattern]
    inside, closed, after = rest.partition("}")
    if not closed:
        raise ConfigError(f"pattern {pattern!r}: the brace is not closed")
    counted = _NUMBERS.fullmatch(inside)
    choices = inside.split(",")
    if counted is not None:
        first, last = int(counted[1]), int(counted[2])
        if first > last:
            raise ConfigError(f"pattern {pattern!r}: {first} to {last} runs backwards")
        choices = [f"{number:0{len(counted[1])}d}" for number in range(first, last + 1)]
    return [before + choice + end for choice in choices for end in expand_braces(after)]


class TarStream:
    """Dict samples of tar archives, for ``DataLoader.from_iterable``.

    Files whose names are equal up to the first dot of the last part belong to one sample and stand
    next to each other; the rest of the name is the key. Archives are visited in another order each
    epoch and shared by the ranks; each is read front to back, and nothing is unpacked to disk.

    Args:
        patterns: Paths of archives, with ``{0000..0009}`` and ``{a,b}``; compressed ones too.
        decoders: For each key the function that makes a tensor or number of the bytes; other keys
            are left out.
        shuffle: Whether archives change places each epoch.
        seed: Base of that.
        on_error: ``"skip"`` leaves out the rest of a damaged archive, and says so.

    Raises:
        ConfigError: No archives or decoders, or a pattern that is none.
        DatasetUnavailableError: An archive is missing.
    """

    def __init__(
        self,
        patterns: Sequence[str | os.PathLike[str]],
        decoders: Mapping[str, Decoder],
        *,
        shuffle: bool = True,
        seed: int = 42,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        if isinstance(patterns, str) or not patterns or not decoders:
            raise ConfigError("TarStream needs a list of archives, and a decoder for each key")
        if on_error not in {"raise", "skip"}:
            raise ConfigError(f'on_error={on_error!r}: expected "raise" or "skip"')
        self.shards = [
            Path(name) for pattern in patterns for name in expand_braces(os.fspath(pattern))
        ]
        missing = [path for path in self.shards if not path.is_file()]
        if missing:
            raise DatasetUnavailableError(
                f"{missing[0]}: no such archive ({len(missing)} of {len(self.shards)} are missing)"
            )
        self._decoders = dict(decoders)
        self._is_shuffled = shuffle
        self._seed = check_seed(seed)
        self._skips_errors = on_error == "skip"
        self._epoch = 0
        self._rank, self._world_size = 0, 1
        self._start = (0, 0)
        self._place = (0, 0)
        self.skipped = 0
        """Archives that were damaged."""

    def set_epoch(self, epoch: int) -> None:
        """Read the archives in the order of this epoch, from the front."""
        self._epoch = epoch
        self._start = self._place = (0, 0)

    def shard_for_rank(self, rank: int, world_size: int) -> None:
        """Read the archives of one rank only; with fewer archives than ranks, its samples."""
        self._rank, self._world_size = rank, world_size
        if len(self.shards) < world_size:
            logger.warning(
                "%d archives for %d ranks: each rank reads all of them and uses one sample in %d",
                len(self.shards),
                world_size,
                world_size,
            )

    def state_dict(self) -> dict[str, int]:
        """Return the place that reading has come to: the archive, and the sample in it."""
        return {"epoch": self._epoch, "archive": self._place[0], "sample": self._place[1]}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next reading begin at a saved place."""
        self._epoch = whole_number("epoch", state["epoch"], least=0)
        self._start = self._place = (state["archive"], state["sample"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        order = list(range(len(self.shards)))
        if self._is_shuffled:
            order = seeded_permutation(len(self.shards), self._seed, self._epoch).tolist()
        archives = [self.shards[number] for number in order]
        strides = len(archives) < self._world_size
        if not strides:
            archives = archives[self._rank :: self._world_size]
        first, skip = self._start
        for number, path in enumerate(archives[first:], first):
            begin = skip if number == first else 0
            for sample_number, sample in self._samples(path, begin):
                self._place = (number, sample_number + 1)
                if not strides or sample_number % self._world_size == self._rank:
                    yield sample
            self._place = (number + 1, 0)

    def _samples(self, path: Path, begin: int) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            with _opened(path) as file, _archive(file) as archive:
                for number, (name, members) in enumerate(_groups(archive)):
                    fields = {
                        key: _content(path, archive, member)
                        for _, key, member in members
                        if number >= begin and key in self._decoders
                    }
                    if number >= begin:
                        yield number, self._decoded(path, name, fields)
                _check_rest(archive)
        except (tarfile.TarError, EOFError, zlib.error, OSError, DatasetFormatError) as error:
            found = (
                error
                if isinstance(error, DatasetFormatError)
                else DatasetFormatError(os.fspath(path), None, f"damaged archive: {error}")
            )
            if not self._skips_errors:
                raise found from error
            self.skipped += 1
            logger.warning("%s; the rest is left out (%d so far)", found, self.skipped)

    def _decoded(self, path: Path, name: str, fields: dict[str, bytes]) -> dict[str, Any]:
        lacking = sorted(set(self._decoders) - set(fields))
        if lacking:
            raise DatasetFormatError(
                os.fspath(path), None, f"sample {name!r} has no {', '.join(lacking)}"
            )
        decoded = {}
        for key, decode in self._decoders.items():
            try:
                decoded[key] = decode(fields[key])
            except Exception as error:
                raise DatasetFormatError(
                    os.fspath(path), None, f"{key} of sample {name!r}: {error}"
                ) from error
        return decoded


class _StrictHeader(tarfile.TarInfo):
    """Takes a damaged or missing header for an error, where ``tarfile`` takes it for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read name and size of an ordinary file here, which is quicker; leave others to tarfile.

        Places of the fields: POSIX.1-1988, ustar interchange format.
        """
        name = bytes(buf[:100]).partition(b"\0")[0]
        is_ordinary = (
            len(buf) == tarfile.BLOCKSIZE
            and buf[257:262] == b"ustar"
            and buf[156:157] in tarfile.REGTYPE + tarfile.AREGTYPE
            and not buf[345]  # no prefix of the name
            and name
            and not name.endswith(b"/")
        )
        if is_ordinary:
            size, total = _octal(buf[124:136]), _octal(buf[148:156])
            if size is not None and total == sum(buf) - sum(buf[148:156]) + 8 * ord(" "):
                made = cls(name.decode(encoding, errors))
                made.size, made.chksum, made.type = size, total, bytes(buf[156:157])
                return made
        return super().frombuf(buf, encoding, errors)

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile)
        except _NO_HEADER as error:
            raise ReadError(f"no end mark, but at byte {tarfile.offset}: {error}") from error


def _octal(field: bytes | bytearray) -> int | None:
    digits = bytes(field).strip(b" \0")
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _opened(path: Path) -> IO[bytes]:
    file = path.open("rb")
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if not is_gzip:
        return file
    with file:  # tarfile itself does not compare checksums
        return cast("IO[bytes]", gzip.open(path))


def _archive(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|*", tarinfo=_StrictHeader)


def _check_rest(archive: tarfile.TarFile) -> None:
    """Raise ``ReadError`` when something follows the end mark: it is none, or was cut into."""
    stream = cast("IO[bytes]", archive.fileobj)
    while rest := stream.read(_CHUNK):
        if rest.strip(b"\0"):
            raise ReadError("data after the end mark")


def _groups(archive: tarfile.TarFile) -> Iterator[tuple[str, Iterator[_Member]]]:
    """Yield the name of each sample with its files, which lie side by side."""
    members = ((*_key(member.name), member) for member in archive if member.isreg())
    return itertools.groupby(members, key=operator.itemgetter(0))


def _key(name: str) -> tuple[str, str]:
    """Return the name of a sample, and the key of one of its files."""
    folder, _, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return (f"{folder}/{stem}" if folder else stem), suffix


def _content(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MEMBER_LIMIT:
        raise DatasetFormatError(
            os.fspath(path), None, f"{member.name} has {member.size} bytes: more than 1 GiB"
        )
    stream = cast("IO[bytes]", archive.fileobj)
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) < member.size:
        raise DatasetFormatError(os.fspath(path), None, f"{member.name} is cut off")
    return data
