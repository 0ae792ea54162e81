"""Part of FlowBuilder: loops, maps, gates and switches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.builders.draft import Target
from flodl.graph.builders.handle import Handle, consuming
from flodl.graph.builders.loops import LoopBuilder
from flodl.graph.builders.maps import MapBuilder
from flodl.graph.builders.modules import as_module
from flodl.graph.naming import one_of
from flodl.graph.nodes.switch import SwitchMode

if TYPE_CHECKING:
    from flodl.graph.builders.modules import Step


class Constructs(Handle):
    """Adds the nodes that hold several modules."""

    @consuming
    def loop_body(self, body: Step, *, key: str | None = None) -> LoopBuilder[Self]:
        """Begin a loop: ``.for_n(…)``, ``.while_cond(…)`` or ``.until_cond(…)`` completes it.

        Args:
            body: Called on the stream; what it returns is its next input.
            key: Namespace of the loop's parameters, which are ``<key>.body`` and ``<key>.cond``.
        """
        draft = self._draft.copy()
        draft.stream("loop_body")
        return LoopBuilder(draft, as_module(body, "loop_body"), key, self._then)

    @consuming
    def map(self, body: Step, *, key: str | None = None) -> MapBuilder[Self]:
        """Begin a map: ``.each()``, ``.over(tag)`` or ``.slices(n)`` completes it.

        Args:
            body: Called on each row, or once on all of them after ``.batched()``.
            key: Namespace of the body's parameters, which are ``<key>.body``.
        """
        draft = self._draft.copy()
        draft.stream("map")
        return MapBuilder(draft, as_module(body, "map"), key, self._then)

    @consuming
    def gate(
        self,
        router: Step,
        experts: Sequence[Step] | nn.ModuleList,
        *,
        batched: bool = False,
        key: str | None = None,
    ) -> Self:
        """Route softly: the stream becomes ``sum_k w[..., k] * experts[k](x)``, ``w = router(x)``.

        All experts run. References bound with ``using`` go to the router alone.

        Args:
            router: Returns weights whose last dimension is the number of experts and whose other
                dimensions begin the shape of the experts' outputs. It normalizes, or not.
            experts: Two or more modules with outputs of one shape.
            batched: Run all experts as one, their products side by side: fewer and larger kernels,
                for what is otherwise many small ones. The experts must be alike in all but the
                values of their parameters, without buffers and hooks.
            key: Namespace of the parameters: ``<key>.router``, ``<key>.experts.0``, …

        Raises:
            FlowError: The experts are too few, or not alike where they are to be batched.
        """
        draft = self._draft.copy()
        modules = _many("gate", router, "experts", experts)
        source = draft.stream("gate")
        attrs = {"n": len(experts), "batched": batched}
        port = draft.add_node("gate", "gate", (source,), modules=modules, attrs=attrs)
        draft.give_key(port.node, key, "gate")
        draft.move_to([port], [Target(port.node, "router")])
        return self._then(draft)

    @consuming
    def switch(
        self,
        selector: Step,
        branches: Sequence[Step] | nn.ModuleList,
        *,
        mode: Literal["auto", "dense", "cond"] = "auto",
        per_sample: bool = False,
        key: str | None = None,
    ) -> Self:
        """Route hard: the stream becomes what one branch makes of it.

        Parameters of branches that were not chosen keep ``grad`` None. References bound with
        ``using`` go to the selector alone. With ``FixedSelector`` the switch is a plain call.

        Args:
            selector: Returns the index of a branch, a number or a tensor of one element.
            branches: Two or more modules.
            mode: ``"auto"`` reads the index on the host and runs one branch. ``"dense"`` runs all
                and picks on the device, so it compiles and can be captured; branches not chosen
                get zero gradients, and momentum and weight decay go on moving them. ``"cond"``
                uses ``torch.cond`` and is experimental.
            per_sample: The selector returns an index for each row (dense).
            key: Namespace of the parameters: ``<key>.router``, ``<key>.branches.0``, …
        """
        draft = self._draft.copy()
        modules = _many("switch", selector, "branches", branches)
        chosen = one_of(mode, list(SwitchMode), "switch(mode=)")
        if per_sample and chosen == SwitchMode.COND:
            raise FlowError(
                "switch(per_sample=True, mode='cond'): a choice for each row runs all branches",
                hint="leave mode out",
            )
        port = draft.add_node(
            "switch",
            "switch",
            (draft.stream("switch"),),
            modules=modules,
            attrs={
                "n": len(branches),
                "mode": str(SwitchMode.DENSE) if per_sample else chosen,
                "per_sample": per_sample,
            },
        )
        draft.give_key(port.node, key, "switch")
        draft.move_to([port], [Target(port.node, "router")])
        return self._then(draft)


def _many(
    call: str, first: Step, name: str, others: Sequence[Step] | nn.ModuleList
) -> dict[str, nn.Module]:
    if not isinstance(others, Sequence | nn.ModuleList):
        raise FlowError(f"{call}(): {name} must be a list of modules, not {type(others).__name__}")
    if len(others) < 2:
        raise FlowError(
            f"{call}() needs two {name} or more, got {len(others)}",
            hint="through() runs a single module",
        )
    numbered = {f"{name}.{index}": as_module(item, call) for index, item in enumerate(others)}
    return {"router": as_module(first, call), **numbered}
