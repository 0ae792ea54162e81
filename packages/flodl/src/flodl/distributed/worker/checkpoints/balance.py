"""Which rank writes which tensors of a checkpoint, so that all write about as many bytes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def balanced(
    tensors: Mapping[str, Tensor], ranks: int, *, lead: int, held_bytes: int, own: set[str]
) -> list[dict[str, Tensor]]:
    """Return the tensors that each rank writes; the same on every rank.

    Names of one memory go to one rank, the largest first to whichever has least.

    Args:
        tensors: All tensors by name.
        ranks: How many write.
        lead: The one that writes more than tensors.
        held_bytes: What it writes besides.
        own: Names whose values are the lead's, and not equal on all ranks.
    """
    shares: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
    load = [0] * ranks
    load[lead] = held_bytes
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(tensors):
        groups.setdefault(_place(name, tensors[name]), []).append(name)
    by_size = sorted(groups.values(), key=lambda names: (-tensors[names[0]].nbytes, names[0]))
    fixed = [names for names in by_size if not own.isdisjoint(names)]
    for names in [*fixed, *(names for names in by_size if own.isdisjoint(names))]:
        rank = lead if names in fixed else min(range(ranks), key=lambda rank: (load[rank], rank))
        load[rank] += tensors[names[0]].nbytes
        shares[rank] |= {name: tensors[name] for name in names}
    return shares


def _place(name: str, tensor: Tensor) -> tuple[object, ...]:
    if tensor.numel() == 0:
        return (name,)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
