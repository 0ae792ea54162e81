"""Part of Graph: graphs nested in graphs, addressed by dotted paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flodl.core.errors import FlowError, GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.paths import PathKind, Place, children_of, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn


class Tree(GraphBase):
    """Finds, freezes and counts what lies at a path.

    A path names labeled graphs, separated by dots, and at its end a graph, or a tag of the last
    one. Nothing here changes the generated code, so none of it costs a call anything.
    """

    def validate_path(self, path: str) -> PathKind:
        """Return what a path leads to.

        Raises:
            GraphPathError: It leads nowhere; the message names the segment that failed.
        """
        return find(self, path).kind

    def tree_children(self) -> dict[str, GraphBase]:
        """Return the labeled graphs one level below, by label, in build order."""
        return children_of(self)

    def child_graph(self, label: str) -> GraphBase | None:
        """Return the labeled graph one level below, or ``None``."""
        return children_of(self).get(label)

    def subgraph(self, path: str) -> GraphBase:
        """Return the graph at a path.

        Raises:
            GraphPathError: The path leads nowhere, or to a tag.
        """
        place = find(self, path)
        if place.kind is not PathKind.SUBGRAPH:
            raise GraphPathError(
                f"subgraph({path!r}): that is a {place.kind}",
                hint=suggestion(place.name, children_of(place.graph)),
            )
        return place.graph

    @property
    def is_composed(self) -> bool:
        """Whether this graph was built into another one."""
        return self.flodl_is_composed

    @property
    def internal_tags(self) -> tuple[str, ...]:
        """Names of the tags that parent graphs cannot see."""
        return tuple(tag.name for tag in self.flodl_plan.tags if tag.internal)

    def parameters_at(self, path: str) -> list[nn.Parameter]:
        """Return the parameters at a path: of a graph, or of the step that a tag names.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        return [parameter for _, parameter in self.named_parameters_at(path)]

    def named_parameters_at(self, path: str) -> list[tuple[str, nn.Parameter]]:
        """Return parameters with their names in the graph that the path leads to, or into.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        found: list[tuple[str, nn.Parameter]] = _named(
            find(self, path), lambda module: module.named_parameters()
        )
        return found

    def named_buffers_at(self, path: str) -> list[tuple[str, Tensor]]:
        """Return buffers with their names in the graph that the path leads to, or into.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        found: list[tuple[str, Tensor]] = _named(
            find(self, path), lambda module: module.named_buffers()
        )
        return found

    def trainable_groups(self, options: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return parameter groups for a torch optimizer, frozen parameters left out.

            AdamW(model.trainable_groups({"encoder": {"lr": 1e-5}, "head": {"lr": 1e-3}}))

        Raises:
            GraphPathError: A path leads nowhere.
            FlowError: Two paths share parameters.
        """
        owner: dict[nn.Parameter, str] = {}
        groups = []
        for path, settings in options.items():
            parameters = [item for item in self.parameters_at(path) if item.requires_grad]
            for parameter in parameters:
                if parameter in owner:
                    raise FlowError(
                        f"trainable_groups: {owner[parameter]!r} and {path!r} share parameters",
                        hint="choose paths of which none contains another",
                    )
                owner[parameter] = path
            groups.append({"params": parameters, **settings})
        return groups

    # ------------------------------------------------------------- training phases

    def freeze(self, path: str, *, pin_eval: bool = False, allow_empty: bool = False) -> None:
        """Stop training what lies at a path; gradients that are still there are dropped.

        Args:
            path: A graph, or a tag for the step it names.
            pin_eval: Also put it in evaluation mode and keep it there, whatever ``train()`` says:
                batch statistics stop moving.
            allow_empty: Accept a path without parameters.

        Raises:
            GraphPathError: The path leads nowhere, or to nothing that has parameters.
        """
        parameters = self.parameters_at(path)
        if not parameters and not allow_empty:
            raise GraphPathError(
                f"freeze({path!r}): there are no parameters",
                hint="pass allow_empty=True if that is meant",
            )
        for parameter in parameters:
            parameter.requires_grad_(False)
            # An optimizer would still apply a gradient of the step before.
            parameter.grad = None
        if pin_eval:
            self.set_training_at(path, False, pin=True)
        self._version += 1

    def thaw(self, path: str) -> None:
        """Train what lies at a path again, and lift its pin and the pins in it.

        Inside a larger pinned part it keeps that part's mode.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        place = find(self, path)
        for parameter in self.parameters_at(path):
            parameter.requires_grad_(True)
        was_pinned = [_unpin(module, place) for module in _modules_at(place)]
        if any(was_pinned):
            for module in _modules_at(place):
                module.train(self._mode_around(path))
        self._version += 1

    def is_frozen(self, path: str) -> bool:
        """Return whether no parameter at a path requires gradients; ``False`` if it has none.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        parameters = self.parameters_at(path)
        return bool(parameters) and not any(item.requires_grad for item in parameters)

    def set_training_at(self, path: str, mode: bool, *, pin: bool = False) -> None:
        """Put what lies at a path in training or evaluation mode.

        Args:
            path: A graph, or a tag for the step it names.
            mode: ``True`` for training.
            pin: Keep that mode when ``train()`` or ``eval()`` is called on the graph or on what it
                is in, until ``thaw`` or another call of this.

        Raises:
            GraphPathError: The path leads nowhere.
        """
        place = find(self, path)
        if place.kind is PathKind.SUBGRAPH:
            place.graph.flodl_pin = mode if pin else None
        for slot_path in _slot_paths(place):
            place.graph.flodl_pins.pop(slot_path, None)
            if pin:
                place.graph.flodl_pins[slot_path] = mode
        for module in _modules_at(place):
            module.train(mode)
        self._version += 1

    def train(self, mode: bool = True) -> Tree:
        """Set training mode, except for what is pinned."""
        super().train(mode if self.flodl_pin is None else self.flodl_pin)
        for path, pinned in self.flodl_pins.items():
            self.get_submodule(path).train(pinned)
        return self

    def _mode_around(self, path: str) -> bool:
        """Return the mode of the innermost pinned graph around a path, else this graph's own."""
        mode, graph = self.training, self
        for segment in path.split(".")[:-1]:
            graph = children_of(graph)[segment]  # type: ignore[assignment] # a GraphBase will do
            if graph.flodl_pin is not None:
                mode = graph.flodl_pin
        return mode


def _slot_paths(place: Place) -> list[str]:
    """Return the paths of the modules of the step that a tag names, main module first."""
    if place.kind is PathKind.SUBGRAPH:
        return []
    plan = place.graph.flodl_plan
    port = next((tag.port for tag in plan.tags if tag.name == place.name), None)
    by_id = {node.id: node for node in plan.nodes}
    if port is None:
        return []
    owners = by_id[port.node].owners or (port.node,)
    return list(dict.fromkeys(slot.path for owner in owners for slot in by_id[owner].slots))


def _modules_at(place: Place) -> list[nn.Module]:
    if place.kind is PathKind.SUBGRAPH:
        return [place.graph]
    return [place.graph.get_submodule(path) for path in _slot_paths(place)]


def _named(place: Place, items: Callable[[nn.Module], Any]) -> list[Any]:
    if place.kind is PathKind.SUBGRAPH:
        return list(items(place.graph))
    found: dict[int, tuple[str, Any]] = {}
    for path in _slot_paths(place):
        for name, value in items(place.graph.get_submodule(path)):
            found.setdefault(id(value), (f"{path}.{name}", value))
    return list(found.values())


def _unpin(module: nn.Module, place: Place) -> bool:
    """Lift all pins of and in a module; return whether there were any."""
    found = False
    for path in _slot_paths(place):
        found |= place.graph.flodl_pins.pop(path, None) is not None
    for inner in module.modules():
        if isinstance(inner, GraphBase):
            found |= inner.flodl_pin is not None or bool(inner.flodl_pins)
            inner.flodl_pin = None
            inner.flodl_pins = {}
    return found
