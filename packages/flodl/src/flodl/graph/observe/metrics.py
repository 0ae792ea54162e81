"""Part of Graph: metrics from tags and from outside, batch by batch and epoch by epoch."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Literal

import torch

from flodl.core.errors import GraphPathError, NodeError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.observe.tags import value_of
from flodl.graph.paths import PathKind, children_of, find
from flodl.graph.sums import REDUCTIONS, reduced
from flodl.metrics.trend import Trend, TrendGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Reduction = Literal["mean", "sum", "max", "min", "norm"]


class Metrics(GraphBase):
    """Collects values of each batch, flushes their means once an epoch, and answers how they go.

    Tensors stay on their device until ``flush``, which waits for it once. The name of a tag group
    stands for its tags.
    """

    # ------------------------------------------------------------- within an epoch

    def collect(self, *tags: str) -> None:
        """Add the values that tags had in the last call; each must have one element.

        Raises:
            GraphPathError: No such tag.
            NodeError: Not computed yet, or more than one element.
        """
        for tag in self._known_tags(tags):
            _add_tag(self, tag, None)

    def collect_with(self, *tags: str, reduce: Reduction = "mean") -> None:
        """Add the values that tags had in the last call, each reduced to one number.

        Args:
            tags: Tags or groups.
            reduce: ``mean``, ``sum``, ``max``, ``min``, or ``norm``, the L2 norm. A value of one
                element is taken as it is.

        Raises:
            GraphPathError: No such tag.
            NodeError: Not computed yet, or empty.
        """
        _check_reduction(reduce, "collect_with")
        for tag in self._known_tags(tags):
            _add_tag(self, tag, reduce)

    def observe(self, *tags: str, reduce: Reduction = "mean") -> None:
        """Let every call from now on add the values of these tags up, until the next flush.

        Unlike ``collect`` it is part of the call, so that a captured step does it, too. Each call
        of this adds to what is observed; without tags nothing is observed any more.

        Args:
            tags: Tags or groups.
            reduce: As for ``collect_with``.

        Raises:
            GraphPathError: No such tag.
        """
        _check_reduction(reduce, "observe")
        names = self._known_tags(tags)
        known = [tag.name for tag in self.flodl_plan.tags]
        for name in names:
            if name not in known:
                raise GraphPathError(f"observe: no tag {name!r}", hint=suggestion(name, known))
        self.flodl_observe(dict.fromkeys(names, reduce))

    def collect_at(self, paths: str | Iterable[str]) -> None:
        """Add the values of tags at paths, each in the graph that has the tag.

        Raises:
            GraphPathError: A path leads nowhere, or to no tag.
            NodeError: As ``collect``.
        """
        for path in [paths] if isinstance(paths, str) else paths:
            graph, name = self._metric_place(path, "collect_at")
            _add_tag(graph, name, None)

    def record_scalar(self, name: str, value: float | torch.Tensor, weight: float = 1.0) -> None:
        """Add one value of a metric from outside, as a loss.

        Args:
            name: Any name without the label of a child before a dot.
            value: A number or a tensor of one element.
            weight: Its weight in the epoch's mean, such as the number of samples.

        Raises:
            GraphPathError: The name belongs to a child: use ``record_at``.
            NodeError: More than one element, or a weight that is none.
        """
        self._check_own(name)
        if not 0 <= weight < math.inf:
            raise NodeError(
                f"record_scalar({name!r}, weight={weight}): a weight is a number, 0 or more"
            )
        self.flodl_history.add(name, _one_element(value, f"record_scalar({name!r})"), weight)

    def record(self, name: str, values: float | torch.Tensor | Iterable[float]) -> None:
        """Add values of a metric, one or several.

        Raises:
            GraphPathError: The name belongs to a child: use ``record_at``.
            NodeError: A value has more than one element.
        """
        several = [values] if isinstance(values, int | float | torch.Tensor) else values
        for value in several:
            self.record_scalar(name, value)

    def record_at(self, path: str, value: float | torch.Tensor, weight: float = 1.0) -> None:
        """Add one value of a metric of the graph that the path leads to, under its last part.

        Raises:
            GraphPathError: The graph is not there.
            NodeError: More than one element.
        """
        graph, name = self._metric_place(path, "record_at")
        graph.flodl_history.add(name, _one_element(value, f"record_at({path!r})"), weight)

    def collected(self, name: str) -> list[float]:
        """Return the values added since the last flush; waits for their device."""
        return read_numbers(self.flodl_history.pending(name))

    # ------------------------------------------------------------- once an epoch

    def flush(self, *names: str) -> None:
        """Append the weighted mean of what was added to the history, and begin the next epoch.

        Args:
            names: Metrics, groups, or paths to metrics of children; by default everything, here
                and in all children.

        Raises:
            GraphPathError: A path to a child that is not there.
        """
        if names:
            for graph, own in self._by_graph(names).items():
                graph._flush_own(own)  # noqa: SLF001 - another graph of our own
            return
        self.flush_local()
        for child in children_of(self).values():
            if isinstance(child, Metrics):
                child.flush()

    def flush_local(self, *names: str) -> None:
        """Flush metrics of this graph, not of its children, so that they keep their own pace."""
        self._flush_own(_expanded(self, names) if names else None)

    def _flush_own(self, names: Iterable[str] | None) -> None:
        chosen = None if names is None else list(names)
        for tag, (total, count) in self.flodl_sums.take(chosen).items():
            self.flodl_history.add(tag, total / count, count)
        self.flodl_history.flush(chosen, read_numbers)

    @property
    def flush_count(self) -> int:
        """How many flushes of this graph had something to flush."""
        return self.flodl_history.flush_count

    def end_epoch(self) -> None:
        """Close an epoch: flush everything, times included."""
        self.flush()
        self.flodl_clock.history.flush(None, read_numbers)
        self._epoch_count += 1

    @property
    def epoch_count(self) -> int:
        """How often ``end_epoch`` was called."""
        return self._epoch_count

    # ------------------------------------------------------------- over epochs

    def trend(self, name: str) -> Trend:
        """Return the epoch means of a metric; empty before its first flush.

        A dotted name leads to a child's metric.
        """
        graph, own = self._metric_place(name, "trend")
        return graph.flodl_history.trend(own)

    def trend_at(self, path: str) -> Trend:
        """Return the epoch means of a metric of the graph that the path leads to.

        Raises:
            GraphPathError: The graph is not there.
        """
        return self.trend(path)

    def trends(self, names: str | Iterable[str]) -> TrendGroup:
        """Return several trends to ask together; groups stand for their tags."""
        given = [names] if isinstance(names, str) else list(names)
        return TrendGroup([self.trend(name) for name in _expanded(self, given)])

    def reset_trend(self, *names: str) -> None:
        """Forget the history of metrics."""
        for graph, own in self._by_graph(names).items():
            graph.flodl_history.reset(own)

    def latest_metrics(self) -> dict[str, float]:
        """Return the newest epoch means: own ones first, then the children's, dotted."""
        result = self.latest_metrics_local()
        for label, child in children_of(self).items():
            if isinstance(child, Metrics):
                result |= {f"{label}.{name}": v for name, v in child.latest_metrics().items()}
        return result

    def latest_metrics_local(self) -> dict[str, float]:
        """Return the newest epoch means of this graph, first recorded first."""
        return self.flodl_history.latest()

    def eta(self, total_epochs: int) -> float:
        """Return the seconds that the remaining epochs take at the pace so far; 0.0 at first."""
        started, flushed = self.flodl_memory.started, self.flush_count
        if started is None or flushed == 0:
            return 0.0
        return (time.monotonic() - started) / flushed * max(0, total_epochs - flushed)

    def history(self) -> dict[str, Any]:
        """Return all epoch means, here and in all children, as JSON values for a resume."""
        own = self.flodl_history
        children = {
            label: child.history()
            for label, child in children_of(self).items()
            if isinstance(child, Metrics)
        }
        return {"series": own.series(), "flush_count": own.flush_count, "children": children}

    def load_history(self, history: Mapping[str, Any]) -> None:
        """Replace all epoch means by those that ``history`` returned.

        Raises:
            GraphPathError: It has a child that this graph has not; nothing has changed then.
        """
        _check_history(self, history)
        self.flodl_history.load(history["series"], history["flush_count"])
        children = children_of(self)
        for label, inner in history["children"].items():
            child = children[label]
            assert isinstance(child, Metrics), "every graph is one"
            child.load_history(inner)

    # ------------------------------------------------------------- names

    def _metric_place(self, path: str, call: str) -> tuple[Metrics, str]:
        """Return the graph that keeps a metric, and the metric's name there."""
        above, _, name = path.rpartition(".")
        if not above:
            return self, name
        place = find(self, above)
        if place.kind is not PathKind.SUBGRAPH or not isinstance(place.graph, Metrics):
            raise GraphPathError(f"{call}({path!r}): {above!r} is a {place.kind}, not a subgraph")
        return place.graph, name

    def _by_graph(self, names: Iterable[str]) -> dict[Metrics, list[str]]:
        result: dict[Metrics, list[str]] = {}
        for path in names:
            graph, name = self._metric_place(path, "flush")
            result.setdefault(graph, []).extend(_expanded(graph, [name]))
        return result

    def _known_tags(self, tags: Iterable[str]) -> list[str]:
        expanded, known = _expanded(self, tags), {tag.name for tag in self.flodl_plan.tags}
        for name in expanded:
            if name not in known:
                hint = suggestion(name, known)
                if "." in name:
                    hint = "collect_at() takes paths"
                raise GraphPathError(f"collect: no tag {name!r}", hint=hint)
        return expanded

    def _check_own(self, name: str) -> None:
        first, dot, _ = name.partition(".")
        if dot and first in children_of(self):
            raise GraphPathError(
                f"record({name!r}): {first!r} is a child graph",
                hint=f"record_at({name!r}, …) records there",
            )


