"""Part of Graph: how long each node takes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from flodl.core.errors import GraphPathError, NoDataError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.profiling import NodeTiming, Profile, make_profile
from flodl.graph.schedule import levels
from flodl.metrics.trend import Trend, TrendGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Timing(GraphBase):
    """Times nodes while profiling is on; off, it costs nothing, because other code runs.

    On CUDA the times are those of the device, read after one synchronization in ``profile``.
    """

    def enable_profiling(self) -> None:
        """Time every node from the next call on, here and in all graphs within."""
        self._profile_all(True)

    def disable_profiling(self) -> None:
        """Stop timing; what the last profiled call took stays readable."""
        self._profile_all(False)

    @property
    def profiling(self) -> bool:
        """Whether nodes are timed."""
        return self._profiling

    @contextlib.contextmanager
    def profiling_run(self) -> Iterator[Timing]:
        """Time the calls in the block; profiling is as before afterwards."""
        before = self._profiling
        self._profile_all(True)
        try:
            yield self
        finally:
            self._profile_all(before)

    def profile(self, *, deep: bool = False) -> Profile:
        """Return where the time of the last profiled call went.

        Args:
            deep: Also split nodes that are graphs.

        Raises:
            NoDataError: Nothing was profiled yet.
        """
        if self.flodl_clock.is_empty:
            raise NoDataError(
                "profile: no call was profiled yet",
                hint="enable_profiling(), then call the graph",
            )
        children = self._profiles_within() if deep else {}
        tags: dict[str, str] = {}
        for tag in self.flodl_plan.tags:
            tags.setdefault(tag.port.node, tag.name)
        return make_profile(self.flodl_clock.times(), levels(self.flodl_plan), tags, children)

    def timing(self, tag: str) -> float:
        """Return the seconds of the node that a tag names in the last profiled call, 0.0 if none.

        Raises:
            GraphPathError: No such tag.
        """
        node = self._node_of(tag)
        return self.flodl_clock.times().get(node, (0.0, 0.0, 0.0))[1]

    def collect_timings(self, *tags: str) -> None:
        """Add the seconds of the last profiled call to this epoch; by default of all tags.

        Raises:
            GraphPathError: No such tag.
        """
        groups = dict(self.flodl_plan.groups)
        chosen = tags or tuple(tag.name for tag in self.flodl_plan.tags)
        for tag in (one for name in chosen for one in groups.get(name, (name,))):
            node = self._node_of(tag)
            if node in self.flodl_clock.times():
                self.flodl_clock.history.add(tag, self.timing(tag))

    def flush_timings(self, *tags: str) -> None:
        """Append the mean seconds of this epoch to the history; by default of everything."""
        self.flodl_clock.history.flush(tags or None, list)

    def timing_trend(self, tag: str) -> Trend:
        """Return the epoch means of a tag's seconds."""
        return self.flodl_clock.history.trend(tag)

    def timing_trends(self, tags: Iterable[str]) -> TrendGroup:
        """Return several of them to ask together."""
        return TrendGroup([self.timing_trend(tag) for tag in tags])

    def reset_timing_trend(self, *tags: str) -> None:
        """Forget the history of tags' seconds."""
        self.flodl_clock.history.reset(tags)

    def _profile_all(self, on: bool) -> None:
        for path, module in self.named_modules():
            if isinstance(module, GraphBase):
                module.flodl_clock.path = path or self.label or "graph"
                module.flodl_set_profiling(on)

    def _profiles_within(self) -> dict[str, tuple[NodeTiming, ...]]:
        found = {}
        for node in self.flodl_plan.nodes:
            for module in self.flodl_modules_of(node).values():
                if isinstance(module, Timing) and not module.flodl_clock.is_empty:
                    found[node.id] = module.profile(deep=True).nodes
        return found

    def _node_of(self, tag: str) -> str:
        nodes = {item.name: item.port.node for item in self.flodl_plan.tags}
        if tag not in nodes:
            raise GraphPathError(f"timing({tag!r}): no such tag", hint=suggestion(tag, nodes))
        return nodes[tag]
