"""From reports to record fields: what a leaf says, and what the node above makes of it."""

from __future__ import annotations

from typing import Any

from flodl.records.node import Interval, Node, NodeReport
from flodl.records.rollup import NodeValues, Reductions, combine, combine_res


def leaf_fields(node: Node, report: NodeReport, values: NodeValues) -> dict[str, Any]:
    """Return the record fields of a leaf's report."""
    fields = _interval_fields(report)
    _add_values(fields, values)
    # a leaf that is the whole run also stands for its host
    res = {**report.res, **(report.host_res if node.parent is None else {})}
    if res:
        fields["res"] = res
    return fields


def interior_fields(
    node: Node,
    interval: Interval,
    template: NodeReport,
    reductions: Reductions,
    *,
    has_fresh_res: bool,
) -> dict[str, Any]:
    """Combine a node's direct children over one interval, and return its record fields.

    Only children that reported this very interval count, so that a slow child's old numbers are
    never counted twice. Resources are a state, not a flow: every living child's count.
    """
    cadence, number = interval
    below = [
        held[1]
        for child in node.children
        if (held := child.latest.get(cadence)) is not None
        and held[0] == interval
        and (number is not None or child.is_alive)
    ]
    own = [
        held[1]
        for source in node.sources.values()
        if (held := source.get(cadence)) is not None and held[0] == interval
    ]
    if len(own) == 1 and not any(values.metrics for values in below):
        # the node itself was measured, its children are there for their resources
        values = own[0]
    else:
        values = combine(below + own, reductions)
    parts = below + own
    if parts:
        node.latest[cadence] = (interval, values)
    if node.children:
        resources = [child.res for child in node.children if child.is_alive]
        if node.own_res:
            resources.append(node.own_res)
        node.res = {**combine_res(resources), **node.host_res}
    fields = _interval_fields(template)
    _add_values(fields, values)
    if has_fresh_res and node.res:
        fields["res"] = node.res
    return fields


def _interval_fields(report: NodeReport) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if report.epoch_complete:
        fields["epoch_complete"] = True
    elif report.tick is not None:
        fields["tick"] = report.tick
    if report.epoch is not None:
        fields["epoch"] = report.epoch
    if report.step is not None:
        fields["step"] = report.step
    if report.restart:
        fields["restart"] = True
    return fields


def _add_values(fields: dict[str, Any], values: NodeValues) -> None:
    if values.metrics:
        fields["metrics"] = values.metrics
        fields["work"] = values.work
    if values.nonfinite:
        fields["nonfinite"] = values.nonfinite
    if values.kwork:
        fields["kwork"] = values.kwork
