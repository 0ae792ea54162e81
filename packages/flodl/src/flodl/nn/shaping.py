"""Small modules for data flow: reshape, add references, cut gradients, wrap a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from flodl.core.errors import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def add_references(x: Tensor, refs: Mapping[str, Tensor] | None, owner: str) -> Tensor:
    """Return ``x`` plus all references.

    Raises:
        NodeError: A reference has another shape than ``x``; it is never broadcast.
    """
    for name, value in (refs or {}).items():
        if value.shape != x.shape:
            raise NodeError(
                f"{owner}: reference {name!r} has shape {tuple(value.shape)}, "
                f"the stream has {tuple(x.shape)}",
                hint="bring the reference to the stream's shape on the step that is tagged",
            )
        x = x + value
    return x


class Reshape(nn.Module):
    """Gives its input another shape with the same number of elements; one size may be -1."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` in the shape given at construction, batch dimension included."""
        return x.reshape(self.shape)

    def flodl_attrs(self) -> dict[str, Any]:
        """Return what belongs to the structural hash."""
        return {"shape": list(self.shape)}

    def get_config(self) -> dict[str, Any]:
        """Return what ``from_config`` makes it of."""
        return {"shape": list(self.shape)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Reshape:
        """Return a module of the shape in a configuration."""
        return cls(*config["shape"])

    def extra_repr(self) -> str:
        """Return the shape for ``repr``."""
        return ", ".join(map(str, self.shape))


class StateAdd(nn.Module):
    """Adds every reference bound with ``using`` to the stream; all shapes must be equal.

    With a forward reference this is the simplest recurrence: ``x_t + state_{t-1}``.
    """

    def forward(self, x: Tensor, refs: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return ``x`` plus all references.

        Raises:
            NodeError: A reference has another shape than the stream; it is never broadcast.
        """
        return add_references(x, refs, "StateAdd")


class Detach(nn.Module):
    """Passes its input on and stops gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` without its gradient history."""
        return x.detach()


class Lambda(nn.Module):
    """Makes a module of a plain callable, named after it.

    A graph wraps callables by itself. A model that is pickled needs an importable function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn
        self.flodl_name = getattr(fn, "__name__", type(fn).__name__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the callable returns."""
        return self.fn(*args, **kwargs)

    def flodl_attrs(self) -> dict[str, Any]:
        """Return what belongs to the structural hash."""
        return {"fn": self.flodl_name}

    def extra_repr(self) -> str:
        """Return the callable's name for ``repr``."""
        return self.flodl_name
