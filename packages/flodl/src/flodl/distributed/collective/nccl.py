"""Communicators of GPUs over the NCCL that torch has loaded, with tensors for addresses."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TypeAlias, final

import torch
from torch import Tensor

from flodl.core.log import warn_once
from flodl.distributed.collective.comms import (
    AbortHandle,
    Comms,
    RankComm,
    ReduceOp,
    check_tensors,
)
from flodl.distributed.collective.errors import NcclAborted, NcclError, NcclUnavailable
from flodl_sys import nccl
from flodl_sys.errors import NativeUnavailableError
from flodl_sys.errors import NcclError as SysNcclError
from flodl_sys.nccl import Communicator, Nccl, UniqueId

__all__ = ["DTYPES", "NcclAbortHandle", "NcclComms", "NcclRankComm", "NcclUniqueId", "ReduceOp"]

_log = logging.getLogger(__name__)

DTYPES = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.int32: 2,
    torch.int64: 4,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
}
"""NCCL's number of each dtype that can be sent."""

Streams: TypeAlias = Sequence[torch.cuda.Stream]

_POLL_S = 0.0002


@final
class NcclUniqueId:
    """Names a communicator that is to be formed: made by one rank, its bytes sent to the others."""

    def __init__(self, data: UniqueId) -> None:
        self._data = data

    @classmethod
    def new(cls) -> NcclUniqueId:
        """Make a new one.

        Raises:
            NcclUnavailable: There is no NCCL.
            NcclError: NCCL found no network interface.
        """
        with _mapped():
            return cls(_library().unique_id())

    @classmethod
    def from_bytes(cls, data: bytes) -> NcclUniqueId:
        """Return the one whose bytes these are.

        Raises:
            NcclError: They are not 128 bytes.
        """
        with _mapped():
            return cls(UniqueId(data))

    @property
    def raw(self) -> UniqueId:
        """As flodl_sys takes it."""
        return self._data

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NcclUniqueId) and bytes(other) == bytes(self)

    def __hash__(self) -> int:
        return hash(bytes(self._data))


