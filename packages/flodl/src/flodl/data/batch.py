"""One batch: tensors with equal row counts, reached by position or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from flodl.core.errors import BatchKeyError, ConfigError, SampleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

StaticValue: TypeAlias = str | int | float | bool | None


def default_names(count: int) -> tuple[str, ...]:
    """Return ``("0", "1", ...)``, the names of tensors nobody named."""
    return tuple(str(position) for position in range(count))


def check_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return ``names`` as a tuple, once they are ``count`` different strings.

    Raises:
        ConfigError: Another count, a duplicate, or a name that is no string.
    """
    unique = set(names)
    if isinstance(names, str) or {type(name) for name in unique} - {str}:
        raise ConfigError(f"names={names!r}: expected a sequence of strings, one for each tensor")
    if len(names) != count:
        raise ConfigError(f"names={list(names)!r:.200}: {len(names)} names for {count} tensors")
    if len(unique) != count:
        twice = sorted(name for name in unique if list(names).count(name) > 1)
        raise ConfigError(f"names={list(names)!r}: {', '.join(twice)} given more than once")
    return tuple(names)


class Batch:
    """Tensors of one batch, by index (``batch[0]``) or by name (``batch["image"]``).

    All tensors have the same number of rows. ``x, y = batch`` works, ``len(batch)`` counts the
    tensors and ``size`` the rows. A batch owns its tensors: writing into them changes nothing
    else, unless ``is_static`` says that a captured step owns them.

    Args:
        tensors: At least one tensor, each with one dimension or more.
        names: One for each tensor; ``"0"``, ``"1"``, ... when left out.
        epoch: Epoch the batch belongs to.
        index: Position of the batch in its epoch.
        static: Plain values that choose the code path (``has_padding``): part of what a captured
            step is keyed by.
        is_static: The tensors belong to a captured step and are overwritten by the next batch.

    Raises:
        ConfigError: No tensors, or names that do not fit them.
        SampleError: A tensor without rows, or rows that differ in number.
    """

    __slots__ = (
        "_names",
        "_static",
        "_tensors",
        "epoch",
        "index",
        "is_static",
        "lease_id",
        "ranges",
    )

    def __init__(
        self,
        tensors: Sequence[Tensor],
        names: Sequence[str] | None = None,
        *,
        epoch: int = 0,
        index: int = 0,
        static: Mapping[str, StaticValue] | None = None,
        is_static: bool = False,
    ) -> None:
        self._tensors = tuple(tensors)
        _check_rows(self._tensors)
        count = len(self._tensors)
        self._names = default_names(count) if names is None else check_names(names, count)
        self._static: dict[str, StaticValue] = dict(static) if static else {}
        self.epoch = epoch
        self.index = index
        self.is_static = is_static
        self.lease_id: int | None = None
        """Lease that the batch is part of, if it was leased."""
        self.ranges: tuple[tuple[int, int], ...] = ()
        """Positions in the order of the epoch that a leased batch covers, half-open."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in their order."""
        return self._names

    @property
    def static(self) -> dict[str, StaticValue]:
        """Plain values that choose the code path of the step."""
        return self._static

    @property
    def size(self) -> int:
        """Number of rows (samples)."""
        return self._tensors[0].shape[0]

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def __getitem__(self, key: int | str) -> Tensor:
        if isinstance(key, str):
            try:
                return self._tensors[self._names.index(key)]
            except ValueError:
                raise BatchKeyError(
                    f"batch[{key!r}]: no such tensor; names: {', '.join(self._names)}"
                ) from None
        try:
            return self._tensors[key]
        except IndexError:
            raise IndexError(
                f"batch[{key}]: the batch has {len(self)} tensors: {', '.join(self._names)}"
            ) from None

    def get_named(self, name: str) -> Tensor | None:
        """Return the tensor of that name, or ``None`` when there is none."""
        return self[name] if name in self._names else None

    def has(self, name: str) -> bool:
        """Return whether a tensor has that name."""
        return name in self._names

    def into_list(self) -> list[Tensor]:
        """Return the tensors in their order."""
        return list(self._tensors)

    def as_dict(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return dict(zip(self._names, self._tensors, strict=True))

    def replace(self, changes: Mapping[str, Tensor]) -> Batch:
        """Return a batch with some tensors exchanged and everything else kept.

        Raises:
            BatchKeyError: A name that the batch does not have.
            SampleError: Row counts that differ afterwards.
        """
        for name in changes:
            if name not in self._names:
                self[name]
        tensors = [changes.get(n, t) for n, t in zip(self._names, self._tensors, strict=True)]
        return self._rebuilt(tuple(tensors), is_static=self.is_static)

    def to(self, device: str | torch.device, non_blocking: bool = False) -> Batch:
        """Return the batch on ``device``; tensors that are there already are shared, not copied."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return a copy in page-locked host memory, from which GPU copies can overlap work."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def clone(self) -> Batch:
        """Return a copy that owns its tensors, also when this batch is static."""
        return self._mapped(lambda tensor: tensor.clone())

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        tensors = tuple(change(tensor) for tensor in self._tensors)
        shares = any(new is old for new, old in zip(tensors, self._tensors, strict=True))
        return self._rebuilt(tensors, is_static=self.is_static and shares)

    def _rebuilt(self, tensors: tuple[Tensor, ...], *, is_static: bool) -> Batch:
        batch = Batch(
            tensors,
            self._names,
            epoch=self.epoch,
            index=self.index,
            static=self._static,
            is_static=is_static,
        )
        batch.lease_id, batch.ranges = self.lease_id, self.ranges
        return batch

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            for name, tensor in zip(self._names, self._tensors, strict=True)
        )
        return f"Batch(epoch={self.epoch}, index={self.index}, {parts})"


def _check_rows(tensors: tuple[Tensor, ...]) -> None:
    """Raise unless there is a tensor and all have the same number of rows."""
    try:
        if len({tensor.shape[0] for tensor in tensors}) == 1:
            return
    except (AttributeError, IndexError):
        pass  # the loop below says which tensor it is
    if not tensors:
        raise ConfigError("a batch of no tensors: expected one or more")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise ConfigError(
                f"tensor {position} of a batch is a {type(tensor).__name__}: expected a tensor"
            )
        if tensor.dim() == 0:
            raise SampleError(
                f"tensor {position} of a batch is a single number: expected one row per sample"
            )
    rows = [tensor.shape[0] for tensor in tensors]
    raise SampleError(f"tensors of one batch have {rows} rows: expected the same number")