def _check_history(graph: GraphBase, history: Mapping[str, Any]) -> None:
    children = children_of(graph)
    for label, inner in history["children"].items():
        if label not in children:
            raise GraphPathError(
                f"load_history: no child {label!r}", hint=suggestion(label, children)
            )
        _check_history(children[label], inner)


def _expanded(graph: GraphBase, names: Iterable[object]) -> list[str]:
    groups = dict(graph.flodl_plan.groups)
    result: list[str] = []
    for name in names:
        if not isinstance(name, str):
            raise GraphPathError(
                f"{name!r} is no name", hint="names are arguments of their own: collect('a', 'b')"
            )
        result += groups.get(name, (name,))
    return result


def _add_tag(graph: GraphBase, tag: str, reduce: Reduction | None) -> None:
    known = [item.name for item in graph.flodl_plan.tags]
    if tag not in known:
        raise GraphPathError(f"collect: no tag {tag!r}", hint=suggestion(tag, known))
    value = value_of(graph, tag)
    if value is None:
        raise NodeError(
            f"collect({tag!r}): it was not computed yet, or is not retained",
            hint="call the graph first; see set_retained()",
        )
    if reduce is not None and isinstance(value, torch.Tensor) and value.numel() != 1:
        if value.numel() == 0:
            raise NodeError(f"collect_with({tag!r}): the tensor is empty")
        value = reduced(value, reduce)
    graph.flodl_history.add(tag, _one_element(value, f"collect({tag!r})"))


def _check_reduction(reduce: str, call: str) -> None:
    if reduce not in REDUCTIONS:
        raise NodeError(f"{call}(reduce={reduce!r}): there are {', '.join(REDUCTIONS)}")


def _one_element(value: Any, call: str) -> float | torch.Tensor:
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise NodeError(
                f"{call}: shape {list(value.shape)} is not one element",
                hint="reduce it: collect_with(tag, reduce='mean'), or .mean() on the value",
            )
        # A copy: a captured step writes the next value into the same memory.
        return value.detach().reshape(()).clone()
    if isinstance(value, int | float):
        return float(value)
    raise NodeError(f"{call}: {type(value).__name__} is neither a number nor a tensor")


def read_numbers(values: Sequence[Any]) -> list[float]:
    """Return values as numbers; tensors of a device and dtype are read together."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            groups.setdefault((value.device, value.dtype), []).append(index)
    result = [0.0 if isinstance(value, torch.Tensor) else float(value) for value in values]
    for members in groups.values():
        numbers = torch.stack([values[index] for index in members]).tolist()
        for index, number in zip(members, numbers, strict=True):
            result[index] = float(number)
    return result
