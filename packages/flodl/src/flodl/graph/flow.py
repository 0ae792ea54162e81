"""FlowBuilder: describes a model as data flow, step by step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.builders.draft import Draft, Target
from flodl.graph.builders.finish import make_plan
from flodl.graph.builders.handle import Handle, consuming
from flodl.graph.builders.loops import LoopBuilder
from flodl.graph.builders.maps import MapBuilder
from flodl.graph.builders.modules import as_module
from flodl.graph.check import warn_of_doubts
from flodl.graph.graph import Graph
from flodl.graph.ir import Tag
from flodl.graph.naming import check_argument, check_name, one_of, suggestion
from flodl.graph.nodes.merge import MergeOp
from flodl.graph.nodes.switch import SwitchMode

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flodl.graph.builders.modules import Step


class FlowBuilder(Handle):
    """Describes a model as data flow; ``build`` returns it as a ``Graph``, a ``nn.Module``.

    Every method uses the builder up and returns the next one, so calls are chained:

        model = (
            FlowBuilder(nn.Linear(2, 16)).tag("hidden")
            .through(nn.GELU())
            .also(nn.Linear(16, 16))
            .through(nn.Linear(16, 2))
            .build()
        )

    A plain function may stand wherever a module may.

    Args:
        module: First step; without it the flow begins with the input itself.
        input_name: Name of the graph's first input.
        key: Namespace of the first step's parameters.
        out: Index or key that picks from a first step that returns several values.

    Raises:
        FlowError: From every method, at the call that is wrong; the builder stays usable.
    """

    def __init__(
        self,
        module: Step | None = None,
        *,
        input_name: str = "input",
        key: str | None = None,
        out: int | str | None = None,
    ) -> None:
        super().__init__(Draft())
        check_argument(input_name, "FlowBuilder(input_name=)")
        start = self._draft.add_input(input_name, 0)
        self._draft.streams = [start]
        if module is not None:
            _chain(self._draft, module, "FlowBuilder", key=key, out=out)
        elif key is not None or out is not None:
            raise FlowError("FlowBuilder(): key= and out= need a module")

    @classmethod
    def from_sequential(cls, modules: nn.Sequential) -> FlowBuilder:
        """Begin with the steps of a ``nn.Sequential``; parameters keep their names."""
        builder = cls()
        for name, module in modules.named_children():
            builder = builder.through(module, key=name)
        return builder

    # ------------------------------------------------------------- the stream

    @consuming
    def through(
        self, *modules: Step, key: str | None = None, out: int | str | None = None
    ) -> FlowBuilder:
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
            _chain(draft, module, "through", key=key, out=out)
        return _next(draft)

    @consuming
    def also(self, module: Step, *, key: str | None = None) -> FlowBuilder:
        """Add a residual: the stream becomes ``x + module(x)``."""
        draft = self._draft.copy()
        source = draft.stream("also")
        main = draft.add_module(module, source, "also", key=key)
        total = draft.add_node("add", "add", (source, main), owners=(main.node,))
        draft.move_to([total], [Target(main.node)])
        return _next(draft)

    @consuming
    def also_with(self, skip: Step, main: Step) -> FlowBuilder:
        """Add a residual with a module on the short way: ``skip(x) + main(x)``."""
        draft = self._draft.copy()
        source = draft.stream("also_with")
        short = draft.add_module(skip, source, "also_with")
        long = draft.add_module(main, source, "also_with")
        total = draft.add_node("add", "add", (short, long), owners=(long.node, short.node))
        draft.move_to([total], [Target(long.node)])
        return _next(draft)

    @consuming
    def fork(
        self, module: Step, *, key: str | None = None, out: int | str | None = None
    ) -> FlowBuilder:
        """Run a side branch: the stream stays, and the next ``tag`` names the branch's output."""
        draft = self._draft.copy()
        side = draft.add_module(module, draft.stream("fork"), "fork", key=key, out=out)
        draft.targets = [Target(side.node)]
        draft.fork = side
        return _next(draft)

    @consuming
    def split(self, branches: Sequence[Step] | Mapping[str, Step]) -> FlowBuilder:
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
        return _next(draft)

    @consuming
    def merge(
        self, op: MergeOp | str | Step = MergeOp.ADD, *, dim: int | None = None
    ) -> FlowBuilder:
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
        return _next(draft)

    # ------------------------------------------------------------- constructs

    @consuming
    def loop_body(self, body: Step, *, key: str | None = None) -> LoopBuilder:
        """Begin a loop: ``.for_n(…)``, ``.while_cond(…)`` or ``.until_cond(…)`` completes it.

        Args:
            body: Called on the stream; what it returns is its next input.
            key: Namespace of the loop's parameters, which are ``<key>.body`` and ``<key>.cond``.
        """
        draft = self._draft.copy()
        draft.stream("loop_body")
        return LoopBuilder(draft, as_module(body, "loop_body"), key, _next)

    @consuming
    def map(self, body: Step, *, key: str | None = None) -> MapBuilder:
        """Begin a map: ``.each()``, ``.over(tag)`` or ``.slices(n)`` completes it.

        Args:
            body: Called on each row, or once on all of them after ``.batched()``.
            key: Namespace of the body's parameters, which are ``<key>.body``.
        """
        draft = self._draft.copy()
        draft.stream("map")
        return MapBuilder(draft, as_module(body, "map"), key, _next)

    @consuming
    def gate(
        self,
        router: Step,
        experts: Sequence[Step] | nn.ModuleList,
        *,
        key: str | None = None,
    ) -> FlowBuilder:
        """Route softly: the stream becomes ``sum_k w[..., k] * experts[k](x)``, ``w = router(x)``.

        All experts run. References bound with ``using`` go to the router alone.

        Args:
            router: Returns weights whose last dimension is the number of experts and whose other
                dimensions begin the shape of the experts' outputs. It normalizes, or not.
            experts: Two or more modules with outputs of one shape.
            key: Namespace of the parameters: ``<key>.router``, ``<key>.experts.0``, …
        """
        draft = self._draft.copy()
        modules = _many("gate", router, "experts", experts)
        source = draft.stream("gate")
        port = draft.add_node("gate", "gate", (source,), modules=modules, attrs={"n": len(experts)})
        draft.give_key(port.node, key, "gate")
        draft.move_to([port], [Target(port.node, "router")])
        return _next(draft)

    @consuming
    def switch(
        self,
        selector: Step,
        branches: Sequence[Step] | nn.ModuleList,
        *,
        mode: Literal["auto", "dense", "cond"] = "auto",
        per_sample: bool = False,
        key: str | None = None,
    ) -> FlowBuilder:
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
        return _next(draft)

    # ------------------------------------------------------------- names and references

    @consuming
    def tag(self, name: str) -> FlowBuilder:
        """Name the stream here, or the output of the ``fork`` just before."""
        draft = self._draft.copy()
        call = f"tag({name!r})"
        if draft.fork is None and len(draft.streams) > 1:
            raise FlowError(
                f"{call}: {len(draft.streams)} streams are open",
                hint="name them together with tag_group(), or split({'a': …, 'b': …})",
            )
        draft.add_tag(name, draft.fork or draft.streams[0], call)
        draft.fork = None
        return _next(draft)

    @consuming
    def tag_group(self, name: str) -> FlowBuilder:
        """Name the open streams ``name_0``, ``name_1``, …; observation takes the group's name."""
        draft = self._draft.copy()
        call = f"tag_group({name!r})"
        check_name(name, call)
        if len(draft.streams) < 2:
            raise FlowError(f"{call} needs two streams or more, one is open", hint="use tag()")
        if name in draft.groups or name in draft.tags:
            raise FlowError(f"{call}: that name is taken", hint="choose another")
        members = [f"{name}_{index}" for index in range(len(draft.streams))]
        for member, port in zip(members, draft.streams, strict=True):
            draft.add_tag(member, port, call)
        draft.groups[name] = tuple(members)
        return _next(draft)

    @consuming
    def using(self, /, *names: str, **renamed: str) -> FlowBuilder:
        """Give the last step the values of tags.

        A tag declared before is a wire within the call. A tag declared later, or on this very
        step, carries state: the step gets the value from the end of the previous call, at first
        zeros shaped like its stream (see ``state``). How a module takes references: as
        ``refs=`` dictionary, as keywords of these names, through ``forward_named``, or, for a
        graph, as its auxiliary inputs.

        Args:
            names: Tags, each passed under its own name.
            renamed: ``keyword="tag"`` passes a tag under another name.
        """
        draft = self._draft.copy()
        pairs = [(name, name) for name in names] + list(renamed.items())
        if not pairs:
            raise FlowError("using() needs a name", hint="using('memory')")
        if not draft.targets:
            raise FlowError(
                f"using({', '.join(map(repr, names))}): no step here takes references; "
                "a merge or the bare input does not",
                hint="put using() right after the step that reads them",
            )
        for keyword, name in pairs:
            call = f"using({name!r})"
            check_name(name, call)
            check_name(keyword, call)
            for target in draft.targets:
                draft.bind(target, keyword, name, call)
        return _next(draft)

    @consuming
    def state(
        self,
        name: str,
        init: Sequence[int] | torch.Tensor | Callable[[torch.Tensor], torch.Tensor],
    ) -> FlowBuilder:
        """Say how the state of a forward reference begins, before anything was stored.

        Args:
            name: The reference.
            init: A shape, filled with zeros, in which -1 is the batch size; a tensor; or a
                function of the reading step's stream.
        """
        draft = self._draft.copy()
        check_name(name, "state")
        if name in draft.starts:
            raise FlowError(f"state({name!r}): it already has a start")
        draft.starts[name] = tuple(init) if isinstance(init, Sequence) else init
        return _next(draft)

    # ------------------------------------------------------------- the graph's face

    @consuming
    def input(self, *names: str) -> FlowBuilder:
        """Declare further inputs of the graph, each tagged with its name; the stream stays."""
        draft = self._draft.copy()
        for name in names:
            call = f"input({name!r})"
            check_argument(name, call)
            if name in draft.inputs or name in draft.readers:
                reason = "an input" if name in draft.inputs else "a reference before it"
                raise FlowError(
                    f"{call}: there is already {reason} of that name",
                    hint="declare inputs before they are used, each once",
                )
            draft.counter += 1
            draft.add_tag(name, draft.add_input(name, draft.counter), call)
        return _next(draft)

    @consuming
    def output(self, *tags: str) -> FlowBuilder:
        """Make a call return a dictionary of these tags, in this order, instead of the stream."""
        draft = self._draft.copy()
        for name in tags:
            if name not in draft.tags:
                raise FlowError(f"output({name!r}): no such tag", hint=suggestion(name, draft.tags))
        if not tags or len(set(tags)) != len(tags):
            raise FlowError(f"output{tags!r}: needs tags, each once")
        draft.outputs = tags
        return _next(draft)

    @consuming
    def internal(self, tag: str, on: bool = True) -> FlowBuilder:
        """Hide a tag from parent graphs, or show one that begins with an underscore."""
        draft = self._draft.copy()
        draft.internal[check_name(tag, "internal")] = on
        return _next(draft)

    @consuming
    def label(self, name: str) -> FlowBuilder:
        """Give the graph the name under which a parent graph addresses it."""
        draft = self._draft.copy()
        draft.label = check_name(name, f"label({name!r})")
        return _next(draft)

    def copy(self) -> FlowBuilder:
        """Return an independent builder at this point; both share modules, and so weights."""
        self._check_unused("copy")
        return _next(self._draft.copy())

    @consuming
    def verbose(self, on: bool = True) -> FlowBuilder:
        """Make ``build`` log the finished graph's tree to the ``flodl`` logger."""
        draft = self._draft.copy()
        draft.verbose = on
        return _next(draft)

    @consuming
    def build(self, *, example: Any = None) -> Graph:
        """Return the graph.

        Args:
            example: An input, or a tuple of all inputs: shapes are computed through the graph,
                without running it, and the first mismatch is raised with its node.

        Raises:
            FlowError: A reference that no step was tagged with, open streams, or labels that
                clash.
        """
        draft = self._draft
        plan, placed = make_plan(draft, Graph)
        warn_of_doubts(plan, draft.modules, stacklevel=4)
        graph = Graph(plan, placed, draft.starts)
        for module in graph.modules():
            if isinstance(module, Graph) and module is not graph:
                module.flodl_is_composed = True
        if example is not None:
            graph.summary(example)
        if draft.verbose:
            logging.getLogger("flodl").info("%s", graph.tree_summary())
        return graph

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show the flow so far, in notebooks; open ends count as outputs."""
        draft = self._draft.copy()
        steps = f"FlowBuilder with {len(draft.nodes)} steps"
        if draft.readers.keys() - draft.tags.keys():
            return {"text/plain": f"{steps}; references are still open"}
        if len(draft.streams) > 1 and not draft.outputs:
            for number, port in enumerate(draft.streams):
                draft.tags[f"stream_{number}"] = Tag(f"stream_{number}", port)
            draft.outputs = tuple(f"stream_{number}" for number in range(len(draft.streams)))
        plan, placed = make_plan(draft, Graph)
        return {"text/plain": steps, "image/svg+xml": Graph(plan, placed, draft.starts).svg()}


def _next(draft: Draft) -> FlowBuilder:
    builder = FlowBuilder.__new__(FlowBuilder)
    Handle.__init__(builder, draft)
    return builder


def _chain(
    draft: Draft, module: Step, call: str, *, key: str | None, out: int | str | None
) -> None:
    port = draft.add_module(module, draft.stream(call), call, key=key, out=out)
    draft.move_to([port], [Target(port.node)])


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
