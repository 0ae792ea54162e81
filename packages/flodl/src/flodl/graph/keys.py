"""Keys: where each node's modules stand in the graph, and so what ``state_dict`` calls them."""

from __future__ import annotations

import dataclasses
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from flodl.core.errors import FlowError
from flodl.graph.ir import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flodl.graph.ir import Node, Tag


class Owner(Protocol):
    """What a namespace belongs to: the graph whose code looks modules up in it."""

    def flodl_changed(self) -> None:
        """Take note that a module was replaced."""
        ...


class Namespace(nn.Module):
    """An empty module that only holds others, made for the dots of a key.

    Libraries that swap layers set attributes of whatever holds them, so it tells its graph.
    """

    flodl_owner: weakref.ref[Owner] | None

    def __init__(self) -> None:
        super().__init__()
        self.flodl_owner = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        owner = self.__dict__.get("flodl_owner")
        if owner is not None and isinstance(value, nn.Module):
            graph = owner()
            if graph is not None:
                graph.flodl_changed()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "flodl_owner": None}


def with_keys(
    nodes: Sequence[Node],
    modules: Mapping[str, Mapping[str, nn.Module]],
    *,
    requested: Mapping[str, str],
    tags: Iterable[Tag],
    labels: Mapping[str, str],
    root: type[nn.Module],
) -> tuple[tuple[Node, ...], dict[str, nn.Module]]:
    """Give every node with modules its key: requested, else first tag, else label, else id.

    Args:
        nodes: In the order in which they were described.
        modules: By node id and slot.
        requested: ``key=`` by node id.
        tags: In the order of declaration.
        labels: Labels of nested graphs by node id.
        root: Class of the graph; its attributes cannot be keys and get a trailing underscore.

    Returns:
        The nodes with keys and paths, and each module once, at its first path.

    Raises:
        FlowError: Two modules would stand at one path.
    """
    tagged = _tagged_keys(nodes, tags)
    reserved = _attributes(root)
    placed: dict[str, nn.Module] = {}
    path_of: dict[nn.Module, str] = {}
    user_of: dict[str, str] = {}
    result = []
    for node in nodes:
        if node.id not in modules:
            result.append(node)
            continue
        wanted = requested.get(node.id) or tagged.get(node.id) or labels.get(node.id) or node.id
        key = _legal(wanted, reserved)
        slots = []
        for slot, module in modules[node.id].items():
            if module not in path_of:
                path = f"{key}.{slot}" if slot else key
                if path in placed:
                    raise FlowError(
                        f"{user_of[path]} and {node.id} both have the key {path!r}",
                        hint="give one of them another tag, or a key of its own with key=",
                    )
                placed[path], path_of[module], user_of[path] = module, path, node.id
            slots.append(Slot(slot, path_of[module]))
        result.append(dataclasses.replace(node, key=key, slots=tuple(slots)))
    _check_nesting(placed, user_of)
    return tuple(result), placed


def register(root: nn.Module, placed: Mapping[str, nn.Module]) -> None:
    """Put modules at their paths below ``root``; the missing steps between become namespaces."""
    for path, module in placed.items():
        *parents, name = path.split(".")
        place = root
        for parent in parents:
            if not hasattr(place, parent):
                place.add_module(parent, Namespace())
            place = place.get_submodule(parent)
        stand_in = getattr(place, name, None)
        if isinstance(stand_in, Namespace):
            # A longer key came first: its modules become children of this one.
            for child_name, child in stand_in.named_children():
                module.add_module(child_name, child)
            setattr(place, name, module)
        elif stand_in is not module:
            place.add_module(name, module)


def own(root: Owner, paths: Iterable[str]) -> None:
    """Let the namespaces on the way to these paths tell ``root`` of replaced modules."""
    reference = weakref.ref(root)
    assert isinstance(root, nn.Module), "graphs are modules"
    for path in paths:
        place: nn.Module | None = root
        for name in path.split(".")[:-1]:
            place = None if place is None else place._modules[name]  # noqa: SLF001 - as get_submodule
            if isinstance(place, Namespace):
                place.flodl_owner = reference


def _tagged_keys(nodes: Sequence[Node], tags: Iterable[Tag]) -> dict[str, str]:
    """Return the key that tags give; the tag of a residual's sum keys the modules in it."""
    owners = {node.id: node.owners for node in nodes}
    result: dict[str, str] = {}
    for tag in tags:
        main, *others = owners[tag.port.node] or (tag.port.node,)
        result.setdefault(main, tag.name)
        for other in others:
            result.setdefault(other, f"{tag.name}_skip")
    return result


def is_legal(path: str, root: type[nn.Module]) -> bool:
    """Return whether a path could be a key: no part of it hides an attribute."""
    return _legal(path, _attributes(root)) == path


def _legal(key: str, reserved: frozenset[str]) -> str:
    first, *rest = key.split(".")
    inner = _attributes(Namespace)
    parts = [_unreserved(first, reserved), *(_unreserved(part, inner) for part in rest)]
    return ".".join(parts)


def _unreserved(part: str, reserved: frozenset[str]) -> str:
    # torch finds submodules with getattr: a key like "train" would hide the method or be hidden.
    return f"{part}_" if part in reserved else part


def _attributes(module_class: type[nn.Module]) -> frozenset[str]:
    annotated = (vars(base).get("__annotations__", {}) for base in module_class.__mro__)
    return frozenset().union(dir(module_class), vars(nn.Module()), *annotated)


def _check_nesting(placed: Mapping[str, nn.Module], user_of: Mapping[str, str]) -> None:
    """Refuse a key below another node's key when that module already has the next part."""
    for path, module in placed.items():
        parts = path.split(".")
        for length in range(1, len(parts)):
            outer = placed.get(".".join(parts[:length]))
            part = parts[length]
            if outer is None:
                continue
            if not hasattr(outer, part):
                if isinstance(outer, nn.Sequential):
                    raise FlowError(
                        f"key {path!r} of {user_of[path]}: {'.'.join(parts[:length])!r} is a "
                        "Sequential, which would run whatever is put into it",
                        hint="choose another key, or wrap the Sequential in a module of your own",
                    )
                continue
            existing = getattr(outer, part)
            if isinstance(existing, Namespace) or existing is module:
                continue  # an earlier build of the same modules put it there
            raise FlowError(
                f"key {path!r} of {user_of[path]}: {type(outer).__name__} at "
                f"{'.'.join(parts[:length])!r} already has {part!r}",
                hint="choose another key",
            )
