"""The least time that a training step can take on a card: its arithmetic and its memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from ddp_bench.speed.limits import Limits
from ddp_bench.speed.models import SpeedModel
from ddp_bench.speed.workload import Dims, Precision

_PARAMETER_ACCESSES = 10
"""Of each parameter in a step with Adam: read forward and backward, its gradient written; then
parameter, gradient and both moments read, parameter and both moments written."""
_BY_CUDNN = ("convolution", "rnn", "lstm", "gru")


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What one step has to do.

    Attributes:
        product_flops: Of matrix products, which run in the precision that is set for them.
        cudnn_flops: Of convolutions and cuDNN's recurrent layers, which may use TF32.
        n_bytes: Parameters and optimizer state as Adam touches them, and each tensor that is kept
            for the backward pass written and read once.
    """

    product_flops: int
    cudnn_flops: int
    n_bytes: int

    def floor_ms(self, limits: Limits, precision: Precision) -> float:
        """Return the least time by arithmetic or by memory, whichever is longer."""
        return max(self.compute_ms(limits, precision), self.memory_ms(limits))

    def compute_ms(self, limits: Limits, precision: Precision) -> float:
        """Return the time of the arithmetic at the measured rates."""
        products = {"fp32": limits.fp32, "tf32": limits.tf32, "bf16": limits.bf16}[precision]
        cudnn = limits.bf16 if precision == "bf16" else limits.tf32
        return (self.product_flops / products + self.cudnn_flops / cudnn) * 1e3

    def memory_ms(self, limits: Limits) -> float:
        """Return the time of the traffic at the measured bandwidth."""
        return self.n_bytes / limits.copy * 1e3


def work_of(model: SpeedModel, dims: Dims) -> Work:
    """Return the work of one step of the plain model, counted without computing it."""
    size = model.small if dims == "small" else model.full
    with torch.device("meta"):
        module = size.make()
        inputs, targets = (tensor.to("meta") for tensor in size.batch(torch.Generator("cpu")))
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        base = tensor if tensor._base is None else tensor._base  # noqa: SLF001 - no public name
        if not isinstance(base, torch.nn.Parameter):
            kept[id(base)] = base
        return tensor

    counter = FlopCounterMode(display=False)
    with counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        model.loss(module(inputs), targets).backward()
    counts = counter.get_flop_counts()["Global"]
    cudnn = sum(n for op, n in counts.items() if any(word in str(op) for word in _BY_CUDNN))
    if model.name == "lstm_seq":  # a cuDNN layer; without data it is counted as its products
        cudnn = counter.get_total_flops()
    parameters = sum(p.numel() * p.element_size() for p in module.parameters())
    activations = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    return Work(
        product_flops=counter.get_total_flops() - cudnn,
        cudnn_flops=cudnn,
        n_bytes=_PARAMETER_ACCESSES * parameters + 2 * activations,
    )
