"""MapBuilder: what a body is applied to, row by row or at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from flodl.core.errors import FlowError
from flodl.graph.builders.draft import Draft, Target
from flodl.graph.builders.handle import Handle, Waiting, consuming
from flodl.graph.naming import check_count, check_name, suggestion
from flodl.graph.nodes.mapping import MapKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from flodl.graph.ir import Port


F = TypeVar("F", bound=Handle)
"""The builder that goes on afterwards."""


class MapBuilder(Waiting, Generic[F]):
    """A body that waits to be told what it goes over; made by ``FlowBuilder.map``.

    The body is called once for each row, which costs its kernels that many times: a body that
    treats rows alike anyway, as most layers do, should be ``.batched()``. It returns one row for
    each row it gets. References bound with ``using`` afterwards go to every call of the body.
    """

    _begun_by = "map"
    _ended_by = ".each(), .over(tag) or .slices(n)"

    def __init__(
        self,
        draft: Draft,
        body: nn.Module,
        key: str | None,
        resume: Callable[[Draft], F],
        *,
        is_batched: bool = False,
    ) -> None:
        super().__init__(draft)
        self._body = body
        self._key = key
        self._resume = resume
        self._is_batched = is_batched

    @consuming
    def batched(self) -> MapBuilder[F]:
        """Call the body once for all rows."""
        draft = self._draft.copy()
        return MapBuilder(draft, self._body, self._key, self._resume, is_batched=True)

    @consuming
    def each(self) -> F:
        """Go over the first dimension: the body gets ``x[i:i+1]``, results are concatenated."""
        draft = self._draft.copy()
        return self._finish(draft, MapKind.EACH, draft.stream("map"))

    @consuming
    def over(self, tag: str) -> F:
        """Go over the rows of an earlier tag; the result becomes the stream."""
        draft = self._draft.copy()
        call = f"over({tag!r})"
        check_name(tag, call)
        draft.stream("map")
        if tag not in draft.tags:
            raise FlowError(
                f"{call}: no step before it has that tag",
                hint=f"a map needs the value of this call; {suggestion(tag, draft.tags)}",
            )
        return self._finish(draft, MapKind.OVER, draft.tags[tag].port)

    @consuming
    def slices(self, n: int) -> F:
        """Go over ``n`` equal parts of the last dimension, which are put together again."""
        check_count(n, f"slices({n!r})", "slices")
        draft = self._draft.copy()
        return self._finish(draft, MapKind.SLICES, draft.stream("map"), n)

    def _finish(self, draft: Draft, kind: MapKind, source: Port, n: int | None = None) -> F:
        port = draft.add_node(
            "map",
            "map",
            (source,),
            modules={"body": self._body},
            attrs={"kind": str(kind), "n": n, "batched": self._is_batched},
        )
        draft.give_key(port.node, self._key, "map")
        draft.move_to([port], [Target(port.node, "body")])
        return self._resume(draft)
