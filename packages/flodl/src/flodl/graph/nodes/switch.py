"""Hard routing: the selector decides which branch counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from flodl.core.errors import FlowError, NodeError, SwitchIndexError
from flodl.graph.nodes.base import Blocker, Construct, Writer, call, numbered
from flodl.graph.nodes.schema import Schema, among, count, flag
from flodl.nn.routing import FixedSelector

if TYPE_CHECKING:
    from torch import nn

    from flodl.graph.ir import Attr, Node


class SwitchMode(StrEnum):
    """How a switch takes its branch."""

    AUTO = "auto"  # the host reads the index and only that branch runs
    DENSE = "dense"  # all branches run, the device picks the result
    COND = "cond"  # torch.cond; experimental


class Switch(Construct):
    """``branch_i(x)`` with ``i = selector(x)``."""

    op = "switch"
    schema: ClassVar[Schema] = {"n": count, "mode": among(*SwitchMode), "per_sample": flag}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:
        """Return selector and branches."""
        return numbered("branches", attrs)

    def check(self, node: Node, modules: Mapping[str, nn.Module]) -> None:
        """Refuse a fixed index that no branch has."""
        selector, count = modules["router"], int_attr(node, "n")
        if isinstance(selector, FixedSelector) and selector.index >= count:
            raise FlowError(
                f"switch: FixedSelector({selector.index}), but {node.id} has {count} branches",
                hint=f"branches are counted from 0: choose 0 to {count - 1}",
            )
        if node.attr("mode") == SwitchMode.COND and not hasattr(torch, "cond"):
            raise FlowError(
                f"switch(mode='cond'): torch {torch.__version__} has no torch.cond",
                hint="use mode='dense'",
            )

    def facts(self, node: Node, modules: Mapping[str, nn.Module]) -> dict[str, Attr]:
        """Return the branch that is always taken, if there is one."""
        selector = modules["router"]
        fixed = isinstance(selector, FixedSelector) and node.attr("mode") == SwitchMode.AUTO
        return {"fixed": selector.index if fixed else None}  # type: ignore[dict-item]

    def blocker(self, node: Node, modules: Mapping[str, nn.Module]) -> Blocker | None:
        """Return a blocker unless all branches run or one is fixed."""
        if node.attr("mode") == SwitchMode.COND:
            return Blocker("switch", "runs through torch.cond, experimental", 'use mode="dense"')
        if node.attr("mode") == SwitchMode.DENSE or self.facts(node, modules)["fixed"] is not None:
            return None
        return Blocker("switch", "index read on host", 'use mode="dense"')

    def emit(self, node: Node, out: Writer) -> None:
        """Write a call, a chain of conditions, or one choice between all results."""
        result, stream = out.result(node), out.value(node.inputs[0])
        count, fixed = int_attr(node, "n"), out.facts(node)["fixed"]
        branches = [
            call(out, node, stream, slot=f"branches.{index}", takes_refs=False)
            for index in range(count)
        ]
        if out.outlining and node.attr("mode") != SwitchMode.DENSE:
            fixed = 0 if fixed is None else fixed
        if fixed is not None:
            out.line(f"{result} = {branches[int(str(fixed))]}")
            return
        index = call(out, node, stream, slot="router")
        match node.attr("mode"):
            case SwitchMode.DENSE:
                name, function = (
                    ("choose_rows", choose_rows) if node.attr("per_sample") else ("choose", choose)
                )
                out.line(f"{result} = {out.bind(name, function)}({index}, [{', '.join(branches)}])")
            case mode if mode == SwitchMode.COND or out.exporting:
                callables = [out.module(node, f"branches.{index}") for index in range(count)]
                out.line(
                    f"{result} = {out.bind('cond', cond)}"
                    f"({index}, [{', '.join(callables)}], {stream})"
                )
            case _:
                self._emit_chain(node, out, index, branches)

    def _emit_chain(self, node: Node, out: Writer, index: str, branches: list[str]) -> None:
        chosen = f"chosen_{node.id}"
        out.line(f"{chosen} = {out.bind('branch', branch)}({index}, {len(branches)})")
        for number, text in enumerate(branches):
            last = number == len(branches) - 1
            head = "else" if last else f"{'if' if number == 0 else 'elif'} {chosen} == {number}"
            with out.block(f"{head}:"):
                out.line(f"{out.result(node)} = {text}")


def int_attr(node: Node, name: str) -> int:
    """Return an attribute that is a whole number."""
    value = node.attr(name)
    assert isinstance(value, int), f"{node.id} has no number {name}"
    return value


def branch(index: object, count: int) -> int:
    """Return the index of a branch as a number, reading it from its device.

    Raises:
        SwitchIndexError: It is not one whole number from 0 to ``count - 1``.
    """
    value: Any = index
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise SwitchIndexError(
                f"switch: the selector returned {list(value.shape)} values; one is needed",
                hint="ArgmaxSelector decides for a batch; per_sample=True takes an index a row",
            )
        value = value.item()
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or not 0 <= value < count:
        raise SwitchIndexError(
            f"switch: the selector returned {value!r}; there are {count} branches",
            hint=f"return a whole number from 0 to {count - 1}",
        )
    return int(value)


def choose(index: int | Tensor, outputs: list[Tensor]) -> Tensor:
    """Return one of the outputs without the host reading a tensor index."""
    if not isinstance(index, Tensor):
        index = torch.tensor(branch(index, len(outputs)), device=outputs[0].device)
    if index.numel() != 1:
        branch(index, len(outputs))
    stacked = _stacked(outputs, dim=0)
    return stacked.index_select(0, index.reshape(1).to(torch.long)).squeeze(0)


def choose_rows(index: int | Tensor, outputs: list[Tensor]) -> Tensor:
    """Return for each row of the batch the row of the output that its index names."""
    rows = outputs[0].shape[0]
    if not isinstance(index, Tensor) or index.shape not in {(rows,), (rows, 1)}:
        got = list(index.shape) if isinstance(index, Tensor) else repr(index)
        raise SwitchIndexError(
            f"switch: the selector returned {got}; per_sample needs one index for each of the "
            f"{rows} rows",
            hint="return a tensor of shape [batch]",
        )
    stacked = _stacked(outputs, dim=1)
    place = index.reshape(rows, 1, *([1] * (stacked.dim() - 2))).to(torch.long)
    return stacked.gather(1, place.expand(rows, 1, *stacked.shape[2:])).squeeze(1)


def cond(index: int | Tensor, branches: list[Callable[[Tensor], Tensor]], stream: Tensor) -> Tensor:
    """Return what the chosen branch makes of the stream, through nested ``torch.cond``."""
    if not isinstance(index, Tensor):
        return branches[branch(index, len(branches))](stream)
    place = index.reshape(())

    def from_branch(number: int) -> Callable[[Tensor], Tensor]:
        if number == len(branches) - 1:
            return lambda x: branches[number](x).clone()
        rest = from_branch(number + 1)
        return lambda x: torch.cond(
            place == number, lambda y: branches[number](y).clone(), rest, (x,)
        )

    return from_branch(0)(stream)


def _stacked(outputs: list[Tensor], dim: int) -> Tensor:
    if any(output.shape != outputs[0].shape for output in outputs):
        shapes = ", ".join(str(list(output.shape)) for output in outputs)
        raise NodeError(
            f"switch: with all branches running, their outputs need one shape; they have {shapes}",
            hint="bring the branches to one shape, or use mode='auto'",
        )
    return torch.stack(outputs, dim=dim)
