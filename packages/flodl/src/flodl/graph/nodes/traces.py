"""Named values of the iterations of a loop, and loop bodies that publish them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from flodl.core.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flodl.graph.ir import Plan

OUTPUT = ""
"""Name under which the output of each iteration is kept, which no publisher can use."""


class TraceEmit:
    """Collects what one call of a loop publishes, and how many iterations it made."""

    def __init__(self, *, keep: bool = True) -> None:
        self.entries: dict[str, list[Tensor]] = {}
        self.steps: dict[str, list[int]] = {}
        self.count = 0
        self.total: Tensor | None = None
        self.alive: list[Tensor] = []
        self._keep = keep

    @classmethod
    def discard(cls) -> TraceEmit:
        """Return one that forgets everything, for a body that is called outside a loop."""
        return cls(keep=False)

    def begin(self) -> None:
        """Start the next iteration."""
        self.count += 1

    def begin_if(self, alive: Tensor) -> None:
        """Start the next iteration of a loop that masks: ``alive`` says for which rows it counts.

        The count stays a tensor: reading it here would wait for the device.
        """
        self.count += 1
        self.alive.append(alive)

    def ran(self, count: Tensor) -> None:
        """Note how often a loop ran that is one operator: a number that stays on the device."""
        self.total = count

    def publish(self, name: str, value: Tensor) -> None:
        """Add a value of this iteration; not publishing a name in some iteration is fine.

        Raises:
            TraceError: The name is empty, or was already published in this iteration.
        """
        if not name:
            raise TraceError(f"publish({name!r}): a trace needs a name")
        self.keep(name, value)

    def keep(self, name: str, value: Tensor) -> None:
        """Add a value under any name, that of the loop's output included."""
        if not self._keep:
            return
        step = self.count - 1
        steps = self.steps.setdefault(name, [])
        if steps and steps[-1] == step:
            raise TraceError(
                f"publish({name!r}): already published in iteration {step}",
                hint="one value a name and iteration: use another name, or stack the values",
            )
        steps.append(step)
        self.entries.setdefault(name, []).append(value)

    def iterations(self) -> int | Tensor:
        """Return how many iterations counted: a number, or one for each row of the batch."""
        if self.total is not None:
            return int(self.total)
        if not self.alive:
            return self.count
        counts = torch.stack(self.alive).sum(dim=0)
        return int(counts) if counts.dim() == 0 else counts

    def mask(self, name: str) -> Tensor:
        """Return for each entry of a trace whether its iteration counted."""
        steps = self.steps[name]
        if not self.alive:
            return torch.ones(len(steps), dtype=torch.bool)
        return torch.stack([self.alive[step] for step in steps])

    def detach(self) -> None:
        """Cut the gradient history of everything kept."""
        for values in self.entries.values():
            values[:] = [value.detach() for value in values]


SHIPPED = frozenset({"halt_prob", "ponder_cost"})
"""Names that every loop in act mode publishes; several such loops may."""


def check_names(
    reports: Sequence[TraceEmit], nodes: Sequence[str], plan: Plan, known: dict[str, str]
) -> None:
    """Refuse one trace name in two loops, or the tag of a traced loop as such a name.

    ``known`` remembers what was found sound in earlier calls.

    Raises:
        TraceError: Names both.
    """
    for node, report in zip(nodes, reports, strict=True):
        for name in report.entries:
            if name == OUTPUT or name in SHIPPED or known.get(name) == node:
                continue
            owner = known.get(name) or traced_tags(plan).get(name)
            if owner is not None:
                raise clash(name, owner, node)
            known[name] = node


def clash(name: str, first: str, second: str) -> TraceError:
    """Return the error for a trace name that means two things."""
    return TraceError(
        f"trace {name!r} of {second} is already a trace of {first}",
        hint="publish under another name",
    )


def traced_tags(plan: Plan) -> dict[str, str]:
    """Return the loops that keep the output of each iteration, by their tags."""
    kept = {node.id for node in plan.nodes if node.op == "loop" and node.attr("trace")}
    return {tag.name: tag.port.node for tag in plan.tags if tag.port.node in kept}


class LoopBody(nn.Module):
    """A loop body that sees its references and publishes values of each iteration.

    Override ``step``. ``emits`` may declare the names it publishes, so that a clash with another
    loop is found at build. ``reset`` is called before each loop; override it to forget state.

        class Refine(LoopBody):
            emits = ("quality",)

            def step(self, x, refs, emit):
                emit.publish("quality", x.norm())
                return x / 2
    """

    emits: ClassVar[tuple[str, ...]] = ()
    flodl_stateful = True

    @abstractmethod
    def step(self, x: Tensor, refs: Mapping[str, Tensor], emit: TraceEmit) -> Tensor:
        """Return the next state for state ``x`` and the references by name, maybe none."""
        raise NotImplementedError(f"{type(self).__name__} must define step(x, refs, emit)")

    def forward(
        self,
        x: Tensor,
        refs: Mapping[str, Tensor] | None = None,
        emit: TraceEmit | None = None,
    ) -> Tensor:
        """Run one step; without ``emit``, published values are forgotten."""
        return self.step(x, {} if refs is None else refs, emit or TraceEmit.discard())

    def forward_via_step(self, x: Tensor) -> Tensor:
        """Run one step without references and traces."""
        return self.step(x, {}, TraceEmit.discard())

    def reset(self) -> None:
        """Forget state before a loop begins; does nothing unless overridden."""
