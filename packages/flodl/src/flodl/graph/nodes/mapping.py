"""Applying a body to each row, to each row of a tag, or to equal slices."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flodl.core.errors import NodeError
from flodl.graph.nodes.base import Construct, Writer, call, described, scratch
from flodl.graph.nodes.schema import Schema, among, count, flag, optional

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from flodl.graph.ir import Attr, Node


class MapKind(StrEnum):
    """What a map goes over."""

    EACH = "each"  # rows of the stream
    OVER = "over"  # rows of a tag
    SLICES = "slices"  # equal parts of the last dimension


class Map(Construct):
    """A body called for each row, or once for all of them when batched."""

    op = "map"
    schema: ClassVar[Schema] = {"kind": among(*MapKind), "n": optional(count), "batched": flag}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:  # noqa: ARG002
        """Return the body."""
        return ["body"]

    def emit(self, node: Node, out: Writer) -> None:
        """Write one call, or a loop over rows."""
        source, result = out.value(node.inputs[0]), out.result(node)
        slices = node.attr("kind") == MapKind.SLICES
        rows = source
        if slices:
            rows = scratch(node, "slices")
            out.line(f"{rows} = {out.bind('cut', cut)}({source}, {node.attr('n')})")
        if node.attr("batched"):
            whole = call(out, node, rows, slot="body")
            out.line(f"{result} = {out.bind('whole', whole_map)}({whole}, {rows})")
        else:
            self._emit_rows(node, out, rows)
        if slices:
            out.line(f"{result} = {out.bind('uncut', uncut)}({result}, {source}, {node.attr('n')})")
            out.line(f"del {rows}")

    def _emit_rows(self, node: Node, out: Writer, rows: str) -> None:
        row, done = scratch(node, "row"), scratch(node, "done")
        out.line(f"{done} = []")
        with out.block(f"for {row} in {out.bind('rows', split_rows)}({rows}):"):
            out.line(f"{done}.append({call(out, node, row, slot='body')})")
        out.line(f"{out.result(node)} = {out.bind('join', join_rows)}({done}, {rows})")
        out.line(f"del {row}, {done}")


def split_rows(x: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of the first dimension, which they keep; an empty tensor is one part."""
    if x.dim() == 0:
        raise NodeError("map: a tensor without dimensions has no rows")
    return torch.split(x, 1) if x.shape[0] else (x,)


def join_rows(parts: list[Any], source: Tensor) -> Tensor:
    """Return the parts as one tensor, as many rows as the source has."""
    expected = 1 if source.shape[0] else 0
    for number, part in enumerate(parts):
        _refuse_several(part)
        if part.dim() == 0 or part.shape[0] != expected:
            raise NodeError(
                f"map: for row {number}, of shape {[expected, *source.shape[1:]]}, the body "
                f"returned shape {list(part.shape)}",
                hint="the body keeps the first dimension: one row out for each row in",
            )
    return torch.cat(parts)


def whole_map(result: Any, source: Tensor) -> Tensor:
    """Return what a batched body made, after checking that it kept the rows."""
    _refuse_several(result)
    if result.dim() == 0 or result.shape[0] != source.shape[0]:
        raise NodeError(
            f"map: for {source.shape[0]} rows the batched body returned shape {list(result.shape)}",
            hint="the body keeps the first dimension: one row out for each row in",
        )
    kept: Tensor = result
    return kept


def _refuse_several(value: object) -> None:
    if value is None or isinstance(value, tuple | list | dict):
        raise NodeError(
            f"map: the body returned {described(value)}; one tensor is needed",
            hint="wrap it in a function that picks one value",
        )


def cut(x: Tensor, n: int) -> Tensor:
    """Return ``[..., D]`` as ``[rows * n, D / n]``."""
    if x.dim() < 2 or x.shape[-1] % n:
        raise NodeError(
            f"map: slices({n}) of a tensor of shape {list(x.shape)}",
            hint=f"it needs two dimensions or more, the last one a multiple of {n}",
        )
    return x.reshape(-1, x.shape[-1] // n)


def uncut(result: Tensor, source: Tensor, n: int) -> Tensor:
    """Return the results of all slices beside each other again: ``[..., n * D_out]``."""
    return result.reshape(*source.shape[:-1], n * result.shape[1:].numel())
