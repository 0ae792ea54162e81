"""Part of Graph: the values of tags after a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flodl.core.errors import GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.paths import PathKind, find

if TYPE_CHECKING:
    from collections.abc import Iterable


class Tags(GraphBase):
    """Reads what tags held in the last call."""

    @property
    def tag_names(self) -> tuple[str, ...]:
        """Names of the tags, in the order in which the flow declared them."""
        return tuple(tag.name for tag in self.flodl_plan.tags)

    def tag_group(self, name: str) -> tuple[str, ...]:
        """Return the tags that a group stands for.

        Raises:
            GraphPathError: No such group.
        """
        groups = dict(self.flodl_plan.groups)
        if name not in groups:
            raise GraphPathError(
                f"tag_group({name!r}): no such group", hint=suggestion(name, groups)
            )
        return groups[name]

    def tagged(self, name: str) -> Any:
        """Return the value a tag had in the last call, history included.

        ``None`` before the first call, when the tag is not retained, or when the graph was moved
        since. In a captured step it is valid until the next one: clone it to keep it.

        Raises:
            GraphPathError: No such tag (also a ``KeyError``).
        """
        self._check_tags([name], f"tagged({name!r})")
        return value_of(self, name)

    def tagged_at(self, path: str) -> Any:
        """Return the value of a tag at a path; ``None`` when it was not computed yet.

        Raises:
            GraphPathError: The path leads nowhere, or to no tag.
        """
        place = find(self, path)
        if place.kind is not PathKind.TAG:
            raise GraphPathError(
                f"tagged_at({path!r}): that is a {place.kind}",
                hint="name a tag in it" if place.kind is PathKind.SUBGRAPH else "use traces_at()",
            )
        return value_of(place.graph, place.name)

    def set_retained(self, names: Literal["all", "none"] | Iterable[str]) -> None:
        """Choose whose values are kept after a call: ``"all"`` (the default), ``"none"``, or names.

        Raises:
            GraphPathError: No such tag.
        """
        if names == "all":
            chosen = set(self.tag_names)
        elif names == "none":
            chosen = set()
        else:
            chosen = {names} if isinstance(names, str) else set(names)
            self._check_tags(sorted(chosen), "set_retained")
        self._retained = tuple(name for name in self.tag_names if name in chosen)
        self._use_variant()
        self._version += 1

    def _check_tags(self, names: Iterable[str], call: str) -> None:
        for name in names:
            if name not in self.tag_names:
                raise GraphPathError(
                    f"{call}: no tag {name!r}", hint=suggestion(name, self.tag_names)
                )


def value_of(graph: GraphBase, tag: str) -> Any:
    """Return the retained value of a tag that exists, or ``None``."""
    retained, values = graph.flodl_flow.retained, graph.flodl_memory.tagged
    return values[retained.index(tag)] if values and tag in retained else None
