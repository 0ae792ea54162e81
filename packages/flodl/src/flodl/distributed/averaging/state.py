"""State that one rank gives to others: named tensors and plain values, as bytes without pickles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch._C._distributed_c10d import Store

from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import Group, GroupPlan, form_group
from flodl.distributed.collective.patience import Interrupt

__all__ = ["Plain", "State", "hand_over"]

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

_LENGTH_BYTES = 8
_CHUNK_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Named tensors and plain values."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Plain] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return it as a safetensors file with the plain values as JSON in front."""
        head = json.dumps(self.meta).encode()
        tensors = {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in self.tensors.items()
        }
        return len(head).to_bytes(_LENGTH_BYTES, "big") + head + save(tensors)

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Return what `to_bytes` wrote; the tensors are on the CPU.

        Raises:
            CollectiveError: The bytes are something else.
        """
        length = int.from_bytes(data[:_LENGTH_BYTES], "big")
        start = _LENGTH_BYTES + length
        try:
            meta = json.loads(data[_LENGTH_BYTES:start])
            tensors = load(data[start:])
        except (ValueError, SafetensorError) as error:
            raise CollectiveError(f"state of {len(data)} bytes cannot be read: {error}") from error
        return cls(tensors=tensors, meta=meta)

    def part(self, prefix: str) -> State:
        """Return the tensors and values whose names begin so, without the prefix."""
        return State(
            tensors={n[len(prefix) :]: t for n, t in self.tensors.items() if n.startswith(prefix)},
            meta={n[len(prefix) :]: v for n, v in self.meta.items() if n.startswith(prefix)},
        )

    def prefixed(self, prefix: str) -> State:
        """Return the same under longer names."""
        return State(
            tensors={prefix + name: tensor for name, tensor in self.tensors.items()},
            meta={prefix + name: value for name, value in self.meta.items()},
        )

    def __or__(self, other: State) -> State:
        """Return the union; names of ``other`` win."""
        return State(tensors=self.tensors | other.tensors, meta=self.meta | other.meta)


def hand_over(
    state: State | None,
    plan: GroupPlan,
    store: Store,
    graveyard: Graveyard,
    *,
    interrupted: Interrupt,
) -> State:
    """Give a state from rank 0 of a group, formed for this alone, to its other ranks.

    Args:
        state: What to give; on rank 0 only.
        plan: The group; rank 0 is the donor.
        store: Where the group forms.
        graveyard: Takes the group afterwards.
        interrupted: Asked while waiting.

    Raises:
        Interrupted: ``interrupted()`` became true first.
        FormationError: A rank did not come.
        CollectiveError: The transfer failed or is late.
    """
    group = form_group(plan, store, graveyard, interrupted=interrupted)
    try:
        data = _broadcast(group, b"" if state is None else state.to_bytes(), interrupted)
    finally:
        group.close()
    return state if state is not None else State.from_bytes(data)


def _broadcast(group: Group, data: bytes, interrupted: Interrupt) -> bytes:
    length = torch.tensor([len(data)])
    group.complete(group.broadcast(length, 0), interrupted=interrupted)
    if group.rank == 0:
        whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    else:
        whole = torch.empty(int(length.item()), dtype=torch.uint8)
    for chunk in _chunks(whole):
        group.complete(group.broadcast(chunk, 0), interrupted=interrupted)
    return whole.numpy().tobytes()


def _chunks(whole: Tensor) -> Sequence[Tensor]:
    return whole.split(_CHUNK_BYTES) if whole.numel() else ()
