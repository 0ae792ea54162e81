"""The order of computation, the levels of nodes that could run side by side, and last uses."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.graph.ir import Node, Plan, Port


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Sort nodes so that each follows what it reads; of those that could be next, the oldest."""
    position = {node.id: index for index, node in enumerate(nodes)}
    waiting = [len({port.node for port in node.sources()}) for node in nodes]
    readers: dict[str, list[int]] = {node.id: [] for node in nodes}
    for index, node in enumerate(nodes):
        for source in {port.node for port in node.sources()}:
            readers[source].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    result = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        result.append(node)
        for index in readers[node.id]:
            waiting[index] -= 1
            if waiting[index] == 0:
                heapq.heappush(ready, index)
    assert len(result) == len(position), "references never form a cycle: state reads break it"
    return tuple(result)


def levels(plan: Plan) -> dict[str, int]:
    """Return for each node the length of the longest way to it from an input."""
    result: dict[str, int] = {}
    for node in plan.nodes:
        result[node.id] = max((result[port.node] + 1 for port in node.sources()), default=0)
    return result


def last_uses(plan: Plan, kept: set[Port]) -> dict[str, list[Port]]:
    """Return for each node the ports that nothing reads after it, except those kept to the end."""
    last: dict[Port, str] = {}
    for node in plan.nodes:
        for port in node.sources():
            last[port] = node.id
    result: dict[str, list[Port]] = {}
    for port, node_id in last.items():
        if port not in kept:
            result.setdefault(node_id, []).append(port)
    return result
