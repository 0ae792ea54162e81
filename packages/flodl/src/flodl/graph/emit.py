"""Turns a plan into one straight-line Python function.

Only identifiers and literals made here and by the constructs enter the source; names that users
choose have been checked to be identifiers. The source is registered in ``linecache``, so a
traceback shows the line of the node that failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flodl.graph.ir import Port
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.profiling import TimedNode
from flodl.graph.schedule import last_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import CodeType

    from flodl.graph.ir import Attr, Node, Plan

# Names with a meaning in generated code, apart from those that _Emitter forms.
_RESERVED = frozenset({"self", "m", "flow", "range", "len"})
_OURS = re.compile(r"_.*|in\d+|.*_before|.*_o?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What one variant of the code does besides computing the output.

    Attributes:
        retained: Tags whose values it returns to be kept.
        observed: Tags whose values it adds up, and how each becomes a number.
        facts: By node id, what its construct found out about its present modules.
        profiling: Whether each node is timed.
        exporting: Whether decisions of the host become operators that an exporter can follow.
        outlining: Whether decisions are not asked for, and each output is shown to a recorder.
    """

    retained: tuple[str, ...] = ()
    observed: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, tuple[tuple[str, Attr], ...]], ...] = ()
    profiling: bool = False
    exporting: bool = False
    outlining: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """Generated code, ready to call.

    Attributes:
        function: ``(graph, *inputs, *cells) -> (output, tag values, new cells, reports)``.
        source: Its text.
        node_of_line: Node that each line number belongs to.
        variables: The variable that holds each port.
        retained: Names of the tag values, in the order returned.
        reports: Nodes whose reports are returned, in that order.
    """

    function: Callable[..., tuple[Any, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]
    source: str
    node_of_line: dict[int, str]
    variables: dict[Port, str]
    retained: tuple[str, ...]
    reports: tuple[str, ...]

    @property
    def code(self) -> CodeType:
        """The code object that tracebacks name."""
        code: CodeType = self.function.__code__
        return code


def compile_flow(plan: Plan, flags: Flags) -> Flow:
    """Write and compile the variant of a plan's code that ``flags`` ask for."""
    emitter = _Emitter(plan, flags)
    source = emitter.write()
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    filename = f"<flodl graph {digest}>"
    # No modification time: linecache.checkcache never drops the entry.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = dict(emitter.bound)
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - the source is ours
    return Flow(
        namespace["flow"],
        source,
        emitter.node_of_line,
        emitter.variables,
        flags.retained,
        tuple(emitter.reports),
    )


class _Emitter:
    """Collects lines; what constructs see of it is ``nodes.base.Writer``.

    Names never clash: node ids end in ``_<number>``, further outputs in ``_o<number>``, cells in
    ``_before``, helpers begin with ``_``, and an argument of such a name is called ``in<number>``.
    """

    def __init__(self, plan: Plan, flags: Flags) -> None:
        self.bound: dict[str, Callable[..., object]] = {}
        self.node_of_line: dict[int, str] = {}
        self.variables: dict[Port, str] = {}
        self.reports: dict[str, str] = {}
        self._facts = {node_id: dict(facts) for node_id, facts in flags.facts}
        self._plan = plan
        self._flags = flags
        self._lines: list[str] = []
        self._depth = 0
        self._node = ""

    def write(self) -> str:
        """Return the source of the whole function."""
        with self.block(f"def flow({', '.join(['self', *self._arguments()])}):"):
            self.line("m = self._modules")
            if self._flags.profiling:
                self.line("self.flodl_clock.restart()")
            dying = last_uses(self._plan, set(self._needed_at_the_end()))
            for node in self._plan.nodes:
                self._node = node.id
                with self._timing(node):
                    CONSTRUCTS[node.op].emit(node, self)
                if self._flags.outlining:
                    value = self.value(Port(node.id))
                    self.line(f"self.flodl_recorder({node.id!r}, {value})")
                self._free(dying.get(node.id, []))
            self._node = ""
            for (tag, reduce), port in zip(
                self._flags.observed, self._ports(self._observed), strict=True
            ):
                self.line(f"self.flodl_sums.add({tag!r}, {self.value(port)}, {reduce!r})")
            self.line(f"return {self._returned()}")
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        """Write one statement at the current depth."""
        self._lines.append("    " * self._depth + text)
        if self._node:
            self.node_of_line[len(self._lines)] = self._node

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write ``head`` and indent what follows in the ``with`` block."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def value(self, port: Port) -> str:
        """Return the variable that holds a port."""
        return self.variables[port]

    def result(self, node: Node, index: int = 0) -> str:
        """Return the variable to assign an output of the node to."""
        name = node.id if index == 0 else f"{node.id}_o{index}"
        return self.variables.setdefault(Port(node.id, index), name)

    def module(self, node: Node, slot: str = "") -> str:
        """Return the expression for the module in a slot, looked up at call time."""
        first, *rest = node.path(slot).split(".")
        return f"m[{first!r}]" + "".join(f"._modules[{part!r}]" for part in rest)

    def cell(self, name: str) -> str:
        """Return the variable that holds the stored value of a state cell."""
        return f"{name}_before"

    def bind(self, name: str, value: Callable[..., object]) -> str:
        """Make a function known to the generated code and return its name there."""
        self.bound[f"_{name}"] = value
        return f"_{name}"

    @property
    def exporting(self) -> bool:
        """Whether the code is for an exporter, which follows no decision of the host."""
        return self._flags.exporting

    @property
    def outlining(self) -> bool:
        """Whether values have shapes only, so that no decision can depend on them."""
        return self._flags.outlining

    def facts(self, node: Node) -> Mapping[str, Attr]:
        """Return what the construct found out about the node's present modules."""
        return self._facts.get(node.id, {})

    def report(self, node: Node, value: str) -> None:
        """Return a value to the graph after the call, besides the output."""
        self.reports[node.id] = value

    def _timing(self, node: Node) -> AbstractContextManager[None]:
        if self._flags.profiling and node.op != "input":
            timed = self.bind("timed", TimedNode)
            return self.block(f"with {timed}(self.flodl_clock, {node.id!r}):")
        return contextlib.nullcontext()

    def _arguments(self) -> list[str]:
        inputs = [node for node in self._plan.nodes if node.op == "input"]
        by_name = {str(node.attr("name")): node for node in inputs}
        for index, name in enumerate(self._plan.inputs):
            variable = name if _is_free(name) else f"in{index}"
            self.variables[Port(by_name[name].id)] = variable
        arguments = [self.variables[Port(by_name[name].id)] for name in self._plan.inputs]
        return arguments + [self.cell(cell.name) for cell in self._plan.cells]

    def _free(self, ports: list[Port]) -> None:
        # Without this a long flow would keep every intermediate value until it returns.
        if ports:
            self.line(f"del {', '.join(sorted(self.value(port) for port in ports))}")

    @property
    def _observed(self) -> list[str]:
        return [tag for tag, _ in self._flags.observed]

    def _ports(self, tags: Iterable[str]) -> list[Port]:
        ports = {tag.name: tag.port for tag in self._plan.tags}
        return [ports[name] for name in tags]

    def _needed_at_the_end(self) -> list[Port]:
        outputs = [port for _, port in self._plan.outputs]
        tags = self._ports([*self._flags.retained, *self._observed])
        return outputs + tags + [cell.writer for cell in self._plan.cells]

    def _returned(self) -> str:
        outputs = [(name, self.value(port)) for name, port in self._plan.outputs]
        if self._plan.has_named_outputs:
            output = "{" + ", ".join(f"{name!r}: {value}" for name, value in outputs) + "}"
        else:
            output = outputs[0][1]
        tags = _tuple([self.value(port) for port in self._ports(self._flags.retained)])
        cells = _tuple([self.value(cell.writer) for cell in self._plan.cells])
        return f"{output}, {tags}, {cells}, {_tuple(list(self.reports.values()))}"


def _tuple(values: list[str]) -> str:
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})"


def _is_free(name: str) -> bool:
    return name not in _RESERVED and _OURS.fullmatch(name) is None
