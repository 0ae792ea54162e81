"""The arms of plain torch: eager, compiled, and captured by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ddp_bench.speed.turns import Turns
from ddp_bench.speed.workload import Workload

Step = Callable[[Tensor, Tensor], Tensor]
COMPILE_MODES = {
    "torch-compile": "default",
    "torch-compile-ro": "reduce-overhead",
    "torch-compile-max": "max-autotune",
}
WARM_UP_STEPS = 3


def drive(workload: Workload, turns: Turns) -> None:
    """Train one of torch's arms, or the graph model of flodl in the same loop."""
    arm = workload.task.arm
    model = workload.graph() if arm == "flodl-graph" else workload.plain()
    if arm.startswith("torch-manual"):
        is_compiled = arm == "torch-manual-compiled"
        optimizer = workload.adam(model.parameters(), fused=True, capturable=True)
        step = CapturedByHand(_plain_step(workload, model, optimizer, is_compiled=is_compiled))
        return loop(step, workload, turns)
    is_default = arm in ("torch-eager", "flodl-graph")
    optimizer = workload.adam(model.parameters(), **({} if is_default else {"fused": True}))
    return loop(
        _plain_step(workload, model, optimizer, mode=COMPILE_MODES.get(arm)), workload, turns
    )


def loop(step: Step, workload: Workload, turns: Turns) -> None:
    """Train epoch after epoch; ends when there are no more turns."""
    total, count = torch.zeros((), device=workload.device), len(workload.batches)
    while True:
        if turns.begin().policy == "step":
            turns.end(sum(turns.read(step(*pair)) for pair in workload.batches) / count)
        else:
            total.zero_()
            for inputs, targets in workload.batches:
                total += step(inputs, targets)
            turns.end(total / count)


def _plain_step(
    workload: Workload,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    mode: str | None = None,
    is_compiled: bool = False,
) -> Step:
    def forward(inputs: Tensor, targets: Tensor) -> Tensor:
        return workload.loss(model, inputs, targets)

    if is_compiled:
        forward = torch.compile(forward)
    elif mode is not None:
        forward = torch.compile(forward, mode=mode)
    has_graphs = mode in ("reduce-overhead", "max-autotune")

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        if has_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = forward(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class CapturedByHand:
    """A step as one captured graph, as one would write it with nothing but torch.

    The first steps are ordinary ones, on a side stream as torch asks for; then the step is
    recorded once and replayed over two buffers that each batch is copied into.

    Args:
        step: Takes an ordinary step.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._left = WARM_UP_STEPS
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs = self._targets = self._loss = torch.empty(0)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Take one step and return its loss."""
        if self._graph is None:
            if self._left:
                self._left -= 1
                return self._on_the_side(inputs, targets)
            self._graph = self._recorded(inputs, targets)
        self._inputs.copy_(inputs, non_blocking=True)
        if self._targets is not self._inputs:
            self._targets.copy_(targets, non_blocking=True)
        self._graph.replay()
        return self._loss

    def _on_the_side(self, inputs: Tensor, targets: Tensor) -> Tensor:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = self._step(inputs, targets)
        torch.cuda.current_stream().wait_stream(side)
        return loss

    def _recorded(self, inputs: Tensor, targets: Tensor) -> torch.cuda.CUDAGraph:
        self._inputs = inputs.clone()
        self._targets = self._inputs if targets is inputs else targets.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._step(self._inputs, self._targets)
        return graph
