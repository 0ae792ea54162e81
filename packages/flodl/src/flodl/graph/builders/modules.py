"""What may be a step of a flow, and how a module takes references."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.base import GraphBase
from flodl.graph.builders.handle import Handle
from flodl.graph.ir import CallStyle
from flodl.nn import Lambda, NamedInputModule

Step: TypeAlias = nn.Module | Callable[..., Any]

_FOUR_WAYS = (
    "give its forward a parameter refs (a dict of tensors), or a keyword parameter of that name, "
    "or a method forward_named(x, refs), or use a graph with .input() of that name"
)


def as_module(value: object, call: str) -> nn.Module:
    """Return a module, wrapping a plain callable.

    Raises:
        FlowError: It is a class, a builder, or nothing that can be called; ``call`` says who asked.
    """
    if isinstance(value, type):
        raise FlowError(
            f"{call}: {value.__name__} is a class, not a module",
            hint=f"make an instance: {value.__name__}(…)",
        )
    if isinstance(value, Handle):
        raise FlowError(
            f"{call}: got a {type(value).__name__} that is not built",
            hint="call .build() on it; a graph is a module",
        )
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise FlowError(
            f"{call}: {value!r} ({type(value).__name__}) is no module",
            hint="pass a torch.nn.Module or a function of one tensor; several modules are several "
            "arguments",
        )
    return Lambda(value)


def step_name(module: nn.Module) -> str:
    """Return the base of a node's id: ``flodl_name``, or the class name in lower case."""
    chosen = getattr(module, "flodl_name", None) or type(module).__name__.lower()
    name = re.sub(r"[^A-Za-z0-9_]", "", str(chosen))
    return name if name and not name[0].isdigit() else f"node{name}"


def call_style(module: nn.Module, keywords: list[str], call: str, node: str) -> CallStyle:
    """Return how a module takes references under these keywords.

    Raises:
        FlowError: It takes none, or not all of them.
    """
    if isinstance(module, GraphBase):
        return _style_of_graph(module, keywords, call, node)
    parameters = list(inspect.signature(module.forward).parameters.values())
    by_name = {parameter.name: parameter for parameter in parameters[1:]}
    if _takes_keyword(by_name.get("refs")):
        return CallStyle.REFS
    takes_any = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)
    if all(takes_any or _takes_keyword(by_name.get(name)) for name in keywords):
        return CallStyle.KEYWORDS
    if _offers_named_input(module):
        return CallStyle.NAMED
    unknown = [name for name in keywords if not _takes_keyword(by_name.get(name))]
    raise FlowError(
        f"{call}: {node} ({type(module).__name__}) takes no reference "
        f"{', '.join(map(repr, unknown))}",
        hint=_FOUR_WAYS,
    )


def _style_of_graph(graph: GraphBase, keywords: list[str], call: str, node: str) -> CallStyle:
    auxiliary = graph.input_names[1:]
    unknown = [name for name in keywords if name not in auxiliary]
    if unknown:
        raise FlowError(
            f"{call}: {node} is a graph without an auxiliary input "
            f"{', '.join(map(repr, unknown))}; it has: {', '.join(auxiliary) or 'none'}",
            hint="rename with using(input_name='tag'), or declare .input() in that graph",
        )
    return CallStyle.KEYWORDS


def _takes_keyword(parameter: inspect.Parameter | None) -> bool:
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return parameter is not None and parameter.kind in named


def _offers_named_input(module: nn.Module) -> bool:
    chooser = getattr(module, "as_named_input", None)
    target = module if chooser is None else chooser()
    return isinstance(target, NamedInputModule)