@final
class NcclAbortHandle(AbortHandle):
    """Ends a rank's communication, from any thread."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._aborted = threading.Event()

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted.is_set()

    def abort(self) -> None:
        """Let waiting calls raise `NcclAborted`, and later ones too; a second call does nothing."""
        self._aborted.set()
        self._comm.abort()


@final
class NcclRankComm(RankComm):
    """One rank of a communicator; make it by `NcclComms.split`, or by `init_rank`."""

    def __init__(
        self, library: Nccl, comm: Communicator, rank: int, size: int, device: torch.device
    ) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._library, self._comm = library, comm
        self._handle = NcclAbortHandle(comm)

    @classmethod
    def init_rank(cls, rank: int, world: int, uid: NcclUniqueId) -> NcclRankComm:
        """Join as one rank, on the current GPU; returns when all have joined.

        Raises:
            NcclUnavailable: There is no NCCL, or no GPU.
            NcclError: It could not be formed.
        """
        if threading.current_thread() is not threading.main_thread():
            warn_once(
                _log,
                "NcclRankComm.init_rank off the main thread: some drivers hang in it; "
                "use NcclComms(devices).split() on the main thread",
            )
        with _mapped():
            library = _library()
            _need_gpus()
            device = torch.device("cuda", torch.cuda.current_device())
            return cls(library, library.init_rank(world, uid.raw, rank), rank, world, device)

    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """See `RankComm`."""
        stream = torch.cuda.current_stream(self.device)
        self.all_reduce_on_stream(tensors, op, stream)
        self._wait(stream)

    def all_reduce_on_stream(
        self, tensors: Sequence[Tensor], op: ReduceOp, stream: torch.cuda.Stream
    ) -> None:
        """Enqueue a reduction of tensors over all ranks, in place.

        Raises:
            NcclAborted: The communicator was aborted.
            NcclError: The tensors do not fit, or NCCL failed.
        """
        with self._calling(tensors):
            for t in tensors:
                self._comm.all_reduce(
                    t.data_ptr(), t.numel(), DTYPES[t.dtype], op, stream.cuda_stream
                )

    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """See `RankComm`."""
        _check_root(root, self.size)
        stream = torch.cuda.current_stream(self.device)
        with self._calling(tensors):
            for t in tensors:
                self._comm.broadcast(
                    t.data_ptr(), t.numel(), DTYPES[t.dtype], root, stream.cuda_stream
                )
        self._wait(stream)

    def abort_handle(self) -> NcclAbortHandle:
        """See `RankComm`."""
        return self._handle

    def close(self) -> None:
        """Wait for what is in flight and let go; does nothing once closed or aborted."""
        with _mapped(), torch.cuda.device(self.device):
            self._comm.close()

    @contextlib.contextmanager
    def _calling(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        for tensor in tensors:
            check_tensors([tensor], [self.device], list(DTYPES))
        self._raise_if_aborted()
        try:
            with _mapped(), torch.cuda.device(self.device), self._library.group():
                yield
        except NcclError:
            self._raise_if_aborted()
            raise

    def _raise_if_aborted(self) -> None:
        if self._handle.is_aborted:
            raise NcclAborted(f"rank {self.rank} of {self.size}: the communicator was aborted")

    def _wait(self, stream: torch.cuda.Stream) -> None:
        done = torch.cuda.Event()
        done.record(stream)
        while not done.query():
            code = self._error_in_flight()
            if code not in (0, _IN_PROGRESS):
                raise NcclError(f"rank {self.rank} of {self.size}: NCCL error {code} in flight")
            time.sleep(_POLL_S)
        self._raise_if_aborted()

    def _error_in_flight(self) -> int:
        self._raise_if_aborted()
        try:
            with _mapped():
                return self._comm.async_error()
        except NcclError:
            self._raise_if_aborted()  # between the two calls
            raise


@final
class NcclComms(Comms):
    """All ranks of a communicator over GPUs of this process.

    Args:
        devices: One GPU for each rank, as index or device; formed on the calling thread.

    Raises:
        NcclUnavailable: There is no NCCL, or no GPU.
        NcclError: A device is none of CUDA's or given twice, or NCCL failed.
    """

    def __init__(self, devices: Sequence[torch.device | int | str]) -> None:
        with _mapped():
            self._library = _library()
            _need_gpus()
            self.devices = tuple(_gpu(device) for device in devices)
            if not self.devices or len(set(self.devices)) != len(self.devices):
                raise NcclError(
                    f"devices {list(map(str, devices))}: must be one or more, each once"
                )
            with _same_device():
                self._comms = self._library.init_all([d.index for d in self.devices])

    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """See `Comms`."""
        streams = [torch.cuda.current_stream(device) for device in self.devices]
        self.all_reduce_on_streams(tensors, op, streams)
        _synchronize(streams)

    def all_reduce_on_streams(
        self, tensors: Sequence[Tensor], op: ReduceOp, streams: Streams
    ) -> None:
        """Enqueue a reduction of one tensor of each rank, in place.

        Raises:
            NcclError: The tensors do not fit, NCCL failed, or the group was split or closed.
        """
        with self._calling(tensors, streams):
            for comm, t, stream in zip(self._comms, tensors, streams, strict=True):
                comm.all_reduce(t.data_ptr(), t.numel(), DTYPES[t.dtype], op, stream.cuda_stream)

    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """See `Comms`."""
        streams = [torch.cuda.current_stream(device) for device in self.devices]
        self.broadcast_on_streams(tensors, root, streams)
        _synchronize(streams)

    def broadcast_on_streams(self, tensors: Sequence[Tensor], root: int, streams: Streams) -> None:
        """Enqueue a copy of the tensor of rank ``root`` to all ranks.

        Raises:
            NcclError: The tensors do not fit, NCCL failed, or the group was split or closed.
        """
        _check_root(root, self.size)
        with self._calling(tensors, streams):
            for comm, t, stream in zip(self._comms, tensors, streams, strict=True):
                comm.broadcast(t.data_ptr(), t.numel(), DTYPES[t.dtype], root, stream.cuda_stream)

    def split(self) -> list[NcclRankComm]:
        """See `Comms`."""
        self._need_whole()
        comms, self._comms = self._comms, []
        return [
            NcclRankComm(self._library, comm, rank, self.size, device)
            for rank, (comm, device) in enumerate(zip(comms, self.devices, strict=True))
        ]

    def close(self) -> None:
        """Wait for what is in flight and let go; does nothing once split or closed."""
        comms, self._comms = self._comms, []
        with _mapped(), _same_device():
            for comm in comms:
                comm.close()

    @contextlib.contextmanager
    def _calling(self, tensors: Sequence[Tensor], streams: Streams) -> Iterator[None]:
        self._need_whole()
        check_tensors(tensors, self.devices, list(DTYPES))
        if len(streams) != self.size:
            raise NcclError(f"{len(streams)} streams for {self.size} devices: one for each")
        with _mapped(), _same_device(), self._library.group():
            yield

    def _need_whole(self) -> None:
        if not self._comms:
            raise NcclError(
                "this communicator was split or closed", hint="use the ranks that split() gave"
            )


_IN_PROGRESS = 7


def _library() -> Nccl:
    try:
        return nccl.load()
    except (SysNcclError, NativeUnavailableError) as error:
        raise NcclUnavailable(error.message, hint=error.hint) from error


def _need_gpus() -> None:
    if not torch.cuda.is_available():
        raise NcclUnavailable(
            "NCCL works between GPUs, and torch finds none",
            hint="use FakeNcclComms on the CPU",
        )


def _gpu(device: torch.device | int | str) -> torch.device:
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if found.type != "cuda":
        raise NcclError(f"device {device}: not a GPU")
    index: int | None = found.index
    return torch.device("cuda", torch.cuda.current_device() if index is None else index)


def _check_root(root: int, size: int) -> None:
    if not 0 <= root < size:
        raise NcclError(f"root={root}: must be one of 0 to {size - 1}")


def _synchronize(streams: Streams) -> None:
    for stream in streams:
        stream.synchronize()


@contextlib.contextmanager
def _same_device() -> Iterator[None]:
    """Bring the current device back, which NCCL changes."""
    before = torch.cuda.current_device()
    try:
        yield
    finally:
        torch.cuda.set_device(before)


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    """Raise errors of flodl_sys as those of flodl."""
    try:
        yield
    except SysNcclError as error:
        raise NcclError(error.message, hint=error.hint) from error
