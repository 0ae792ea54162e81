"""The core of a graph: a module that runs generated code over the modules it holds."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from flodl.graph.emit import Flags, compile_flow
from flodl.graph.hashing import structural_hash
from flodl.graph.introspection import NodeInfo, node_infos
from flodl.graph.keys import own, register
from flodl.graph.memory import Memory
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.nodes.inputs import bound
from flodl.graph.nodes.traces import check_names
from flodl.graph.profiling import NodeClock
from flodl.graph.schedule import levels
from flodl.graph.sums import Sums
from flodl.graph.trouble import annotate
from flodl.metrics.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flodl.graph.emit import Flow
    from flodl.graph.ir import Attr, Edge, Node, Plan


class GraphBase(nn.Module):
    """Plan, generated code and modules; the parts of ``Graph`` build on it.

    Attributes named ``flodl_…`` are for the other parts of this package: short public names
    would be lost as keys of modules.

    Args:
        plan: What was described, with keys.
        modules: The modules of the plan by path.
        starts: Tensor or callable that begins a state cell, by name.
    """

    flodl_plan: Plan
    flodl_flow: Flow
    _run: Callable[..., Any]
    _arity: int
    flodl_memory: Memory
    _starts: dict[str, Any]
    flodl_history: History
    flodl_clock: NodeClock
    flodl_pin: bool | None
    flodl_pins: dict[str, bool]
    flodl_is_composed: bool
    flodl_source_config: str | None
    flodl_training: Any
    flodl_recorder: Callable[[str, Any], None] | None
    flodl_sums: Sums
    _retained: tuple[str, ...]
    _observed: tuple[tuple[str, str], ...]
    _profiling: bool
    _exporting: bool
    _variants: dict[Flags, Flow]
    _hash: str | None
    _hashed: list[weakref.ref[nn.Module]]
    _version: int
    _step_count: int
    _epoch_count: int

    def __init__(
        self,
        plan: Plan,
        modules: Mapping[str, nn.Module],
        starts: Mapping[str, torch.Tensor | Callable[[torch.Tensor], torch.Tensor]] | None = None,
    ) -> None:
        super().__init__()
        register(self, modules)
        self.flodl_plan = plan
        self._arity = len(plan.inputs)
        self.flodl_memory = Memory(len(plan.cells))
        self._starts = dict(starts or {})
        self._retained = tuple(tag.name for tag in plan.tags)
        self._observed = ()
        self.flodl_sums = Sums()
        self._version = 0
        self._step_count = 0
        self._epoch_count = 0
        self._profiling = False
        self._exporting = False
        self._variants = {}
        self._hashed = []
        self.flodl_history = History()
        self.flodl_clock = NodeClock()
        self.flodl_pin = None
        self.flodl_pins = {}
        self.flodl_is_composed = False
        self.flodl_source_config = None
        self.flodl_training = None
        self.flodl_recorder = None
        self._hash = self._stable_hash()
        self._use_variant()
        own(self, self._slot_paths())

    def _use_variant(self) -> None:
        """Run the code for the current flags from now on; it is generated when first needed."""
        flags = Flags(
            retained=self._retained,
            observed=self._observed,
            facts=self._facts(),
            profiling=self._profiling,
            exporting=self._exporting,
            outlining=self.flodl_recorder is not None,
        )
        if flags not in self._variants:
            self._variants[flags] = compile_flow(self.flodl_plan, flags)
        self.flodl_flow = self._variants[flags]
        self._run = self.flodl_flow.function
        self.flodl_memory.resettable = None
        self.flodl_memory.drop_values()

    def _facts(self) -> tuple[tuple[str, tuple[tuple[str, Attr], ...]], ...]:
        found = []
        for node in self.flodl_plan.nodes:
            facts = CONSTRUCTS[node.op].facts(node, self.flodl_modules_of(node))
            if facts:
                found.append((node.id, tuple(sorted(facts.items()))))
        return tuple(found)

    def flodl_modules_of(self, node: Node) -> dict[str, nn.Module]:
        """Return the modules of a node by slot."""
        return {slot.name: self.get_submodule(slot.path) for slot in node.slots}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the flow on its inputs, given in the order of ``input_names`` or by name.

        Returns:
            The stream's end, or a dictionary when the flow named its outputs.

        Raises:
            GraphInputError: Inputs are missing, too many or unknown.
        """
        if kwargs or len(args) != self._arity:
            args = bound(self.flodl_plan.inputs, self._title(), args, kwargs)
        memory = self.flodl_memory
        # Values of the last call go first: they would hold its memory during this one.
        memory.tagged = ()
        memory.reports = ()
        if memory.started is None and not torch.compiler.is_compiling():
            memory.started = time.monotonic()
        try:
            output, memory.tagged, cells, memory.reports = self._run(
                self, *args, *(memory.read() if memory.fixed else memory.cells)
            )
        except Exception as error:
            if not torch.compiler.is_dynamo_compiling():
                annotate(error, self.flodl_flow, self.flodl_plan, self)
            raise
        if memory.fixed:
            memory.store(cells)
        else:
            memory.cells = cells
        if memory.reports and not torch.compiler.is_compiling():
            check_names(
                memory.reports, self.flodl_flow.reports, self.flodl_plan, memory.trace_owners
            )
        return output

    def forward_multi(self, inputs: Sequence[Any]) -> Any:
        """Run the flow on a list of all inputs, in the order of ``input_names``."""
        return self(*inputs)

    def _title(self) -> str:
        return f"graph {self.flodl_plan.label!r}" if self.flodl_plan.label else "the graph"

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> GraphBase:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call] # torch leaves it untyped
        memory = self.flodl_memory
        memory.cells = tuple(None if cell is None else fn(cell) for cell in memory.cells)
        memory.drop_values()
        for name, start in self._starts.items():
            if isinstance(start, torch.Tensor):
                self._starts[name] = fn(start)
        self.flodl_sums.move(self._device())
        self._version += 1
        return self

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        for generated in ("flodl_flow", "_run"):
            del state[generated]
        # Functions, timings and what a compiled call was specialized on belong to this process.
        state["_variants"] = {}
        state["flodl_clock"] = NodeClock()
        state["flodl_training"] = None
        state["flodl_sums"] = self.flodl_sums.fresh()
        state["_hash"], state["_hashed"] = None, []
        memory = Memory(0)
        memory.cells = tuple(
            None if cell is None else cell.detach() for cell in self.flodl_memory.cells
        )
        state["flodl_memory"] = memory
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._use_variant()
        own(self, self._slot_paths())

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module) and "_run" in self.__dict__:
            self.flodl_changed()

    def _slot_paths(self) -> Iterator[str]:
        return (slot.path for node in self.flodl_plan.nodes for slot in node.slots)

    def set_submodule(self, target: str, module: nn.Module, strict: bool = False) -> None:
        """Replace the module at a path; the next call uses it."""
        super().set_submodule(target, module, strict)
        steps = target.split(".")
        for length in range(len(steps)):
            holder = self.get_submodule(".".join(steps[:length]))
            if isinstance(holder, GraphBase):
                holder.flodl_changed()

    def flodl_changed(self) -> None:
        """Take note that a module in here was replaced: captured steps are outdated."""
        self._version += 1
        self._use_variant()

    def flodl_write_cells(self, cells: tuple[torch.Tensor | None, ...]) -> None:
        """Replace the state; a captured step is outdated when other cells are filled now."""
        before = self.flodl_memory.cells
        if self.flodl_memory.fixed:
            self.flodl_memory.store(cells)
            return
        if [cell is None for cell in before] != [cell is None for cell in cells]:
            self._version += 1
        self.flodl_memory.cells = cells

    def flodl_start_anew(self) -> None:
        """Forget the state; fixed cells are filled in place with what a first call would read."""
        memory = self.flodl_memory
        if not memory.fixed:
            memory.cells = (None,) * len(memory.cells)
            return
        with torch.no_grad():
            for cell, buffer in zip(self.flodl_plan.cells, memory.cells, strict=True):
                start = self._starts.get(cell.name)
                assert buffer is not None, "fixed cells are all filled"
                if isinstance(start, torch.Tensor):
                    buffer.copy_(start)
                else:
                    buffer.zero_()

    def flodl_observe(self, reductions: Mapping[str, str]) -> None:
        """Add the values of these tags up from now on, besides others; of none, stop it all."""
        chosen = {**dict(self._observed), **reductions} if reductions else {}
        self._observed = tuple(chosen.items())
        self.flodl_sums.begin(chosen, self._device())
        self._use_variant()
        self._version += 1

    def _device(self) -> torch.device:
        first = next(self.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def flodl_set_profiling(self, on: bool) -> None:
        """Run the code that times each node, or the code that does not."""
        if on != self._profiling:
            self._profiling = on
            self._use_variant()
            self._version += 1

    @property
    def flodl_starts(self) -> dict[str, Any]:
        """What begins each state cell that does not begin with zeros, by name."""
        return self._starts

    @property
    def flodl_is_profiling(self) -> bool:
        """Whether the code that runs times each node."""
        return self._profiling

    def flodl_set_exporting(self) -> None:
        """Run the code for exporters from now on, and keep no values of tags; for twins only."""
        self._exporting = True
        self._retained, self._observed = (), ()
        self._use_variant()

    def flodl_set_tracing(self, around: Callable[[Any], Callable[..., Any]]) -> None:
        """Run changed code that keeps no values of tags from now on; for twins only."""
        self._retained, self._observed = (), ()
        self._use_variant()
        self._run = around(self._run)

    def flodl_set_outlining(self, recorder: Callable[[str, Any], None]) -> None:
        """Show each node's output to a recorder from now on; for twins without memory only."""
        self.flodl_recorder = recorder
        self._observed = ()
        self._use_variant()

    def flodl_fix_cells(self, cells: tuple[torch.Tensor | None, ...] | None) -> None:
        """Give state fixed buffers of these shapes; with ``None``, pass it from call to call.

        State that is there is kept; other state begins as before a first call.
        """
        memory = self.flodl_memory
        if cells is None:
            memory.fixed = False
        elif not memory.fixed:
            stored = memory.cells
            memory.cells = tuple(None if c is None else torch.empty_like(c.detach()) for c in cells)
            memory.fixed = True
            self.flodl_start_anew()
            memory.store(stored)
        self._version += 1

    def flodl_collect_timings(self) -> None:
        """Add the seconds of all tags in the last profiled call to this epoch."""
        times = self.flodl_clock.times()
        for tag in self.flodl_plan.tags:
            if tag.port.node in times:
                self.flodl_clock.history.add(tag.name, times[tag.port.node][1])

    @property
    def version(self) -> int:
        """Number that grows whenever a captured step of this graph would be out of date.

        It grows when a graph nested in this one changes, too.
        """
        return sum(m.own_version for m in self.modules() if isinstance(m, GraphBase))

    @property
    def own_version(self) -> int:
        """The same number without the graphs nested in this one."""
        return self._version

    @property
    def label(self) -> str | None:
        """Name under which a parent graph addresses this one."""
        return self.flodl_plan.label

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, entry first."""
        return self.flodl_plan.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs; empty when a call returns the stream."""
        return tuple(name for name, _ in self.flodl_plan.outputs if name)

    @property
    def code(self) -> str:
        """Source of the generated forward."""
        return self.flodl_flow.source

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """What each step is, in the order of computation."""
        return node_infos(self.flodl_plan, self.get_submodule)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """How steps are connected: by stream, reference, or state from the previous call."""
        return self.flodl_plan.edges()

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Node ids by level: the nodes of a level do not depend on each other."""
        by_level: dict[int, list[str]] = {}
        for node_id, level in levels(self.flodl_plan).items():
            by_level.setdefault(level, []).append(node_id)
        return tuple(tuple(by_level[level]) for level in sorted(by_level))

    @property
    def structural_hash(self) -> str:
        """SHA-256 of the architecture, 64 hex digits, the same in every process."""
        present = list(self.modules())
        known = [reference() for reference in self._hashed]
        # Layers may be swapped anywhere within, without this graph being told.
        if self._hash is None or list(map(id, known)) != list(map(id, present)):
            self._hash = self._stable_hash()
        return self._hash or structural_hash(self.flodl_plan, self.get_submodule)

    def _stable_hash(self) -> str | None:
        """Return the hash, or ``None`` while lazy parameters still wait for their shapes."""
        if any(map(is_lazy, [*self.parameters(), *self.buffers()])):
            return None
        self._hashed = list(map(weakref.ref, self.modules()))
        return structural_hash(self.flodl_plan, self.get_submodule)

    @property
    def short_hash(self) -> str:
        """First eight digits of the structural hash."""
        return self.structural_hash[:8]

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that require gradients."""
        return (parameter for parameter in self.parameters() if parameter.requires_grad)
