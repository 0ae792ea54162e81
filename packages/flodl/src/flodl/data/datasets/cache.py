"""The published files in the cache folder of this machine: checked, and fetched when missing."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.core.errors import ChecksumError, ConfigError, DatasetUnavailableError
from flodl.core.units import format_bytes
from flodl.data.datasets.catalog import CATALOG
from flodl.data.datasets.download import download
from flodl.data.datasets.lock import locked
from flodl_sys.names import DATA_PATH, OFFLINE

if TYPE_CHECKING:
    from flodl.data.datasets.catalog import DatasetName, PublishedFile
    from flodl.data.datasets.download import HttpSettings
    from flodl.data.datasets.files import StrPath

logger = logging.getLogger(__name__)


def cache_root(root: StrPath | None) -> Path:
    """Return the folder that holds the data sets.

    The argument comes first, then ``FLODL_DATA_PATH``, then ``flodl/datasets`` in the user's cache
    folder (``XDG_CACHE_HOME``, else ``~/.cache``).
    """
    chosen = root or DATA_PATH.get()
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flodl" / "datasets"


def is_offline(offline: bool | None) -> bool:
    """Return whether the network may not be used: the argument, then ``FLODL_OFFLINE``.

    Raises:
        ConfigError: The variable is neither 0 nor 1.
    """
    if offline is not None:
        return offline
    value = OFFLINE.get() or "0"
    if value not in {"0", "1"}:
        raise ConfigError(f"{OFFLINE.name}={value!r}: expected 0 or 1")
    return value == "1"


class CachedFiles:
    """The files of one data set under a root folder.

    Args:
        dataset: Whose files.
        root: Holds a folder for each data set; see ``cache_root``.
        offline: Whether a missing file is an error rather than fetched; see ``is_offline``.
        settings: How files are fetched.
    """

    def __init__(
        self,
        dataset: DatasetName,
        root: StrPath | None,
        *,
        offline: bool | None = None,
        settings: HttpSettings | None = None,
    ) -> None:
        self._dataset = dataset
        self._is_offline = is_offline(offline)
        self._settings = settings
        self.folder = cache_root(root) / dataset

    def has(self, *names: str) -> bool:
        """Return whether all these files are there."""
        return all((self.folder / name).is_file() for name in names)

    def read(self, *names: str) -> list[bytes]:
        """Return the bytes of published files; what is missing or damaged is fetched.

        Raises:
            DatasetUnavailableError: Files are missing and may not or cannot be fetched; lists each
                with size and addresses.
            ChecksumError: A file has other bytes than the published ones and may not be fetched,
                or its addresses give such.
        """
        published = {file.name: file for file in CATALOG[self._dataset]}
        missing = [published[name] for name in names if not self.has(name)]
        if missing and self._is_offline:
            raise self.unavailable(missing)
        return [self._bytes(published[name]) for name in names]

    def ensure(self, *names: str) -> list[Path]:
        """Return the paths of published files, all of them by default, fetched where needed.

        Raises:
            DatasetUnavailableError: As ``read``.
            ChecksumError: As ``read``.
        """
        wanted = names or tuple(file.name for file in CATALOG[self._dataset])
        self.read(*wanted)
        return [self.folder / name for name in wanted]

    def unavailable(self, missing: list[PublishedFile]) -> DatasetUnavailableError:
        """Return the error that says which files are expected where."""
        lines = "".join(
            f"\n  {file.name} ({file.size} bytes) from {' or '.join(file.urls)}"
            + (f"; unpacked: {', '.join(file.unpacked)}" if file.unpacked else "")
            for file in missing
        )
        return DatasetUnavailableError(
            f"{self._dataset}: offline, and not in {self.folder}, which lacks{lines}",
            hint="put the files there, name another folder with root= or "
            f"{DATA_PATH.name}, allow the network with offline=False, or take the small embedded "
            'set with source="mini"',
        )

    def _bytes(self, file: PublishedFile) -> bytes:
        path = self.folder / file.name
        if self._is_offline:
            data = self._data(path)
            check_sha256(str(path), data, file.sha256, hint="remove the file and fetch it again")
            return data
        found = self._sound(path, file)
        if found is not None:
            return found
        self._make_folder()
        with locked(self.folder / f"{file.name}.lock"):
            found = self._sound(path, file)  # another process may have fetched it meanwhile
            if found is not None:
                return found
            if path.exists():
                aside = path.with_name(path.name + ".bad")
                path.replace(aside)
                logger.warning(
                    "%s: not the published bytes; kept as %s and fetched again", path, aside
                )
            logger.info("fetching %s (%s) to %s", file.name, format_bytes(file.size), self.folder)
            download(file, path, self._settings)
            return self._data(path)

    def _sound(self, path: Path, file: PublishedFile) -> bytes | None:
        if not path.is_file():
            return None
        data = self._data(path)
        return data if hashlib.sha256(data).hexdigest() == file.sha256 else None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetUnavailableError(
                f"{self.folder}: cannot be made: {error.strerror or error}",
                hint=f"name another folder with root= or {DATA_PATH.name}",
            ) from error

    def _data(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise DatasetUnavailableError(
                f"{path}: cannot be read: {error.strerror or error}"
            ) from error


def ensure(
    name: DatasetName, root: StrPath | None = None, *, offline: bool | None = None
) -> list[Path]:
    """Return the paths of the published files of a data set, fetched where they are missing.

    Args:
        name: ``"mnist"``, ``"cifar10"`` or ``"shakespeare"``.
        root: Cache folder; left out: ``FLODL_DATA_PATH``, else the user's cache folder.
        offline: ``True`` never opens a connection; left out: ``FLODL_OFFLINE``.

    Raises:
        ConfigError: An unknown name.
        DatasetUnavailableError: Files are missing, and may not or cannot be fetched.
        ChecksumError: Bytes that are not the published ones, from every address.
    """
    if name not in CATALOG:
        raise ConfigError(f"ensure({name!r}): no such data set; there are {', '.join(CATALOG)}")
    return CachedFiles(name, root, offline=offline).ensure()


def check_sha256(name: str, data: bytes, expected: str, *, hint: str) -> None:
    """Raise ``ChecksumError`` unless ``data`` have the SHA-256 ``expected``."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise ChecksumError(
            f"{name}: {len(data)} bytes with SHA-256 {found}: expected {expected}", hint=hint
        )
