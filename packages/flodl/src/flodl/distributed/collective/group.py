"""A raw process group of one generation: operations that are started, polled and can be abandoned.

It is not torch's default group, which stays the user's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, cast, final

import torch
from torch._C._distributed_c10d import (
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    Store,
    Work,
)

from flodl.core.errors import FormationError
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.patience import Interrupt, call_patiently, never, poll_until

__all__ = ["NCCL_ENVIRONMENT", "Fabric", "Group", "GroupPlan", "Operation", "form_group"]

_log = logging.getLogger(__name__)

_FAREWELL_S = 2.0

Fabric: TypeAlias = Literal["gloo", "nccl"]

NCCL_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",  # torch's own choice, 3, ends the process
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
"""What torch must find in the environment for a group of GPUs to be abortable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlan:
    """Which group to form, and this process's place in it."""

    prefix: str
    """Of its keys in the store: another one for each group of each generation."""
    rank: int
    size: int
    fabric: Fabric = "gloo"
    address: str = "127.0.0.1"
    """Where it listens (gloo)."""
    timeout_s: float = 60.0
    """Of formation, and of a wait that says nothing else."""
    operation_timeout_s: float = 600.0
    """After which torch itself gives an operation up; whoever polls decides much earlier."""


class Collectives(Protocol):
    """What both of torch's backends do, which torch's own type says of neither."""

    def allreduce(self, tensors: list[torch.Tensor]) -> Work: ...
    def allgather(
        self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor]
    ) -> Work: ...
    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        output_splits: list[int],
        input_splits: list[int],
    ) -> Work: ...
    def broadcast(self, tensors: list[torch.Tensor], options: BroadcastOptions) -> Work: ...
    def abort(self) -> None: ...
    def _set_default_timeout(self, timeout: timedelta) -> None: ...


