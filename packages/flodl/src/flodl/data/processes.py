"""Child processes that form batches, for data sets whose Python code holds threads up."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import signal
import traceback
import warnings
import weakref
from multiprocessing.reduction import ForkingPickler
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.core.errors import DataWorkerError
from flodl.core.seeding import seed_everything
from flodl.data.sampler import mix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from typing import Any, TypeAlias

    from flodl.data.assembly import Assembly
    from flodl.data.batch import Batch
    from flodl.data.jobs import BatchJob

    Task: TypeAlias = tuple[bytes, int, int]

PARENT_CHECK_S = 2.0
PIPED_BYTES = 4 << 20
"""A tensor of up to so many bytes goes through the pipe: sharing its memory costs more than copying
it, as each tensor needs a descriptor and a connection of its own to hand that over."""


class RemoteTraceback(Exception):
    """The traceback of a child process, as text: the cause of the error that it raised there."""


class ProcessReaders:
    """Forms batches in child processes, one at a time in each; threads wait for them.

    Children are started with the default method of ``multiprocessing``, at the first batch or when
    one has died, and end with this object or its process.

    Args:
        assembly: Forms the batches; copied into each child.
        count: Number of children.
        seed: Random numbers of a batch depend on it, the epoch and the batch, not on the child.
    """

    def __init__(self, assembly: Assembly, count: int, seed: int) -> None:
        self._assembly = assembly
        self._count = count
        self._seed = seed
        self._children: list[Child] = []
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self._end = weakref.finalize(self, kill_all, self._children, os.getpid())

    def start(self) -> None:
        """Start the children that are missing, in the thread of the consumer.

        One that still works for an epoch that was left is waited for like any other.
        """
        while len(self._children) < self._count:
            self._idle.put(self._started())
        with contextlib.suppress(Empty):
            for _ in range(len(self._children)):
                self._idle.put(self._living(self._idle.get_nowait()))

    def _started(self) -> Child:
        child = Child(_serve, self._assembly, self._seed)
        self._children.append(child)
        return child

    def _living(self, child: Child) -> Child:
        if child.process.is_alive():
            return child
        self._children.remove(child)
        return self._started()

    def read(self, job: BatchJob) -> Batch:
        """Return the batch of a job, formed in a child.

        Raises:
            DataWorkerError: The child died.
        """
        child = self._living(self._idle.get())
        try:
            child.send((job.host_rows.numpy().tobytes(), job.epoch, job.index))
            batch: Batch = result_of(child.receive())
            return batch
        finally:
            self._idle.put(child)

    def kill(self) -> None:
        """End the children at once; whoever waits for one gets an error."""
        kill_all(self._children, os.getpid())


def kill_all(children: list[Child], owner: int) -> None:
    """End all these processes, if they are those of this process."""
    if os.getpid() != owner:  # a forked child has a copy of the list, and no right to its siblings
        return
    for child in list(children):
        child.kill()


class Child:
    """A child process that answers what it is sent through a pipe.

    Args:
        serve: Runs in the child, with its end of the pipe, the id of the parent and ``args``.
        args: Copied into the child.
    """

    def __init__(self, serve: Callable[..., None], *args: object) -> None:
        context = multiprocessing.get_context()
        self._pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_run, args=(serve, theirs, os.getpid(), *args), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; a child touches nothing that those may hold
            warnings.filterwarnings("ignore", "(?s).*fork", DeprecationWarning)
            self.process.start()
        theirs.close()

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            DataWorkerError: The child died.
        """
        try:
            self._pipe.send(message)
        except OSError as error:
            raise self._died() from error

    def receive(self) -> Any:
        """Return the next message of the child.

        Raises:
            DataWorkerError: The child died.
        """
        try:
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def _died(self) -> DataWorkerError:
        self.process.join(PARENT_CHECK_S)
        code = self.process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
        return DataWorkerError(
            f"the worker process {self.process.pid} died ({how})",
            hint="an exit by signal 9 is often the host running out of memory: use fewer workers "
            "or smaller batches",
        )

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join(PARENT_CHECK_S)


def _run(serve: Callable[..., None], pipe: Connection, parent: int, *args: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends the children
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        serve(pipe, parent, *args)


def messages(pipe: Connection, parent: int) -> Iterator[Any]:
    """Yield what a parent sends, as long as it lives; for use in a child."""
    while os.getppid() == parent:
        if pipe.poll(PARENT_CHECK_S):
            yield pipe.recv()


def send(pipe: Connection, message: object) -> None:
    """Send what may hold tensors: small ones by value, large ones in memory that is shared."""
    data = io.BytesIO()
    _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(message)
    pipe.send_bytes(data.getbuffer())


class _Pickler(ForkingPickler):
    """Writes small tensors into the message; all else as ``multiprocessing`` does."""

    def reducer_override(self, value: Any) -> Any:
        if (
            type(value) is not Tensor
            or value.layout is not torch.strided
            or value.device.type != "cpu"
            or value.requires_grad
            or value.is_quantized
        ):
            return NotImplemented
        if value.is_conj() or value.is_neg():  # torch shares the memory, and forgets the mark
            return _itself, (value.resolve_conj().resolve_neg(),)
        if not 0 < value.nbytes <= PIPED_BYTES:
            return NotImplemented
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor_of, (pickle.PickleBuffer(raw.data), value.dtype, value.shape)


def _itself(value: Tensor) -> Tensor:
    return value


def _tensor_of(raw: bytearray, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def _serve(pipe: Connection, parent: int, assembly: Assembly, seed: int) -> None:
    for task in messages(pipe, parent):
        send(pipe, _answer(assembly, seed, task))


def _answer(assembly: Assembly, seed: int, task: Task) -> tuple[str, object, str]:
    rows, epoch, index = task
    seed_everything(mix(mix(seed, epoch), index) >> 1)
    try:
        batch = assembly.form(torch.frombuffer(bytearray(rows), dtype=torch.int64), epoch, index)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return failure(error)
    return "batch", batch, ""


def failure(error: Exception) -> tuple[str, object, str]:
    """Return the answer for an error, to be sent to the parent with its traceback."""
    return "error", _portable(error), traceback.format_exc()


def result_of(answer: tuple[str, Any, str]) -> Any:
    """Return what a child answered; raise what it raised, with its traceback as the cause."""
    kind, value, text = answer
    if kind == "error":
        raise value from RemoteTraceback(f"\n{text}")
    return value


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process: itself, or its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this process
    except Exception:  # noqa: BLE001 - whatever its class cannot do
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
