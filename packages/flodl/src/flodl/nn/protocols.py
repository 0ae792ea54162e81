"""Optional module methods that a graph recognizes, as protocols users may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@runtime_checkable
class NamedInputModule(Protocol):
    """Takes the references of ``using`` as one mapping, apart from its plain ``forward``.

    A graph calls this method directly, so forward hooks do not run on this path. A module may
    also define ``as_named_input()``, returning the object whose ``forward_named`` is to be used,
    or ``None`` to opt out.
    """

    def forward_named(self, x: Tensor, refs: Mapping[str, Tensor]) -> Tensor:
        """Return the output for stream ``x`` and the references by name."""
        ...


@runtime_checkable
class DetachableState(Protocol):
    """Keeps tensors between calls and can cut their gradient history."""

    def detach_state(self) -> None:
        """Detach every retained tensor in place."""
        ...


@runtime_checkable
class Resettable(Protocol):
    """Keeps state between calls and can forget it.

    ``flodl_stateful`` must be true: a method that merely happens to be called ``reset`` is never
    called by a graph.
    """

    flodl_stateful: bool

    def reset(self) -> None:
        """Forget all state, as before the first call."""
        ...


@runtime_checkable
class HasStructuralHash(Protocol):
    """Knows the SHA-256 of its own architecture."""

    @property
    def structural_hash(self) -> str:
        """64 hex digits."""
        ...


@runtime_checkable
class HasGraph(Protocol):
    """Wraps a graph: a task head, for instance."""

    @property
    def graph(self) -> Any:
        """The wrapped graph."""
        ...


def wants_reset(module: object) -> bool:
    """Return whether ``module`` is declared to hold state that ``reset`` forgets."""
    return isinstance(module, Resettable) and module.flodl_stateful is True
