"""Arrays in files that are read as they are needed: opened in each process, never written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from flodl.core.errors import ConfigError, DatasetFormatError, DatasetUnavailableError
from flodl.data.assembly import empty as ordinary
from flodl.data.dataset import check_indices
from flodl.data.sampler import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from flodl.data.assembly import Empty

StrPath: TypeAlias = "str | os.PathLike[str]"


class _Map:
    """One array in a file; what is sent to another process is the path."""

    def __init__(self, path: StrPath, dtype: DTypeLike | None = None) -> None:
        self.path = Path(path)
        self._dtype = None if dtype is None else np.dtype(dtype)
        self._array: NDArray[Any] | None = None
        self._windows: NDArray[Any] | None = None
        self._torch_dtype: torch.dtype | None = None

    def rows(self, rows: NDArray[np.int64], empty: Empty) -> Tensor:
        """Return copies of rows that are there, in memory that ``empty`` makes."""
        array = self.array
        if self._torch_dtype is None:
            self._torch_dtype = torch.from_numpy(np.empty(0, array.dtype.newbyteorder("="))).dtype
        made = empty((len(rows), *array.shape[1:]), self._torch_dtype)
        if array.dtype.isnative:
            # with another mode than "clip" NumPy takes the way over a copy
            np.take(array, rows, axis=0, out=made.numpy(), mode="clip")
        else:
            made.numpy()[...] = array[rows]
        return made

    def windows(self, size: int) -> NDArray[Any]:
        """Return a view of each run of ``size`` values of a row; that of one size is kept."""
        if self._windows is None or self._windows.shape[-1] != size:
            self._windows = np.lib.stride_tricks.sliding_window_view(self.array, size)
        return self._windows

    def __getstate__(self) -> tuple[Path, np.dtype[Any] | None]:
        return self.path, self._dtype

    def __setstate__(self, state: tuple[Path, np.dtype[Any] | None]) -> None:
        self.path, self._dtype = state
        self._array = self._windows = self._torch_dtype = None

    @property
    def array(self) -> NDArray[Any]:
        """The array, opened on first use.

        Raises:
            DatasetUnavailableError: The file cannot be opened.
            DatasetFormatError: It is no array of numbers, or has another dtype than expected.
        """
        if self._array is None:
            self._array = self._opened()
        return self._array

    def _opened(self) -> NDArray[Any]:
        name = os.fspath(self.path)
        try:
            with self.path.open("rb") as file:
                is_npy = file.read(6) == b"\x93NUMPY"
            size = self.path.stat().st_size
            if is_npy:
                found: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
            else:
                found = self._raw(name, size)
        except OSError as error:
            raise DatasetUnavailableError(
                f"{name}: cannot be opened: {error.strerror or error}"
            ) from error
        except ValueError as error:
            raise DatasetFormatError(name, None, f"not a sound .npy file: {error}") from error
        if self._dtype is not None and found.dtype != self._dtype:
            raise DatasetFormatError(name, None, f"holds {found.dtype}: expected {self._dtype}")
        if found.dtype.kind not in "biuf":
            raise DatasetFormatError(name, None, f"holds {found.dtype}: expected numbers")
        return found

    def _raw(self, name: str, size: int) -> NDArray[Any]:
        if self._dtype is None:
            raise DatasetFormatError(name, 0, "no .npy file: it does not begin with \\x93NUMPY")
        if not size or size % self._dtype.itemsize:
            raise DatasetFormatError(
                name, None, f"has {size} bytes: expected a multiple of {self._dtype.itemsize}"
            )
        return np.memmap(self.path, dtype=self._dtype, mode="r")


class MemmapDataSet:
    """Samples that are the rows of ``.npy`` files, by name.

    Args:
        paths: One file for each tensor.

    Raises:
        ConfigError: No files.
        DatasetFormatError: A file that is no array of numbers, or row counts that differ.
        DatasetUnavailableError: A file that cannot be opened.
    """

    is_fixed = True

    def __init__(self, paths: Mapping[str, StrPath]) -> None:
        if not paths:
            raise ConfigError("MemmapDataSet of no files: expected one or more")
        self.names = tuple(paths)
        self._maps = [_Map(path) for path in paths.values()]
        rows = [part.array.shape[0] if part.array.ndim else 0 for part in self._maps]
        for part, count in zip(self._maps, rows, strict=True):
            if count != rows[0] or not count:
                raise DatasetFormatError(
                    os.fspath(part.path),
                    None,
                    f"has {count} rows, {self._maps[0].path} has {rows[0]}: expected as many, and "
                    "not 0",
                )
        self._length = rows[0]

    def __len__(self) -> int:
        return self._length

    def get_batch(self, indices: Tensor | Sequence[int]) -> dict[str, Tensor]:
        """Return copies of the given rows; raise ``IndexError`` outside ``[0, len)``."""
        return self.stacked(indices, ordinary)

    def stacked(self, indices: Tensor | Sequence[int], empty: Empty) -> dict[str, Tensor]:
        """Return the same in memory that ``empty`` makes."""
        rows = check_indices(indices, self._length).numpy()
        parts = zip(self.names, self._maps, strict=True)
        return {name: part.rows(rows, empty) for name, part in parts}

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: rows[0] for name, rows in self.get_batch([index]).items()}


class TokenWindows:
    """Windows of one long row of tokens, with the same window one token later as the target.

    Batches are int64 ``input`` and ``target`` ``[B, S]``; window ``i`` begins at token
    ``i * stride``.

    Args:
        path: A ``.npy`` file of one dimension, or a file of nothing but tokens.
        seq_len: Tokens in a window.
        dtype: What a token is in the file; needed unless it is ``.npy``.
        stride: Tokens from one window to the next; ``seq_len`` when left out.

    Raises:
        ConfigError: ``seq_len`` or ``stride`` below 1.
        DatasetFormatError: Another dtype or size, or fewer than ``seq_len + 1`` tokens.
        DatasetUnavailableError: The file cannot be opened.
    """

    is_fixed = True
    names = ("input", "target")

    def __init__(
        self,
        path: StrPath,
        seq_len: int,
        dtype: DTypeLike | None = None,
        *,
        stride: int | None = None,
    ) -> None:
        self.seq_len = whole_number("seq_len", seq_len, least=1)
        self.stride = self.seq_len if stride is None else whole_number("stride", stride, least=1)
        self._map = _Map(path, dtype)
        tokens = self._map.array
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise DatasetFormatError(
                os.fspath(path),
                None,
                f"holds {tokens.dtype} {list(tokens.shape)}: expected one row of whole numbers",
            )
        if tokens.shape[0] < self.seq_len + 1:
            raise DatasetFormatError(
                os.fspath(path),
                None,
                f"has {tokens.shape[0]} tokens: windows of {self.seq_len} need {self.seq_len + 1}",
            )
        self._length: int = (tokens.shape[0] - self.seq_len - 1) // self.stride + 1

    def __len__(self) -> int:
        return self._length

    def get_batch(self, indices: Tensor | Sequence[int]) -> dict[str, Tensor]:
        """Return the given windows; raise ``IndexError`` outside ``[0, len)``."""
        return self.stacked(indices, ordinary)

    def stacked(self, indices: Tensor | Sequence[int], empty: Empty) -> dict[str, Tensor]:
        """Return the same in memory that ``empty`` makes."""
        starts = check_indices(indices, self._length).numpy() * self.stride
        tokens = self._map.windows(self.seq_len + 1)[starts]
        batch = {}
        for name, part in (("input", tokens[:, :-1]), ("target", tokens[:, 1:])):
            batch[name] = empty(part.shape, torch.int64)
            batch[name].numpy()[...] = part
        return batch

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: rows[0] for name, rows in self.get_batch([index]).items()}
