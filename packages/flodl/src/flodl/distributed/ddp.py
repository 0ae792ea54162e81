"""The bypass tier: replicas of a model that the user's own loop keeps together."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, overload

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import Store

from flodl.core.errors import ConfigError
from flodl.device.info import parse_device
from flodl.distributed.collective.agreement import first_difference, gather_descriptions
from flodl.distributed.collective.comms import Comms
from flodl.distributed.collective.errors import GradientMismatchError, PayloadMismatchError
from flodl.distributed.collective.fake_nccl import FakeNcclComms
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import Fabric, GroupPlan, form_group
from flodl.distributed.collective.party import GroupParty, LocalParty, Party

__all__ = ["Ddp", "Meeting"]

Device = torch.device | str | int


class Meeting(Protocol):
    """Where ranks meet; `Rendezvous` makes one."""

    def store(self, rank: int) -> Store:
        """Return the store as a rank sees it."""
        ...

    def plan(self, rank: int, fabric: Fabric) -> GroupPlan:
        """Return the plan of a rank's next group; `store` is called before."""
        ...


class Ddp:
    """Keeps replicas of one model together, where and when the user's loop says so.

    It owns no loop, no optimizer and no schedule: adversarial or reinforcement training calls it
    as often as it needs. Make it by `wrap`.

    Examples:
        >>> import torch
        >>> from flodl.distributed.ddp import Ddp
        >>> replicas = [torch.nn.Linear(2, 1) for _ in range(2)]
        >>> with Ddp.wrap(replicas, ["cpu", "cpu"]) as ddp:
        ...     ddp.sync_params()
        ...     for rank, replica in enumerate(replicas):
        ...         replica(torch.full((4, 2), float(rank))).sum().backward()
        ...     ddp.all_reduce_gradients()
        >>> replicas[0].weight.grad.tolist()
        [[2.0, 2.0]]
    """

    def __init__(
        self, models: Sequence[nn.Module], devices: Sequence[torch.device], party: Party
    ) -> None:
        self._models = list(models)
        self._devices = tuple(devices)
        self._party = party

    @overload
    @classmethod
    def wrap(cls, model: nn.Module, device: Device, rank: int, rdv: Meeting) -> Self: ...

    @overload
    @classmethod
    def wrap(cls, model: Sequence[nn.Module], device: Sequence[Device]) -> Self: ...

    @classmethod
    def wrap(
        cls,
        model: nn.Module | Sequence[nn.Module],
        device: Device | Sequence[Device],
        rank: int | None = None,
        rdv: Meeting | None = None,
    ) -> Self:
        """Wrap this rank's replica, or all replicas where they are in this process.

        Models are moved to their devices; their values are left as they are until `sync_params`.

        Args:
            model: The replica of this rank, or a list of all.
            device: Its device, or a list of one for each.
            rank: This rank; with one replica only.
            rdv: Where the ranks meet; with one replica only.

        Raises:
            PayloadMismatchError: Replicas differ in their parameters or buffers.
            FormationError: A rank did not come in time.
            ConfigError: The arguments do not go together, or a device is not there.
        """
        if isinstance(model, nn.Module):
            if rank is None or rdv is None or not isinstance(device, torch.device | str | int):
                raise ConfigError("Ddp.wrap(model, device, rank, rdv): all four are needed")
            return cls._wrap_rank(model, _device_of(device), rank, rdv)
        if rank is not None or rdv is not None or isinstance(device, torch.device | str | int):
            raise ConfigError("Ddp.wrap(models, devices): a list of devices, and no rank or rdv")
        return cls._wrap_all(list(model), [_device_of(one) for one in device])

    @classmethod
    def _wrap_rank(cls, model: nn.Module, device: torch.device, rank: int, rdv: Meeting) -> Self:
        model.to(device)
        store = rdv.store(rank)
        plan = rdv.plan(rank, "nccl" if device.type == "cuda" else "gloo")
        descriptions = gather_descriptions(store, plan, _description(model))
        for other, lines in enumerate(descriptions):
            _refuse_difference(descriptions[0], lines, other)
        return cls([model], [device], GroupParty(form_group(plan, store, Graveyard())))

    @classmethod
    def _wrap_all(cls, models: list[nn.Module], devices: list[torch.device]) -> Self:
        if not models or len(models) != len(devices):
            raise ConfigError(
                f"Ddp.wrap: {len(models)} models and {len(devices)} devices: must be one or more, "
                "and as many of each"
            )
        for other, model in enumerate(models):
            _refuse_difference(_description(models[0]), _description(model), other)
        for model, device in zip(models, devices, strict=True):
            model.to(device)
        return cls(models, devices, LocalParty(_comms(devices)))

    @property
    def world_size(self) -> int:
        """Number of replicas."""
        return self._party.world_size

    @property
    def rank(self) -> int:
        """This rank; 0 where all replicas are in this process."""
        return self._party.ranks[0]

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Devices of the replicas that are held here."""
        return self._devices

    @torch.no_grad()
    def sync_params(self) -> None:
        """Give all replicas the parameters and buffers of rank 0, bit for bit.

        Raises:
            CollectiveError: A rank is gone, late, or called something else.
        """
        self._spread([[*model.parameters(), *model.buffers()] for model in self._models])

    @torch.no_grad()
    def sync_buffers(self) -> None:
        """Give all replicas the buffers of rank 0, bit for bit.

        Raises:
            CollectiveError: A rank is gone, late, or called something else.
        """
        self._spread([list(model.buffers()) for model in self._models])

    def all_reduce_gradients(self) -> None:
        """Replace gradients by their mean over all ranks, in place.

        Raises:
            GradientMismatchError: A parameter has one on some ranks only; nothing is changed.
            CollectiveError: A rank is gone, late, or called something else.
        """
        self.weighted_all_reduce_gradients([1] * self.world_size)

    @torch.no_grad()
    def weighted_all_reduce_gradients(
        self, counts: Sequence[float], *, missing: Literal["error", "zero"] = "error"
    ) -> None:
        """Replace gradients by their mean over all ranks, weighted by ``counts``, in place.

        Args:
            counts: One for each rank, the same list on all: the samples that each has trained on.
            missing: What a gradient that only some ranks have is on the others.

        Raises:
            ValueError: Their number is not that of the ranks, one is negative, or all are 0.
            GradientMismatchError: A parameter has one on some ranks only; nothing is changed.
            CollectiveError: A rank is gone, late, or called something else.
            ConfigError: A gradient is sparse.
        """
        total = float(sum(counts))
        if len(counts) != self.world_size or total <= 0 or min(counts) < 0:
            raise ConfigError(
                f"counts={list(counts)}: must be {self.world_size} numbers, none negative and not "
                "all 0"
            )
        for model in self._models:
            _refuse_sparse(model)
        present = self._agreed_gradients(missing)
        found = [
            [g for g, has in zip(_gradients(model), present, strict=True) if has and g is not None]
            for model in self._models
        ]
        for dtype in (torch.float32, torch.float64):
            gradients = [[g for g in own if _sum_dtype(g) is dtype] for own in found]
            self._average(gradients, dtype, counts, total)

    def gather(self, values: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return numbers of all ranks, by rank.

        Args:
            values: As many of each rank, for each rank that is held here.

        Raises:
            CollectiveError: A rank is gone, late, or called something else.
        """
        rows = [torch.tensor(list(own), dtype=torch.float64) for own in values]
        found: list[list[float]] = self._collect(rows).tolist()
        return found

    def abort(self) -> None:
        """Let waiting calls raise `CollectiveError`; any thread may call it, and again."""
        self._party.abort()

    def close(self) -> None:
        """Let go of the other ranks; the models stay as they are."""
        self._party.close()

    def close_with(self, owner: object) -> None:
        """Close by itself when an object is gone, or the program ends."""
        weakref.finalize(owner, self._party.close)  # not of this, which holds the models

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _spread(self, tensors: list[list[Tensor]]) -> None:
        """Copy rank 0's tensors as bytes, which keeps every dtype and every bit."""
        if not tensors[0]:
            return
        flat = [torch.cat([_as_bytes(t) for t in own]) for own in tensors]
        self._party.spread(flat)
        for own, whole in zip(tensors, flat, strict=True):
            for tensor, part in zip(own, whole.split([t.nbytes for t in own]), strict=True):
                # cloned: a view of another dtype must begin where that dtype may
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

    def _average(
        self,
        gradients: list[list[Tensor]],
        dtype: torch.dtype,
        counts: Sequence[float],
        total: float,
    ) -> None:
        if not gradients[0]:
            return
        flat = [
            torch.cat([g.reshape(-1).to(dtype) for g in own]).mul_(counts[rank])
            for rank, own in zip(self._party.ranks, gradients, strict=True)
        ]
        self._party.add_up(flat)
        for own, whole in zip(gradients, flat, strict=True):
            whole.div_(total)
            for gradient, part in zip(own, whole.split([g.numel() for g in own]), strict=True):
                gradient.copy_(part.view(gradient.shape))

    def _collect(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors of all ranks as rows, all on the CPU."""
        if len(tensors) == self.world_size:
            return torch.stack(list(tensors))  # all are here: no device need know
        return self._party.collect(
            [own.to(device) for own, device in zip(tensors, self._devices, strict=True)]
        )

    def _agreed_gradients(self, missing: Literal["error", "zero"]) -> list[bool]:
        """Return which parameters have a gradient, on all ranks alike from now on."""
        bitmaps = [
            torch.tensor([g is not None for g in _gradients(model)], dtype=torch.uint8)
            for model in self._models
        ]
        if not bitmaps[0].numel():
            return []
        rows = self._collect(bitmaps)
        present: list[bool] = rows.any(0).tolist()
        if missing == "zero":
            for model in self._models:
                _fill_gradients(model, present)
        elif rows.all(0).tolist() != present:
            raise _missing_gradient(rows, self._models[0])
        return present


def _gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def _refuse_sparse(model: nn.Module) -> None:
    gradients = _gradients(model)
    if all(g is None or g.layout is torch.strided for g in gradients):
        return
    name = next(
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and parameter.grad.layout is not torch.strided
    )
    raise ConfigError(
        f"the gradient of {name} is sparse: ranks exchange dense ones only",
        hint="make the embedding with sparse=False",
    )


def _fill_gradients(model: nn.Module, present: Sequence[bool]) -> None:
    for parameter, is_there in zip(model.parameters(), present, strict=True):
        if is_there and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _missing_gradient(rows: Tensor, model: nn.Module) -> GradientMismatchError:
    """Return the error for the first parameter that has a gradient on some ranks only."""
    first = int((rows.any(0) != rows.all(0)).nonzero()[0])
    name = list(dict(model.named_parameters()))[first]
    missing = [rank for rank, has in enumerate(rows[:, first].tolist()) if not has]
    return GradientMismatchError(
        f"parameter {name!r} has no gradient on ranks {missing}, but one on the others",
        hint="let every rank's loss reach the same parameters, or freeze this one",
    )


def _sum_dtype(gradient: Tensor) -> torch.dtype:
    return torch.float64 if gradient.dtype is torch.float64 else torch.float32


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _description(model: nn.Module) -> list[str]:
    """Return a line for each tensor.

    Raises:
        ConfigError: A parameter is complex.
    """
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise ConfigError(
                f"{name} is {parameter.dtype}: gradients are averaged as real numbers"
            )
    kinds = (("parameter", model.named_parameters()), ("buffer", model.named_buffers()))
    return [
        f"{kind} {name} {tuple(tensor.shape)} {tensor.dtype}"
        for kind, named in kinds
        for name, tensor in named
    ]


def _refuse_difference(first: list[str], lines: list[str], rank: int) -> None:
    if lines != first:
        ours, theirs = first_difference(first, lines)
        raise PayloadMismatchError(
            f"rank 0 has {ours} where rank {rank} has {theirs}",
            hint="all ranks must build the same model",
        )


def _comms(devices: Sequence[torch.device]) -> Comms:
    if all(device.type == "cpu" for device in devices):
        return FakeNcclComms(devices)
    from flodl.distributed.collective.nccl import NcclComms

    return NcclComms(devices)


def _device_of(device: Device) -> torch.device:
    return parse_device(f"cuda:{device}" if isinstance(device, int) else device)