@final
class Operation:
    """A collective under way; it keeps its tensors alive."""

    def __init__(self, what: str, work: Work, tensors: Sequence[torch.Tensor]) -> None:
        self._what = what
        self._work = work
        self._tensors = tuple(tensors)

    def is_done(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._work.is_completed()

    def finish(self) -> None:
        """Raise what went wrong in an operation that is done.

        Raises:
            CollectiveError: It failed, such as after a peer's death.
        """
        try:
            self._work.wait()
        except RuntimeError as error:
            raise CollectiveError(f"{self._what}: {error}") from error


@final
class Group:
    """A formed group. Tensors of one operation must have the same size on all ranks.

    Agree on sizes before: Gloo crashes or returns garbage where they differ.
    """

    def __init__(
        self, plan: GroupPlan, backend: Collectives, graveyard: Graveyard, store: Store
    ) -> None:
        self.plan = plan
        self._store = store  # torch keeps its own half of a store written in Python, not this one
        self._backend: Collectives | None = backend
        self._graveyard = graveyard
        self._open: list[Operation] = []

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.plan.rank

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        return self.plan.size

    def all_reduce(self, tensor: torch.Tensor) -> Operation:
        """Sum a tensor over all ranks, in place."""
        return self._track("all_reduce", self._live.allreduce([tensor]), [tensor])

    def all_gather(self, rows: torch.Tensor, tensor: torch.Tensor) -> Operation:
        """Fill ``rows[k]`` with the tensor of rank ``k``."""
        work = self._live.allgather([list(rows.unbind(0))], [tensor])
        return self._track("all_gather", work, [rows, tensor])

    def exchange(self, received: torch.Tensor, sent: torch.Tensor) -> Operation:
        """Send ``sent[k]`` to rank ``k`` and receive its row for this rank in ``received[k]``."""
        work = self._live.alltoall_base(received, sent, [], [])
        return self._track("exchange", work, [received, sent])

    def broadcast(self, tensor: torch.Tensor, root: int) -> Operation:
        """Fill a tensor with that of rank ``root``."""
        options = BroadcastOptions()
        options.rootRank = root
        return self._track("broadcast", self._live.broadcast([tensor], options), [tensor])

    def complete(
        self,
        operation: Operation,
        *,
        timeout_s: float | None = None,
        interrupted: Interrupt = never,
    ) -> None:
        """Wait for an operation by polling; after an error the group is of no use any more.

        Raises:
            Interrupted: ``interrupted()`` became true first.
            CollectiveError: It failed or is late.
        """
        seconds = self.plan.timeout_s if timeout_s is None else timeout_s
        if poll_until(operation.is_done, timeout_s=seconds, interrupted=interrupted):
            operation.finish()
            return
        if interrupted():
            raise Interrupted(f"{self.plan.prefix}: an operation was given up for a message")
        raise CollectiveError(f"{self.plan.prefix}: an operation is not done after {seconds:g} s")

    def abandon(self) -> None:
        """Leave the group at once, whatever is in flight; the graveyard takes it."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        operations, self._open = self._open, []
        things: list[object] = [backend, *operations, self._store]
        is_over = _Abort(backend).is_over if self.plan.fabric == "nccl" else _all_done(operations)
        del backend
        self._graveyard.bury(things, is_over)

    def close(self) -> None:
        """Leave the group, and wait a little for the graveyard: a process may end after that."""
        self.abandon()
        self._graveyard.wait(_FAREWELL_S)

    @property
    def _live(self) -> Collectives:
        if self._backend is None:
            raise CollectiveError(f"{self.plan.prefix}: the group was abandoned")
        return self._backend

    def _track(self, what: str, work: Work, tensors: Sequence[torch.Tensor]) -> Operation:
        operation = Operation(what, work, tensors)
        self._open = [old for old in self._open if not old.is_done()]
        self._open.append(operation)
        return operation


def form_group(
    plan: GroupPlan, store: Store, graveyard: Graveyard, *, interrupted: Interrupt = never
) -> Group:
    """Form a group with the other ranks that run the same plan.

    Raises:
        Interrupted: ``interrupted()`` became true first.
        FormationError: A rank did not come in time, or could not be reached.
    """
    try:
        backend = call_patiently(
            lambda: _FORMERS[plan.fabric](plan, PrefixStore(plan.prefix, store)),
            what=f"form-{plan.fabric}",
            timeout_s=plan.timeout_s,
            interrupted=interrupted,
        )
    except Interrupted:
        raise
    except (RuntimeError, ImportError, CollectiveError) as error:
        raise FormationError(
            f"group {plan.prefix}, rank {plan.rank} of {plan.size}: {error}"
        ) from error
    backend._set_default_timeout(timedelta(seconds=plan.operation_timeout_s))  # noqa: SLF001
    return Group(plan, backend, graveyard, store)


def _form_gloo(plan: GroupPlan, store: Store) -> Collectives:
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001
    options._devices = [ProcessGroupGloo.create_device(hostname=plan.address)]  # noqa: SLF001
    options._timeout = timedelta(seconds=plan.timeout_s)  # noqa: SLF001
    return cast("Collectives", ProcessGroupGloo(store, plan.rank, plan.size, options))


def _form_nccl(plan: GroupPlan, store: Store) -> Collectives:
    from torch._C._distributed_c10d import ProcessGroupNCCL  # not in every build of torch

    for name, value in NCCL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    options = ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=plan.timeout_s)  # noqa: SLF001
    return cast("Collectives", ProcessGroupNCCL(store, plan.rank, plan.size, options))


_FORMERS = {"gloo": _form_gloo, "nccl": _form_nccl}


class _Abort:
    """Aborts a group of GPUs when first asked, on the graveyard's thread."""

    def __init__(self, backend: Collectives) -> None:
        self._backend: Collectives | None = backend

    def is_over(self) -> bool:
        backend, self._backend = self._backend, None
        if backend is not None:
            try:
                backend.abort()
            except RuntimeError as error:
                _log.warning("a group of GPUs could not be aborted: %s", error)
        return True


def _all_done(operations: list[Operation]) -> Callable[[], bool]:
    def is_over() -> bool:
        if all(operation.is_done() for operation in operations):
            operations.clear()
            return True
        return False

    return is_over
