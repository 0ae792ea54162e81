"""Replicas follow what is done to the graph that the user holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from flodl.distributed.replica.member import Member
from flodl.graph.observe.tags import Tags


@final
class Mirror:
    """Carries training modes, frozen parameters and retained tags over to the other replicas."""

    def __init__(self, members: Sequence[Member]) -> None:
        trained, *others = [member.graph for member in members]
        self._modules = list(
            zip(trained.modules(), *(graph.modules() for graph in others), strict=True)
        )
        self._parameters = list(
            zip(trained.parameters(), *(graph.parameters() for graph in others), strict=True)
        )
        self._graphs = list(zip(*(member.graphs.values() for member in members), strict=True))
        self._versions = self._now()

    def note(self) -> None:
        """Take the present parameters as those that all replicas have."""
        self._versions = self._now()

    def carry_over(self) -> bool:
        """Make the replicas follow, and return whether parameters were written since `note`."""
        for module, *others in self._modules:
            for other in others:
                if other.training is not module.training:
                    other.training = module.training
        for parameter, *same in self._parameters:
            for one in same:
                if one.requires_grad is not parameter.requires_grad:
                    one.requires_grad_(parameter.requires_grad)
        self._carry_tags()
        return self._now() != self._versions

    def _carry_tags(self) -> None:
        for graph, *others in self._graphs:
            names = graph.flodl_flow.retained
            for other in others:
                if other.flodl_flow.retained != names and isinstance(other, Tags):
                    other.set_retained(names or "none")

    def _now(self) -> list[int]:
        """Return torch's count of writes in place of each parameter."""
        return [parameter._version for parameter, *_ in self._parameters]  # noqa: SLF001
