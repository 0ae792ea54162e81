"""The post-norm layer that all families share."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from flodl_hf.config.base import Sizes
from flodl_hf.encoder.activations import activation
from flodl_hf.encoder.spec import FamilySpec


class Slots(nn.Module):
    """A module that only holds others: the dots of a key."""


class Part:
    """Finds a part of a module at a dotted path, at every call.

    It walks torch's own tables: ``attrgetter`` takes eight times as long, and a compiler cannot
    look into it.
    """

    def __init__(self, path: str) -> None:
        self._names = tuple(path.split("."))

    def __call__(self, root: nn.Module) -> Any:
        """Return the module there."""
        found: Any = root
        for name in self._names:
            found = found._modules[name]  # noqa: SLF001 - torch's own table
        return found


def place(root: nn.Module, path: str, module: nn.Module) -> Part:
    """Put a module at a dotted path and return what finds it there at call time."""
    *parents, name = path.split(".")
    holder = root
    for parent in parents:
        if parent not in dict(holder.named_children()):
            holder.add_module(parent, Slots())
        holder = holder.get_submodule(parent)
    holder.add_module(name, module)
    return Part(path)


class PostNorm(nn.Module):
    """Everything of a layer but the attention itself; ``EncoderLayer`` and its kin add that.

    The parts are looked up at every call, so a part that was replaced takes effect.

    Args:
        sizes: Sizes of the encoder.
        spec: The family.
        attended: Width of queries, keys and values together.
    """

    def __init__(self, sizes: Sizes, spec: FamilySpec, *, attended: int | None = None) -> None:
        super().__init__()
        names, hidden = spec.layer, sizes.hidden
        width = hidden if attended is None else attended
        self.heads = sizes.heads
        self.attention_dropout = sizes.attention_dropout
        self._act = activation(sizes.activation)
        self._query = place(self, names.query, nn.Linear(hidden, width))
        self._key = place(self, names.key, nn.Linear(hidden, width))
        self._value = place(self, names.value, nn.Linear(hidden, width))
        self._output = place(self, names.output, nn.Linear(width, hidden))
        self._norm_1 = place(self, names.norm_1, nn.LayerNorm(hidden, eps=sizes.eps))
        self._up = place(self, names.up, nn.Linear(hidden, sizes.intermediate))
        self._down = place(self, names.down, nn.Linear(sizes.intermediate, hidden))
        self._norm_2 = place(self, names.norm_2, nn.LayerNorm(hidden, eps=sizes.eps))
        self._p_output = sizes.dropout if spec.drops_output else 0.0
        self._p_ffn = sizes.dropout if spec.drops_ffn else 0.0

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each ``[B, heads, S, d]``."""
        return (
            self.split(self._query(self)(x)),
            self.split(self._key(self)(x)),
            self.split(self._value(self)(x)),
        )

    def split(self, x: Tensor) -> Tensor:
        """Return ``[B, S, H]`` as ``[B, heads, S, d]``."""
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, -1).transpose(1, 2)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None
    ) -> Tensor:
        """Return what each token gathers, ``[B, S, H]``."""
        p = self.attention_dropout if self.training else 0.0
        gathered = functional.scaled_dot_product_attention(q, k, v, mask, dropout_p=p, scale=scale)
        return gathered.transpose(1, 2).flatten(2)

    def complete(self, x: Tensor, gathered: Tensor) -> Tensor:
        """Return the layer's output: both residuals with their norms."""
        mixed = functional.dropout(self._output(self)(gathered), self._p_output, self.training)
        del gathered  # its memory serves the next part; a CPU pays for each fresh page
        x = self._norm_1(self)(mixed + x)
        del mixed
        inner = self._down(self)(self._act(self._up(self)(x)))
        out: Tensor = self._norm_2(self)(functional.dropout(inner, self._p_ffn, self.training) + x)
        return out


class EncoderLayer(PostNorm):
    """One layer with plain attention."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return ``[B, S, H]``; ``mask`` is bool ``[B, 1, 1, S]``."""
        # No names for queries, keys and values: they are free once the attention is done.
        return self.complete(x, self.attend(*self.project(x), mask))
