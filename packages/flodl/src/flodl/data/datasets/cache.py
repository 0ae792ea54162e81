"""The published files in the cache folder of this machine, checked before they are used."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.core.errors import ChecksumError, DatasetUnavailableError
from flodl.data.datasets.catalog import CATALOG

if TYPE_CHECKING:
    from flodl.data.datasets.catalog import DatasetName, PublishedFile
    from flodl.data.datasets.files import StrPath

DATA_PATH_VARIABLE = "FLODL_DATA_PATH"


def cache_root(root: StrPath | None) -> Path:
    """Return the folder that holds the data sets.

    The argument comes first, then ``FLODL_DATA_PATH``, then ``flodl/datasets`` in the user's cache
    folder (``XDG_CACHE_HOME``, else ``~/.cache``).
    """
    chosen = root or os.environ.get(DATA_PATH_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flodl" / "datasets"


class CachedFiles:
    """The files of one data set under a root folder; a missing one is an error, never a fetch."""

    def __init__(self, dataset: DatasetName, root: StrPath | None) -> None:
        self._dataset = dataset
        self.folder = cache_root(root) / dataset

    def has(self, *names: str) -> bool:
        """Return whether all these files are there."""
        return all((self.folder / name).is_file() for name in names)

    def read(self, *names: str) -> list[bytes]:
        """Return the bytes of published files.

        Raises:
            DatasetUnavailableError: Lists each file that is missing, with size and addresses.
            ChecksumError: A file has other bytes than the published ones.
        """
        published = {file.name: file for file in CATALOG[self._dataset]}
        missing = [published[name] for name in names if not self.has(name)]
        if missing:
            raise self.unavailable(missing)
        return [self._checked(published[name]) for name in names]

    def unavailable(self, missing: list[PublishedFile]) -> DatasetUnavailableError:
        """Return the error that says which files are expected where."""
        lines = "".join(
            f"\n  {file.name} ({file.size} bytes) from {' or '.join(file.urls)}"
            + (f"; unpacked: {', '.join(file.unpacked)}" if file.unpacked else "")
            for file in missing
        )
        return DatasetUnavailableError(
            f"{self._dataset}: not in {self.folder}, which lacks{lines}",
            hint="put the files there (flodl does not download them), name another folder with "
            f'root= or {DATA_PATH_VARIABLE}, or take the small embedded set with source="mini"',
        )

    def _checked(self, file: PublishedFile) -> bytes:
        path = self.folder / file.name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DatasetUnavailableError(
                f"{path}: cannot be read: {error.strerror or error}"
            ) from error
        check_sha256(str(path), data, file.sha256, hint="remove the file and fetch it again")
        return data


def check_sha256(name: str, data: bytes, expected: str, *, hint: str) -> None:
    """Raise ``ChecksumError`` unless ``data`` have the SHA-256 ``expected``."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise ChecksumError(
            f"{name}: {len(data)} bytes with SHA-256 {found}: expected {expected}", hint=hint
        )
