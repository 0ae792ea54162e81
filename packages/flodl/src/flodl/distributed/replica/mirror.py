"""Replicas follow what is done to the graph that the user holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from flodl.distributed.replica.member import Member
from flodl.graph.observe.tags import Tags


@final
class Mirror:
    """Carries modes, frozen parameters, retained tags and cleared gradients over to the others.

    It also sees whether parameters or buffers were written, so that they are to be carried over.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        trained, *others = [member.graph for member in members]
        self._members = list(members)
        self._trained = trained
        self._modules = list(
            zip(trained.modules(), *(graph.modules() for graph in others), strict=True)
        )
        self._parameters = list(
            zip(trained.parameters(), *(graph.parameters() for graph in others), strict=True)
        )
        self._graphs = list(zip(*(member.graphs.values() for member in members), strict=True))
        self._writes = self._now()
        self._norms = self._norms_now()

    def note(self) -> None:
        """Take the present parameters and buffers as those that all replicas have."""
        self._writes = self._now()
        self._norms = self._norms_now()

    def note_call(self) -> None:
        """Take what a call wrote, such as statistics, as each replica's own until the next step."""
        self._writes = self._now()

    def carry_over(self) -> bool:
        """Make the replicas follow; return whether anything was written since it was noted."""
        for module, *others in self._modules:
            for other in others:
                if other.training is not module.training:
                    other.training = module.training
        for parameter, *same in self._parameters:
            for one in same:
                if one.requires_grad is not parameter.requires_grad:
                    one.requires_grad_(parameter.requires_grad)
        self._carry_tags()
        self._clear_gradients()
        # Norms, too: torch counts no writes through .data, as clipping of weights often makes.
        return self._now() != self._writes or not torch.equal(self._norms_now(), self._norms)

    def _clear_gradients(self) -> None:
        trained, *others = self._members
        if trained.owes_gradient and not trained.has_gradient:
            for other in others:
                other.drop_gradients()

    def _carry_tags(self) -> None:
        for graph, *others in self._graphs:
            names = graph.flodl_flow.retained
            for other in others:
                if other.flodl_flow.retained != names and isinstance(other, Tags):
                    other.set_retained(names or "none")

    def _now(self) -> list[tuple[int, int]]:
        """Return which tensors the graph has, and torch's count of writes in place of each."""
        tensors = [*self._trained.parameters(), *self._trained.buffers()]
        return [(id(one), _writes_of(one)) for one in tensors]

    def _norms_now(self) -> Tensor:
        """Return the norm of each parameter, exact enough for a write of one number to show."""
        parameters = [
            one.detach()
            for one, *_ in self._parameters
            if one.is_floating_point() and one.itemsize > 1  # of eight bits there is no norm
        ]
        if not parameters:
            return torch.zeros(0)
        norms = torch._foreach_norm(parameters, 2, dtype=torch.float64)  # noqa: SLF001 - one launch
        return torch.stack(list(norms))


def _writes_of(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001
