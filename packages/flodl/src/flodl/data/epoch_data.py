"""Settings of data that a function makes for each epoch, and what it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from flodl.core.errors import DataError
from flodl.data.batch import default_names
from flodl.data.dataset import as_tensor, fields_of
from flodl.data.sampler import check_seed, whole_number

if TYPE_CHECKING:
    import torch

    from flodl.data.config import BatchTransform

EpochData: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochFnConfig:
    """Settings of an :class:`EpochFnLoader`.

    Raises:
        ConfigError: A value outside its range.
    """

    batch_size: int
    """Rows of a batch."""
    device: str | torch.device = "cpu"
    """Where batches arrive."""
    seed: int = 42
    """Base of the shuffles."""
    shuffle: bool = True
    """Whether rows are visited in a random order."""
    drop_last: bool = True
    """Whether a last batch with fewer rows is left out."""
    names: Sequence[str] | None = None
    """Names of the tensors, in order."""
    device_transform: BatchTransform | None = None
    """Called with each batch on its device."""
    vram_max_usage: float = 0.90
    """Share of a GPU's memory that both buffers may fill, with everything else."""

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, least=1)
        check_seed(self.seed)


class Made:
    """What the function gave for one epoch, checked.

    Raises:
        DataError: No tensors, tensors without rows, or with unequal numbers of them.
    """

    def __init__(self, epoch: int, data: object) -> None:
        keys, values = fields_of(data)
        self.epoch = epoch
        self.tensors = tuple(as_tensor(value).detach() for value in values)
        self.names = keys or default_names(len(self.tensors))
        rows = {tensor.shape[0] if tensor.dim() else 0 for tensor in self.tensors}
        if len(rows) != 1 or rows == {0}:
            raise DataError(
                f"the function gave tensors of {sorted(rows)} rows for epoch {epoch}: expected "
                "one or more tensors with as many rows, and not 0"
            )
        self.rows = rows.pop()

    @property
    def layout(self) -> tuple[tuple[torch.dtype, torch.Size], ...]:
        """Dtype and shape of each tensor."""
        return tuple((tensor.dtype, tensor.shape) for tensor in self.tensors)

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)
