"""Two of the ten models rewritten for fewer kernels: what is left to win once nothing waits.

These are the models that are furthest from the limits of a large GPU. Both compute what their
plain twins do, from the same parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ddp_bench.speed import plain

COMPILABLE = ("gated_routing",)
REWRITTEN = (*COMPILABLE, "feedback_fixed", "iterative_refine")


def rewritten(model: nn.Module) -> nn.Module:
    """Return a plain model's rewritten form, around the same parameters.

    Raises:
        TypeError: This model has none.
    """
    match model:
        case plain.Gated():
            return BatchedExperts(model)
        case plain.Refine():
            return DeferredLoop(model)
    raise TypeError(f"{type(model).__name__} has no rewritten form")


class BatchedExperts(nn.Module):
    """The gated model with all experts as one product.

    Args:
        gated: The plain model.
    """

    def __init__(self, gated: plain.Gated) -> None:
        super().__init__()
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        gated = self.gated
        x = gated.activation(gated.entry(x))
        weights = torch.softmax(gated.router(x), dim=-1)
        linears, norms = _layers_of(gated.experts)
        count, width = len(linears), linears[0].out_features
        together = functional.linear(
            x, torch.cat([n.weight for n in linears]), torch.cat([n.bias for n in linears])
        )
        hidden = functional.gelu(together.view(-1, count, width))
        normal = functional.layer_norm(hidden, (width,), eps=norms[0].eps)
        scale, shift = (torch.stack([getattr(n, name) for n in norms]) for name in _AFFINE)
        outputs = torch.addcmul(shift, normal, scale)
        mixed = torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)
        out: Tensor = gated.out(mixed)
        return out


_AFFINE = ("weight", "bias")


def _layers_of(experts: nn.ModuleList) -> tuple[list[nn.Linear], list[nn.LayerNorm]]:
    linears, norms = [], []
    for expert in experts:
        assert isinstance(expert, nn.Sequential), "an expert is a block"
        linears += [layer for layer in expert if isinstance(layer, nn.Linear)]
        norms += [layer for layer in expert if isinstance(layer, nn.LayerNorm)]
    return linears, norms


class DeferredLoop(nn.Module):
    """The loop over one body, its parameters' gradients computed once for all iterations.

    Args:
        refine: The plain model.
    """

    def __init__(self, refine: plain.Refine) -> None:
        super().__init__()
        self.refine = refine

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        refine = self.refine
        (linear,), (norm,) = _layers_of(nn.ModuleList([refine.body.inner]))
        x = _Loop.apply(
            refine.entry(x), linear.weight, linear.bias, norm.weight, norm.bias, refine.times
        )
        out: Tensor = refine.out(x)
        return out


class _Loop(torch.autograd.Function):
    """``x = x + norm(gelu(linear(x)))`` several times over.

    The backward pass goes through the iterations with the gradient of the state alone. What the
    parameters need of each iteration is kept side by side, as if it were one large batch.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, times: int
    ) -> Tensor:
        rows, width = x.shape
        states, products, hidden = (x.new_empty(times, rows, width) for _ in range(3))
        means, inverses = (x.new_empty(times, rows, 1) for _ in range(2))
        states[0].copy_(x)
        normal = torch.empty_like(x)
        for step in range(times):
            torch.addmm(bias, states[step], weight.t(), out=products[step])
            torch.ops.aten.gelu.out(products[step], out=hidden[step])
            torch.ops.aten.native_layer_norm.out(
                hidden[step],
                (width,),
                scale,
                shift,
                _EPS,
                out0=normal,
                out1=means[step],
                out2=inverses[step],
            )
            if step + 1 < times:
                torch.add(states[step], normal, out=states[step + 1])
        ctx.save_for_backward(states, products, hidden, means, inverses, weight, scale, shift)
        return states[-1] + normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, products, hidden, means, inverses, weight, scale, shift = ctx.saved_tensors
        times, rows, width = states.shape
        outer, inner = states.new_empty(times + 1, rows, width), torch.empty_like(states)
        outer[times].copy_(grad)
        for step in reversed(range(times)):
            before, _, _ = _norm_backward(
                outer[step + 1],
                hidden[step],
                (width,),
                means[step],
                inverses[step],
                scale,
                shift,
                [True, False, False],
            )
            torch.ops.aten.gelu_backward.grad_input(before, products[step], grad_input=inner[step])
            torch.addmm(outer[step + 1], inner[step], weight, out=outer[step])
        flat = (times * rows, width)
        _, for_scale, for_shift = _norm_backward(
            outer[1:].view(flat),
            hidden.view(flat),
            (width,),
            means.view(-1, 1),
            inverses.view(-1, 1),
            scale,
            shift,
            [False, True, True],
        )
        all_inner = inner.view(flat)
        for_weight = all_inner.t() @ states.view(flat)
        return outer[0], for_weight, all_inner.sum(0), for_scale, for_shift, None


_norm_backward = torch.ops.aten.native_layer_norm_backward
_EPS = 1e-5
