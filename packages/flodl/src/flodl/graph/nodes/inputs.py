"""The arguments of a graph as nodes, so that tags and references treat them like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from flodl.core.errors import GraphInputError
from flodl.graph.nodes.base import Construct, Writer
from flodl.graph.nodes.schema import Schema, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flodl.graph.ir import Node


class Input(Construct):
    """An argument; its value already stands in a variable."""

    op = "input"
    schema: ClassVar[Schema] = {"name": text}

    def emit(self, node: Node, out: Writer) -> None:
        """Write nothing."""


def bound(
    names: Sequence[str], title: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments of a call in the order of the inputs.

    Raises:
        GraphInputError: Inputs are missing, too many or unknown.
    """
    given = dict(zip(names, args, strict=False))
    twice = [name for name in kwargs if name in given]
    unknown = [name for name in kwargs if name not in names]
    given.update(kwargs)
    missing = [name for name in names if name not in given]
    if len(args) > len(names) or twice or unknown or missing:
        problems = [f"{len(args)} positional values"] if len(args) > len(names) else []
        problems += [f"{name!r} given twice" for name in twice]
        problems += [f"{name!r} is no input" for name in unknown]
        problems += [f"{name!r} is missing" for name in missing]
        raise GraphInputError(
            f"{title} takes ({', '.join(names)}): {'; '.join(problems)}",
            hint="an input without a value is given as None",
        )
    return tuple(given[name] for name in names)
