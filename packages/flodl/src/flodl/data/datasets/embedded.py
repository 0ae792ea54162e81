"""The small real data sets inside the package, checked against ``SHA256SUMS`` before use."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from flodl.core.errors import ChecksumError, DatasetUnavailableError
from flodl.data.datasets.cache import check_sha256

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from flodl.data.datasets.catalog import DatasetName

_REINSTALL = "the installation is damaged: reinstall flodl"


class EmbeddedFiles:
    """The files of one mini set, named as the published ones.

    Args:
        dataset: Whose files.
        folder: Holds the folders of all mini sets; left out: the one in the package.
    """

    def __init__(self, dataset: DatasetName, folder: Traversable | None = None) -> None:
        self._dataset = dataset
        self._folder = folder or resources.files("flodl.data.datasets") / "mini"

    def read(self, *names: str) -> list[bytes]:
        """Return the bytes of embedded files.

        Raises:
            DatasetUnavailableError: A file is missing.
            ChecksumError: A file, or the list of checksums, is damaged.
        """
        sums = self._sums()
        return [self._checked(f"{self._dataset}/{name}", sums) for name in names]

    def _sums(self) -> dict[str, str]:
        lines = self._bytes("SHA256SUMS").decode("utf-8", "replace").splitlines()
        pairs = [line.split() for line in lines]
        return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}

    def _checked(self, name: str, sums: dict[str, str]) -> bytes:
        data = self._bytes(name)
        if name not in sums:
            raise ChecksumError(
                f"{self._folder / 'SHA256SUMS'}: no checksum for {name}", hint=_REINSTALL
            )
        check_sha256(str(self._folder / name), data, sums[name], hint=_REINSTALL)
        return data

    def _bytes(self, name: str) -> bytes:
        path = self._folder / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise DatasetUnavailableError(
                f"{path}: cannot be read: {error.strerror or error}", hint=_REINSTALL
            ) from error
