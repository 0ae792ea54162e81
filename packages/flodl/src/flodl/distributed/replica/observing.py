"""What observed tags add up to in a call that several replicas make."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from flodl.core.errors import StepContractError
from flodl.graph.base import GraphBase
from flodl.graph.observe.tags import value_of


@contextlib.contextmanager
def observed_once(graphs: Mapping[str, GraphBase]) -> Iterator[None]:
    """Add up the values that tags have at the end of the block, not those of one replica in it.

    Raises:
        StepContractError: An observed tag is not retained, so the other replicas' are not known.
    """
    observing = [graph for graph in graphs.values() if graph._observed]  # noqa: SLF001 - a graph's own
    kept = [graph.flodl_sums for graph in observing]
    for graph in observing:
        graph.flodl_sums = graph.flodl_sums.fresh()
    try:
        yield
    finally:
        for graph, sums in zip(observing, kept, strict=True):
            graph.flodl_sums = sums
    for graph in observing:
        for tag, reduction in graph._observed:  # noqa: SLF001
            if tag not in graph.flodl_flow.retained:
                raise StepContractError(
                    f"observe({tag!r}) on several devices: the tag is not retained",
                    hint="add it to set_retained()",
                )
            graph.flodl_sums.add(tag, value_of(graph, tag), reduction)
