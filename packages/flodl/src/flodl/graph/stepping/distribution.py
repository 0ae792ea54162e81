"""Part of Graph: on how many devices its loop runs, and the binding to what runs it there."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import StepContractError
from flodl.graph.base import GraphBase
from flodl.graph.ir import CellStart
from flodl.graph.state import StateControl
from flodl.graph.stepping.local import LocalStepper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.distributed.config import ElCheConfig
    from flodl.distributed.replica.config import DdpConfig
    from flodl.graph.stepping.protocols import LossFunction, RateSchedule, Stepper

_REPLICAS = "flodl.distributed.replica"
"""Found by name: what spreads a graph lies above this package, which does not depend on it."""


class Training:
    """What a graph's training loop was told; the graph's methods fill it."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.scheduler: RateSchedule | None = None
        self.rate: float | None = None
        self.scale = 1.0
        self.step_number = 0
        self.fields: dict[str, str | None] = {}
        self.targets: tuple[str, ...] = ()
        self.loss: LossFunction | None = None

    def rate_of(self, initial: float) -> float:
        """Return the learning rate of this step for a group that began with another."""
        if self.scheduler is not None:
            return self.scheduler.lr(self.step_number) * self.scale
        return (initial if self.rate is None else self.rate) * self.scale


class Distribution(StateControl):
    """Spreads training over devices."""

    def distribute(self, builder: Callable[[torch.device], GraphBase]) -> None:
        """Train on all devices there are; does nothing where there is one.

        With several GPUs in this process, ``builder(device)`` makes a replica for each but the
        first, which keeps this graph. Where torchrun or Slurm started one process a device, each
        has built its own graph, and ``builder`` is not called. Parameters and buffers of the first
        device become those of all.

        Raises:
            StepContractError: It was distributed before, or has an optimizer or data already.
            FormationError: Graphs differ, or a process did not come.
            NamespaceError: A name is that of a tag and of a trace.
        """
        self._spread("distribute", builder)

    def auto_distribute(self, builder: Callable[[torch.device], GraphBase]) -> None:
        """Say on stderr which devices there are, distribute, and use ElChe where they differ.

        Raises:
            As ``distribute``.
        """
        self._spread("auto_distribute", builder)

    def _spread(self, how: str, builder: Callable[[torch.device], GraphBase]) -> None:
        training = self._training()
        if training.stepper.world_size > 1:
            raise StepContractError(f"{how}(): this graph is distributed already")
        if training.stepper.is_set_up:
            raise StepContractError(
                f"{how}(): steps were set up already",
                hint=f"call {how}() before set_optimizer() and set_data_loader()",
            )
        stepper = getattr(importlib.import_module(_REPLICAS), how)(self, builder)
        if stepper is not None:
            training.stepper = stepper

    def configure_el_che(self, config: DdpConfig | ElCheConfig) -> None:
        """Let devices take whole batches, as many as their speed allows, between two steps.

        ``max_anchor=0`` turns that off. On one device only ``max_grad_norm`` means something.

        Args:
            config: A ``DdpConfig``, or an ``ElCheConfig`` to say more about the counts.

        Raises:
            ConfigError: A value does not fit the devices.
        """
        self._training().stepper.configure_el_che(config)

    @property
    def has_el_che(self) -> bool:
        """Whether devices take whole batches, as many as their speed allows."""
        return self._training().stepper.has_el_che

    def bind_stepper(self, stepper: Stepper) -> None:
        """Run steps through another stepper, as the distributed package does.

        Raises:
            StepContractError: Optimizer or data are set already.
        """
        if self.flodl_training is not None:
            raise StepContractError(
                "bind_stepper(): steps were set up already",
                hint="bind before set_optimizer() and set_data_loader()",
            )
        self.flodl_training = Training(stepper)

    @property
    def world_size(self) -> int:
        """How many devices take part; 1 without a binding."""
        return self._training().stepper.world_size

    @property
    def is_distributed(self) -> bool:
        """Whether more than one device takes part."""
        return self.world_size > 1

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Devices of a binding that are driven from here; empty without one."""
        return self._training().stepper.devices

    @property
    def throughput(self) -> tuple[float, ...]:
        """Samples per millisecond of each device of a binding; empty without one."""
        return self._training().stepper.throughput

    @property
    def chunk_ratios(self) -> tuple[float, ...]:
        """Share of each batch for each device of a binding; empty without one."""
        return self._training().stepper.chunk_ratios

    @property
    def shard_sizes(self) -> tuple[int, ...]:
        """Rows of the last batch on each device of a binding; empty without one."""
        return self._training().stepper.shard_sizes

    def reset_state(self) -> None:
        """Forget the state of this graph and of everything in it, as before the first call."""
        super().reset_state()
        for replica in self._followers():
            replica.reset_state()

    def detach_state(self) -> None:
        """Cut the gradient history of state, retained tags and traces, here and in all modules."""
        super().detach_state()
        for replica in self._followers():
            replica.detach_state()

    def get_state(self) -> dict[str, torch.Tensor]:
        """Return the stored state by name, with the rows of all devices.

        On one device nothing is copied. What is not stored yet is left out.
        """
        own = super().get_state()
        others = [replica.get_state() for replica in self._followers()]
        if not others:
            return own
        with_rows = self._cells_with_rows()
        return {
            name: torch.cat(
                [value, *(each[name].to(value.device) for each in others if name in each)]
            )
            if name in with_rows and value.dim()
            else value
            for name, value in own.items()
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Make ``state`` the stored state, shared out by rows; names left out start anew.

        Raises:
            GraphPathError: A name that is no state; nothing has changed then.
        """
        followers = self._followers()
        if not followers:
            super().set_state(state)
            return
        with_rows, parts = self._cells_with_rows(), list[dict[str, torch.Tensor]]()
        for rank in range(1 + len(followers)):
            parts.append({})
            for name, value in state.items():
                is_cut = name in with_rows and value.dim() > 0
                part = value.tensor_split(1 + len(followers))[rank] if is_cut else value
                if part.numel() or not is_cut:
                    parts[rank][name] = part
        super().set_state(parts[0])
        for replica, own in zip(followers, parts[1:], strict=True):
            device = next((one.device for one in replica.parameters()), torch.device("cpu"))
            replica.set_state({name: value.to(device) for name, value in own.items()})

    def _cells_with_rows(self) -> set[str]:
        return {
            f"{path}{cell.name}"
            for path, graph in self._graphs().items()
            for cell in graph.flodl_plan.cells
            if cell.start in (CellStart.STREAM, CellStart.CALL) or cell.shape[:1] == (-1,)
        }

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, also those of all replicas."""
        super().zero_grad(set_to_none)
        for replica in self._followers():
            replica.zero_grad(set_to_none)

    @contextlib.contextmanager
    def fresh_state(self) -> Iterator[None]:
        """Run the block without the current state and put it back afterwards.

        For an evaluation in the middle of training:

            with graph.fresh_state(), torch.no_grad():
                predictions = graph(batch)
        """
        with contextlib.ExitStack() as stack:
            for replica in self._followers():
                stack.enter_context(replica.fresh_state())
            saved = super().get_state()
            super().reset_state()
            try:
                yield
            finally:
                super().set_state(saved)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # A copy trains by itself: it calls its own code, not the devices of the original.
        state.pop("forward", None)
        return state

    def _followers(self) -> Sequence[StateControl]:
        return () if self.flodl_training is None else self.flodl_training.stepper.replicas

    def _training(self) -> Training:
        if self.flodl_training is None:
            self.flodl_training = Training(LocalStepper(self))
        training: Training = self.flodl_training
        return training
