"""What a group of devices that this code drives by itself can do, whoever carries it out.

Tensors are reduced in place. The calls without a stream return when the result is there; those on
streams enqueue and return.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from flodl.distributed.collective.errors import NcclError

__all__ = ["AbortHandle", "Comms", "RankComm", "ReduceOp", "check_tensors"]


class ReduceOp(IntEnum):
    """How values of several ranks become one; the numbers are NCCL's."""

    Sum = 0
    Prod = 1
    Max = 2
    Min = 3
    Avg = 4


class AbortHandle(ABC):
    """Ends a rank's communication, from any thread."""

    @property
    @abstractmethod
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""

    @abstractmethod
    def abort(self) -> None:
        """Let waiting calls raise `NcclAborted`, and later ones too; a second call does nothing."""


class _Closing(ABC):
    @abstractmethod
    def close(self) -> None:
        """Let go; does nothing once closed or aborted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RankComm(_Closing):
    """One rank of a communicator; one other thread than its maker's may use it."""

    rank: int
    size: int
    device: torch.device

    @abstractmethod
    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """Reduce tensors over all ranks, in place.

        Raises:
            NcclAborted: The communicator was aborted.
            NcclError: The tensors do not fit, or NCCL failed.
        """

    @abstractmethod
    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """Receive the tensors of rank ``root``, in place.

        Raises:
            NcclAborted: The communicator was aborted.
            NcclError: The tensors do not fit, or NCCL failed.
        """

    @abstractmethod
    def abort_handle(self) -> AbortHandle:
        """Return what another thread can end this rank's calls with."""


class Comms(_Closing):
    """All ranks of a communicator, driven by one thread; ``tensors[k]`` belongs to rank ``k``."""

    devices: tuple[torch.device, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.devices)

    @abstractmethod
    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """Reduce one tensor of each rank over all ranks, in place.

        Raises:
            NcclError: The tensors do not fit, NCCL failed, or the group was split or closed.
        """

    @abstractmethod
    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """Copy the tensor of rank ``root`` into those of all ranks.

        Raises:
            NcclError: The tensors do not fit, NCCL failed, or the group was split or closed.
        """

    @abstractmethod
    def split(self) -> Sequence[RankComm]:
        """Return the ranks one by one, for a thread each; this group can then do no more."""


def check_tensors(
    tensors: Sequence[Tensor], devices: Sequence[torch.device], dtypes: Sequence[torch.dtype]
) -> None:
    """Check that there is one tensor for each device, and that they fit together.

    Raises:
        NcclError: Number, device, dtype, layout or size is wrong; nothing was started.
    """
    if len(tensors) != len(devices):
        raise NcclError(f"{len(tensors)} tensors for {len(devices)} devices: must be one for each")
    for k, (tensor, device) in enumerate(zip(tensors, devices, strict=True)):
        if tensor.device != device:
            raise NcclError(f"tensors[{k}] is on {tensor.device}, not on {device}")
        if tensor.dtype not in dtypes:
            raise NcclError(f"tensors[{k}] is {tensor.dtype}, which cannot be sent")
        if tensor.dtype is not tensors[0].dtype or tensor.numel() != tensors[0].numel():
            raise NcclError(
                f"tensors[{k}] has {tensor.numel()} elements of {tensor.dtype}, tensors[0] has "
                f"{tensors[0].numel()} of {tensors[0].dtype}: must be alike"
            )
        if not tensor.is_contiguous():
            raise NcclError(
                f"tensors[{k}] has strides {tensor.stride()}: not contiguous",
                hint="reduce tensor.contiguous() and copy it back",
            )
