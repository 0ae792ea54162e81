"""What user code on a rank sees of the rank: its place, its model, its rates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.engine.schedules import GivenScheduler, made_scheduler
from flodl.metrics.scalars import ScalarScope
from flodl.optim import scale_lr, set_lr

if TYPE_CHECKING:
    from flodl.distributed.worker.cooperative import Epoch, OwnLoop
    from flodl.engine.step import TrainStep


@dataclass(slots=True)
class Worker:
    """One rank, for ``epoch_fn`` and for loops of the user's own.

    In the latter ``for epoch in worker.epochs(): for batch in epoch:`` gives the batches, and
    ``worker.step(loss)`` takes the step of each.

    Ranks of a generation are numbered ``0`` to ``world_size - 1``; both may change when ranks
    leave or join.
    """

    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    train_step: TrainStep
    scalars: ScalarScope
    rank: int = 0
    world_size: int = 1
    current_epoch: int = 0
    local_step: int = 0
    """Batches that this rank has trained."""
    current_version: int = 0
    """Last window whose average this rank took over."""
    should_stop: bool = False
    """Whether the run is to end soon."""
    loop: OwnLoop | None = None
    """What stands behind a loop of the user's own; ``None`` where the trainer's loop runs."""
    _told: set[int] = field(default_factory=set)

    @property
    def global_step(self) -> int:
        """Optimizer steps of all ranks that count, and this rank's own since."""
        return self.train_step.global_step

    @property
    def current_lr(self) -> float:
        """Learning rate of the first parameter group."""
        return self.train_step.current_lr

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of every group; a schedule overwrites it at the next step."""
        set_lr(self.optimizer, lr)

    def scale_lr(self, factor: float) -> None:
        """Multiply the learning rates that are set now."""
        scale_lr(self.optimizer, factor)

    def set_lr_scale(self, factor: float) -> None:
        """Multiply whatever a schedule says by ``factor`` from the next step on."""
        self.train_step.set_lr_scale(factor)

    def set_scheduler(self, scheduler: GivenScheduler | None) -> None:
        """Let a schedule set the learning rates from the next step on; ``None``: none does.

        Raises:
            ConfigError: It is no schedule, and makes none.
        """
        self.train_step.set_scheduler(made_scheduler(scheduler, self.optimizer, self.world_size))

    def epochs(self) -> Iterator[Epoch]:
        """Yield the epochs of the run as they begin; each yields the batches that fall to here.

        Raises:
            StepContractError: The loop is the trainer's.
        """
        return self._own_loop("epochs()").epochs()

    def step(self, loss: torch.Tensor) -> None:
        """Take the optimizer's step for the batch at hand, once its ``loss.backward()`` is done.

        Clips, sets the learning rate, steps and zeroes the gradients, takes the time, and averages
        with the other ranks when that is due.

        Raises:
            StepContractError: It is called twice for a batch, or before the first; there are no
                gradients; or the loop is the trainer's.
        """
        self._own_loop("step()").step(loss)

    def _own_loop(self, what: str) -> OwnLoop:
        if self.loop is None:
            raise StepContractError(
                f"worker.{what}: the loop of this run is the trainer's",
                hint="for a loop of your own use Trainer.builder(...).into_worker()",
            )
        return self.loop

    def record_scalar(self, name: str, value: Any) -> None:
        """Record a value, as ``flodl.record_scalar`` does."""
        self.scalars.add(name, value)

    def to_state(self) -> dict[str, Any]:
        """Return the counters as plain values that :meth:`take_state` takes."""
        return {
            "current_epoch": self.current_epoch,
            "local_step": self.local_step,
            "told": sorted(self._told),
        }

    def take_state(self, state: dict[str, Any]) -> None:
        """Go on from the counters of another process."""
        self.current_epoch = int(state["current_epoch"])
        self.local_step = int(state["local_step"])
        self._told = set(state["told"])

    def enters(self, epoch: int) -> bool:
        """Return whether this is the first batch of an epoch here, once for each epoch."""
        if epoch in self._told:
            return False
        self._told.add(epoch)
        self.current_epoch = epoch
        return True


EpochFn: TypeAlias = Callable[[int], None] | Callable[[int, Worker], None]
"""Called with the epoch's number, and with the worker where it has a second parameter."""


def call_epoch_fn(function: EpochFn, epoch: int, worker: Worker) -> None:
    """Call a function of an epoch with as many arguments as it takes."""
    given: Callable[..., None] = function
    try:
        inspect.signature(given).bind(epoch, worker)
    except TypeError:
        given(epoch)
        return
    except ValueError:  # a function of C, whose parameters nobody can see
        pass
    given(epoch, worker)
