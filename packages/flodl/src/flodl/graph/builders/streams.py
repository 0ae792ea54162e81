"""Part of FlowBuilder: where the stream goes, in a row and side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.builders.draft import Draft, Target
from flodl.graph.builders.handle import Handle, consuming
from flodl.graph.builders.modules import as_module
from flodl.graph.nodes.merge import MergeOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.graph.builders.modules import Step


class Streams(Handle):
    """Moves, forks, splits and joins the stream."""

    @consuming
    def through(self, *modules: Step, key: str | None = None, out: int | str | None = None) -> Self:
        """Send the stream through modules, one after the other.

        Args:
            modules: What to call; the result of each is the input of the next.
            key: Namespace of the parameters, for a single module; dots make nested namespaces.
            out: Index or key that picks from a module that returns several values.
        """
        if not modules:
            raise FlowError("through() needs a module", hint="through(nn.Linear(4, 4))")
        if len(modules) > 1 and (key is not None or out is not None):
            raise FlowError(
                f"through(): key= and out= belong to one module, {len(modules)} were given",
                hint="use one through() for each",
            )
        draft = self._draft.copy()
        for module in modules:
            chain(draft, module, "through", key=key, out=out)
        return self._then(draft)

    @consuming
    def also(self, module: Step, *, key: str | None = None) -> Self:
        """Add a residual: the stream becomes ``x + module(x)``."""
        draft = self._draft.copy()
        source = draft.stream("also")
        main = draft.add_module(module, source, "also", key=key)
        total = draft.add_node("add", "add", (source, main), owners=(main.node,))
        draft.move_to([total], [Target(main.node)])
        return self._then(draft)

    @consuming
    def also_with(self, skip: Step, main: Step) -> Self:
        """Add a residual with a module on the short way: ``skip(x) + main(x)``."""
        draft = self._draft.copy()
        source = draft.stream("also_with")
        short = draft.add_module(skip, source, "also_with")
        long = draft.add_module(main, source, "also_with")
        total = draft.add_node("add", "add", (short, long), owners=(long.node, short.node))
        draft.move_to([total], [Target(long.node)])
        return self._then(draft)

    @consuming
    def fork(self, module: Step, *, key: str | None = None, out: int | str | None = None) -> Self:
        """Run a side branch: the stream stays, and the next ``tag`` names the branch's output."""
        draft = self._draft.copy()
        side = draft.add_module(module, draft.stream("fork"), "fork", key=key, out=out)
        draft.targets = [Target(side.node)]
        draft.fork = side
        return self._then(draft)

    @consuming
    def split(self, branches: Sequence[Step] | Mapping[str, Step]) -> Self:
        """Give the stream to several modules at once; ``merge`` joins them again.

        Args:
            branches: Two or more modules; a mapping also tags each branch with its name.
        """
        draft = self._draft.copy()
        source = draft.stream("split")
        if isinstance(branches, Mapping | nn.ModuleDict):
            pairs = list(branches.items())
        else:
            pairs = [("", module) for module in branches]
        if len(pairs) < 2:
            raise FlowError(
                f"split() needs two branches or more, got {len(pairs)}",
                hint="through() runs a single module",
            )
        ports = [draft.add_module(module, source, "split") for _, module in pairs]
        draft.move_to(ports, [Target(port.node) for port in ports])
        for (name, _), port in zip(pairs, ports, strict=True):
            if name:
                draft.add_tag(name, port, f"split({{{name!r}: …}})")
        return self._then(draft)

    @consuming
    def merge(self, op: MergeOp | str | Step = MergeOp.ADD, *, dim: int | None = None) -> Self:
        """Make one stream of several.

        Args:
            op: One of ``MergeOp``, by value or name, or a module or function of a list.
            dim: Dimension to work along, for ``cat`` and ``stack``.
        """
        draft = self._draft.copy()
        if len(draft.streams) < 2:
            raise FlowError(
                "merge() needs two streams or more, one is open", hint="open them with split([…])"
            )
        kind, modules = _merge_kind(op, dim)
        total = draft.add_node(
            "merge",
            "merge",
            tuple(draft.streams),
            modules=modules,
            attrs={"kind": kind, "dim": dim},
        )
        draft.move_to([total], [])
        return self._then(draft)


def chain(draft: Draft, module: Step, call: str, *, key: str | None, out: int | str | None) -> None:
    """Let one module take the stream over."""
    port = draft.add_module(module, draft.stream(call), call, key=key, out=out)
    draft.move_to([port], [Target(port.node)])


def _merge_kind(
    op: MergeOp | str | Step, dim: int | None
) -> tuple[str, dict[str, nn.Module] | None]:
    if isinstance(op, str):
        if op not in set(MergeOp):
            raise FlowError(
                f"merge({op!r}): no such operation; there are {', '.join(MergeOp)}",
                hint="or pass a function of a list of tensors",
            )
        needs_dim = MergeOp(op).needs_dim
        if needs_dim != (dim is not None):
            raise FlowError(
                f"merge({str(op)!r}, dim={dim}): "
                + ("needs a dimension" if needs_dim else "works element by element"),
                hint="dim= belongs to cat and stack",
            )
        return str(op), None
    if dim is not None:
        raise FlowError(f"merge(…, dim={dim}): dim= belongs to cat and stack")
    return "module", {"": as_module(op, "merge")}
