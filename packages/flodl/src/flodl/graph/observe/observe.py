"""Part of Graph: the values of tags after a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flodl.core.errors import GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable


class Observing(GraphBase):
    """Reads what tags held in the last call."""

    @property
    def tag_names(self) -> tuple[str, ...]:
        """Names of the tags, in the order in which the flow declared them."""
        return tuple(tag.name for tag in self.flodl_plan.tags)

    def tagged(self, name: str) -> Any:
        """Return the value a tag had in the last call, history included.

        ``None`` before the first call, when the tag is not retained, or when the graph was moved
        since.

        Raises:
            GraphPathError: No such tag (also a ``KeyError``).
        """
        self._check_tags([name], f"tagged({name!r})")
        retained = self.flodl_flow.retained
        values = self.flodl_memory.tagged
        return values[retained.index(name)] if values and name in retained else None

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
