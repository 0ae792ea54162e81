"""Part of Graph: as a pure function, a torch.export program, a torch.fx graph, an ONNX file."""

from __future__ import annotations

import importlib.util
import keyword
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from flodl.core.errors import ExportError, GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.fx import STATE, traced
from flodl.graph.naming import suggestion
from flodl.graph.twin import twin_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor


class PureCall(Protocol):
    """A graph as a function: what it carries from call to call goes in and comes out."""

    def __call__(self, *inputs: Any, state: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """Return the output, and the state after the call by name."""
        ...


class Export(GraphBase):
    """Gives the graph away in other forms."""

    def pure(self) -> PureCall:
        """Return the graph as a function of its inputs and its state.

        State of nested graphs is lifted under its path; names left out start anew. The function
        neither reads nor changes the state, tags or traces of the graph, so threads may share
        it. It uses the graph's parameters and buffers.
        """

        def call(*inputs: Any, state: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
            lifted = _Lifted(twin_of(self))
            lifted.check_names(state)
            return lifted(*inputs, state=state)  # type: ignore[no-any-return] # _Lifted.forward

        return call

    def export(self, example: Any, *, dynamic_shapes: Any = None) -> torch.export.ExportedProgram:
        """Return the graph as a program of ``torch.export``.

        A graph with state becomes ``(*inputs, state) -> (output, state)``, ``state`` a dictionary
        by name. A switch that reads its index becomes ``torch.cond``, a loop that reads its
        condition ``while_loop``.

        Args:
            example: An input, or a tuple of all inputs.
            dynamic_shapes: For each input, in a sequence or by name, which of its sizes vary, as
                ``torch.export.export`` takes it. Those of state follow.

        Raises:
            ExportError: Something cannot be exported; the message names the node.
        """
        inputs = example if isinstance(example, tuple) else (example,)
        _check_names(self)
        twin = twin_of(self)
        for module in twin.modules():
            if isinstance(module, GraphBase):
                module.flodl_set_exporting()
        state = _example_state(self, inputs)
        target: nn.Module = _Lifted(twin) if state else _Plain(twin)
        try:
            return torch.export.export(
                target,
                inputs,
                {"state": state} if state else None,
                dynamic_shapes=_shapes(dynamic_shapes, self.input_names, state),
                strict=False,
            )
        except Exception as error:
            node = getattr(error, "flodl_node", None)
            where = f" at node {node}" if node else ""
            raise ExportError(
                f"the graph cannot be exported{where}: {error}",
                hint="use mode='masked' for loops and mode='dense' for switches, and modules that "
                "torch.export accepts",
            ) from error

    def to_fx(self) -> torch.fx.GraphModule:
        """Return the graph as a ``torch.fx.GraphModule`` over the same modules.

        Each module and each function of a construct is one node; nested graphs are inlined, loops
        unrolled. A graph with state takes it as last argument, a dictionary as for ``pure``, and
        returns ``(output, state)``.

        Raises:
            ExportError: A step depends on values or sizes; the message names it.
        """
        has_state = any(inner.flodl_plan.cells for _, inner in _graphs(self))
        names = [*self.input_names, STATE] if has_state else self.input_names
        try:
            return traced(self, _with_state if has_state else _without_state, names)
        except Exception as error:
            node = getattr(error, "flodl_node", None)
            where = f" at node {node}" if node else ""
            raise ExportError(
                f"the graph cannot be traced{where}: {error}",
                hint="use mode='masked' for loops, mode='dense' for switches, .batched() for maps",
            ) from error

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        example: Any,
        *,
        dynamic_shapes: Any = None,
        opset: int | None = None,
    ) -> None:
        """Write the graph as an ONNX file, with its state as further inputs and outputs.

        Reading ONNX is not offered.

        Args:
            path: The file.
            example: An input, or a tuple of all inputs.
            dynamic_shapes: As for ``export``.
            opset: Version of the operator set; by default torch's choice.

        Raises:
            ExportError: The packages are missing, or something cannot be exported.
        """
        missing = [name for name in ("onnx", "onnxscript") if not importlib.util.find_spec(name)]
        if missing:
            raise ExportError(
                f"to_onnx() needs {' and '.join(missing)}", hint="pip install 'flodl[onnx]'"
            )
        program = self.export(example, dynamic_shapes=dynamic_shapes)
        written = torch.onnx.export(program, opset_version=opset, dynamo=True, verbose=False)
        if written is None:
            raise ExportError("torch.onnx.export wrote no program")
        written.save(path)


def _check_names(graph: GraphBase) -> None:
    """Refuse paths that the code of an exported program cannot spell."""
    for path, _ in graph.named_modules():
        words = [part for part in path.split(".") if keyword.iskeyword(part)]
        if words:
            raise ExportError(
                f"the graph cannot be exported: {words[0]!r} in {path!r} is a keyword of Python",
                hint="give that step another tag, or a key= of its own",
            )


def _shapes(given: Any, names: tuple[str, ...], state: Mapping[str, Tensor]) -> Any:
    """Return what torch needs for arguments that have no names of their own."""
    if given is None:
        return None
    if isinstance(given, dict):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ExportError(
                f"dynamic_shapes: {unknown[0]!r} is no input", hint=suggestion(unknown[0], names)
            )
        given = [given.get(name) for name in names]
    if len(given) != len(names):
        raise ExportError(
            f"dynamic_shapes: {len(given)} entries for the inputs {', '.join(names)}",
            hint="give one for each input, None where no size varies",
        )
    shapes: dict[str, Any] = {"inputs": tuple(given)}
    if state:
        automatic = torch.export.Dim.AUTO
        shapes["state"] = {
            name: dict.fromkeys(range(value.dim()), automatic) for name, value in state.items()
        }
    return shapes


class _Plain(nn.Module):
    """A graph without state as the root of an exported program."""

    def __init__(self, graph: GraphBase) -> None:
        super().__init__()
        self.model = graph

    def forward(self, *inputs: Any) -> Any:
        return self.model(*inputs)


class _Lifted(nn.Module):
    """A graph whose state is passed in and out."""

    def __init__(self, graph: GraphBase) -> None:
        super().__init__()
        self.model = graph

    def check_names(self, state: Mapping[str, Tensor]) -> None:
        """Refuse state that the graph does not have."""
        names = [
            f"{path}{cell.name}"
            for path, graph in _graphs(self.model)
            for cell in graph.flodl_plan.cells
        ]
        for name in state:
            if name not in names:
                raise GraphPathError(f"no state {name!r}", hint=suggestion(name, names))

    def forward(self, *inputs: Any, state: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        return _with_state(self.model, *inputs, state)


def _without_state(twin: GraphBase, *inputs: Any) -> Any:
    return twin(*inputs)


def _with_state(twin: GraphBase, *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
    *values, state = inputs
    for path, graph in _graphs(twin):
        cells = graph.flodl_plan.cells
        graph.flodl_memory.cells = tuple(state.get(f"{path}{cell.name}") for cell in cells)
    output = twin(*values)
    after = {
        f"{path}{cell.name}": value
        for path, graph in _graphs(twin)
        for cell, value in zip(graph.flodl_plan.cells, graph.flodl_memory.cells, strict=True)
        if value is not None
    }
    return output, after


def _graphs(root: GraphBase) -> list[tuple[str, GraphBase]]:
    return [
        (f"{path}." if path else "", module)
        for path, module in root.named_modules()
        if isinstance(module, GraphBase)
    ]


def _example_state(graph: GraphBase, inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """Return zeros shaped like the state after a call; empty for a graph without state."""
    if not any(inner.flodl_plan.cells for _, inner in _graphs(graph)):
        return {}
    lifted = _Lifted(twin_of(graph).eval())
    with torch.no_grad():
        _, state = lifted(*inputs, state={})
    return {name: torch.zeros_like(value) for name, value in state.items()}
