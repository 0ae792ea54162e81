"""Tables of the Hugging Face ``datasets`` library; the library itself is never imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from flodl.core.errors import ConfigError, SampleError
from flodl.data.dataset import check_indices

if TYPE_CHECKING:
    from collections.abc import Sequence


class HfDataSet:
    """Columns of a ``datasets.Dataset`` as tensors, read in bulk.

    A set with a transform of its own (``set_transform``) keeps it, and is then read anew in each
    epoch.

    Args:
        dataset: A ``datasets.Dataset``.
        columns: The columns to read; all when left out.

    Raises:
        ConfigError: A column that the set does not have.
    """

    def __init__(self, dataset: Any, columns: Sequence[str] | None = None) -> None:
        legal = list(dataset.column_names)
        chosen = legal if columns is None else list(columns)
        unknown = [name for name in chosen if name not in legal]
        if unknown:
            raise ConfigError(f"columns: no {unknown[0]!r}; the set has {', '.join(legal)}")
        self.is_fixed = dataset.format["type"] != "custom"
        if self.is_fixed:
            dataset = dataset.with_format("torch", columns=chosen)
        self._dataset = dataset
        self._columns = None if columns is None else chosen

    def __len__(self) -> int:
        return len(self._dataset)

    def get_batch(self, indices: Tensor | Sequence[int]) -> dict[str, Tensor]:
        """Return the given rows.

        Raises:
            SampleError: A column that is no tensor: texts, or rows of different lengths.
        """
        rows = self._dataset[check_indices(indices, len(self)).tolist()]
        names = self._columns or list(rows)
        for name in names:
            if not isinstance(rows[name], Tensor):
                held = type(rows[name][0]).__name__ if len(rows[name]) else "nothing"
                raise SampleError(
                    f"column {name!r} is no tensor: its rows are {held} of different sizes or "
                    "types",
                    hint="choose columns=[...], or give a collate that pads them",
                )
        return {name: rows[name] for name in names}

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Return several rows, one dict each."""
        rows = self._dataset[list(indices)]
        names = self._columns or list(rows)
        return [{name: rows[name][place] for name in names} for place in range(len(indices))]


class HfStream:
    """Columns of a streamed ``datasets.IterableDataset``, for ``DataLoader.from_iterable``.

    Args:
        dataset: A ``datasets.IterableDataset``.
        columns: The columns to read; all when left out.
    """

    def __init__(self, dataset: Any, columns: Sequence[str] | None = None) -> None:
        self._dataset = dataset if columns is None else dataset.select_columns(list(columns))

    def set_epoch(self, epoch: int) -> None:
        """Let the set's own shuffle draw for this epoch."""
        self._dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the place that the set's own reading has come to."""
        state: dict[str, Any] = self._dataset.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next reading begin at a saved place."""
        self._dataset.load_state_dict(state)

    def __iter__(self) -> Any:
        return iter(self._dataset)
