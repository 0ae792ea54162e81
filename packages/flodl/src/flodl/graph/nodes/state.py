"""Reading what a tag held at the end of the previous call."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flodl.core.errors import NodeError, StateShapeError
from flodl.graph.ir import CellStart
from flodl.graph.nodes.base import Construct, Writer, literal
from flodl.graph.nodes.schema import Schema, among, sizes, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.graph.ir import Node


class StateRead(Construct):
    """The stored value of a cell; before there is one, its start."""

    op = "state_read"
    schema: ClassVar[Schema] = {"cell": text, "start": among(*CellStart), "shape": sizes}

    def emit(self, node: Node, out: Writer) -> None:
        """Write one read."""
        name = str(node.attr("cell"))
        stream, stored = out.value(node.inputs[0]), out.cell(name)
        match node.attr("start"):
            case "stream":
                text = f"{out.bind('read', read)}({stored}, {stream}, {name!r})"
            case "shape":
                shape = literal(node.attr("shape"))
                text = (
                    f"{out.bind('read_shape', read_shape)}({stored}, {stream}, {name!r}, {shape})"
                )
            case _:
                start = f"self._starts[{name!r}]"
                text = (
                    f"{out.bind('read_start', read_start)}({stored}, {stream}, {name!r}, {start})"
                )
        out.line(f"{out.result(node)} = {text}")


def read(stored: torch.Tensor | None, stream: torch.Tensor, name: str) -> torch.Tensor:
    """Return the stored value, at first zeros like the stream; batch sizes must agree."""
    if stored is None:
        if not isinstance(stream, torch.Tensor):
            raise NodeError(
                f"state {name!r}: no zeros can be shaped like a stream of {type(stream).__name__}",
                hint=f"declare its start with .state({name!r}, init=…)",
            )
        return torch.zeros_like(stream)
    if stored.dim() and stream.dim() and stored.shape[0] != stream.shape[0]:
        raise _mismatch(name, stored, f"a batch of {stream.shape[0]} (stream {_sizes(stream)})")
    return stored


def read_shape(
    stored: torch.Tensor | None, stream: torch.Tensor, name: str, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return the stored value, at first zeros of the declared shape; -1 is the batch size."""
    wanted = tuple(stream.shape[0] if size == -1 else size for size in shape)
    if stored is None:
        return stream.new_zeros(wanted)
    if tuple(stored.shape) != wanted:
        raise _mismatch(name, stored, f"shape {list(wanted)}")
    return stored


def read_start(
    stored: torch.Tensor | None,
    stream: torch.Tensor,
    name: str,
    start: torch.Tensor | Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Return the stored value, at first a given tensor or what a callable makes of the stream."""
    if isinstance(start, torch.Tensor):
        if stored is not None and stored.shape != start.shape:
            raise _mismatch(name, stored, f"shape {_sizes(start)}")
        return start if stored is None else stored
    return start(stream) if stored is None else stored


def _mismatch(name: str, stored: torch.Tensor, wanted: str) -> StateShapeError:
    return StateShapeError(
        f"state {name!r} has shape {_sizes(stored)} from the previous call; this call needs "
        f"{wanted}",
        hint="call reset_state() where a sequence ends, or load data with drop_last=True",
    )


def _sizes(tensor: torch.Tensor) -> list[int]:
    return list(tensor.shape)
