"""Where in a graph an exception came from: one note per graph it passes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.graph.nodes.base import described, scratch

if TYPE_CHECKING:
    from types import FrameType

    from torch import nn

    from flodl.graph.emit import Flow
    from flodl.graph.ir import Node, Plan, Port

_LONGEST_REPR = 200


def annotate(error: Exception, flow: Flow, plan: Plan, graph: nn.Module) -> None:
    """Add a note that names the node, its module and its inputs; nothing if no node failed.

    ``error.flodl_node`` becomes the path of node ids, outermost graph first. Only called when
    something has failed, so a flow that works pays nothing for it.
    """
    found = _failing_frame(error, flow)
    if found is None:
        return
    frame, line = found
    node = next((item for item in plan.nodes if item.id == flow.node_of_line.get(line)), None)
    if node is None:
        return
    inner = getattr(error, "flodl_node", None)
    path = f"{node.id}.{inner}" if inner else node.id
    error.flodl_node = path  # type: ignore[attr-defined] # documented on the exception
    error.add_note(_note(node, flow, plan, graph, frame))
    picked = node.attr("out") if node.op == "module" else None
    if picked is not None and inner is None and isinstance(error, KeyError | IndexError):
        error.add_note(
            f"  hint: out={picked!r} picks from what the module returns: "
            "an index of a tuple, a key of a dictionary"
        )


def _failing_frame(error: Exception, flow: Flow) -> tuple[FrameType, int] | None:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is flow.code:
            return trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return None


def _note(node: Node, flow: Flow, plan: Plan, graph: nn.Module, frame: FrameType) -> str:
    where = f"graph {plan.label!r}" if plan.label else "graph"
    tags = "".join(f" #{tag.name}" for tag in plan.tags if tag.port.node == node.id)
    step = frame.f_locals.get(scratch(node, "step")) if node.op == "loop" else None
    iteration = "" if step is None else f" (iteration {step})"
    lines = [f"in {where}, node {node.id}{tags}{iteration}: {_module_text(node, graph)}"]
    arguments = {
        item.id: f"argument {item.attr('name')}" for item in plan.nodes if item.op == "input"
    }

    def source_text(port: Port) -> str:
        return arguments.get(port.node, port.node)

    sources = [("input", port) for port in node.inputs]
    sources += [(f"reference {ref.keyword}", ref.port) for ref in node.refs]
    for name, port in sources:
        value = frame.f_locals.get(flow.variables[port])
        lines.append(f"  {name} from {source_text(port)}: {described(value)}")
        if isinstance(value, tuple | dict):
            keys = "0" if isinstance(value, tuple) else repr(next(iter(value), ""))
            lines.append(f"  hint: {port.node} returns several values: pick one with out={keys}")
    return "\n".join(lines)


def _module_text(node: Node, graph: nn.Module) -> str:
    if not node.slots:
        return node.op
    text = ", ".join(_short_repr(graph.get_submodule(slot.path)) for slot in node.slots)
    return text if len(text) <= _LONGEST_REPR else text[:_LONGEST_REPR] + "…"


def _short_repr(module: nn.Module) -> str:
    """The repr of a module, its children left out."""
    first, *more = repr(module).split("\n")
    return f"{first}…)" if more else first
