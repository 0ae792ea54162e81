"""The ten models as one would write them in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def block(width: int) -> nn.Sequential:
    """Return Linear, GELU, LayerNorm, all of one width."""
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))


class Chain(nn.Module):
    """Layers one after the other: mlp, convnet, conv_autoenc."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last layer."""
        for layer in self.layers:
            x = layer(x)
        return x


class Tower(nn.Module):
    """A linear layer, residual blocks, a linear layer."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.entry = nn.Linear(width, width)
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        x = self.entry(x)
        for inner in self.blocks:
            x = x + inner(x)
        out: Tensor = self.out(x)
        return out


class Residual(nn.Module):
    """``x + block(x)``, the body of the loops."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = block(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        out: Tensor = x + self.inner(x)
        return out


class Refine(nn.Module):
    """A block, one residual body several times, a linear layer."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.entry = block(width)
        self.body = Residual(width)
        self.out = nn.Linear(width, width)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        x = self.entry(x)
        for _ in range(self.times):
            x = self.body(x)
        out: Tensor = self.out(x)
        return out


class Gated(nn.Module):
    """Experts weighed by a softmax router."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.entry = nn.Linear(width, width)
        self.activation = nn.GELU()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(block(width) for _ in range(experts))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``."""
        x = self.activation(self.entry(x))
        weights = torch.softmax(self.router(x), dim=-1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        out: Tensor = self.out((weights.unsqueeze(-1) * outputs).sum(dim=1))
        return out


class Feedback(Refine):
    """As ``Refine``, but a learned condition ends the loop early; at most so many times."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__(width, times)
        self.halt = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, width]``; the host reads the condition each time."""
        x = self.entry(x)
        for _ in range(self.times):
            x = self.body(x)
            if bool((self.halt(x) > 0).all()):
                break
        out: Tensor = self.out(x)
        return out


class Scale(nn.Module):
    """One number times the input: nothing to compute, so that only the loop costs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return x * self.factor


class EncoderLayer(nn.Module):
    """Post-norm attention and feed-forward.

    Attention that returns its weights cannot use torch's fused kernels: ``need_weights`` asks for
    it, as torch's layer does by default.
    """

    need_weights = False

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.activation = nn.GELU()
        self.down = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, tokens, width]``."""
        x = self.norm1(x + self.attention(x, x, x, need_weights=self.need_weights)[0])
        out: Tensor = self.norm2(x + self.down(self.activation(self.up(x))))
        return out


class Position(nn.Module):
    """Adds a learned vector for each position."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]`` with positions added."""
        return x + self.table


class Transformer(nn.Module):
    """Embedding, learned positions, encoder layers, a linear layer to the vocabulary."""

    def __init__(self, vocabulary: int, width: int, inner: int, depth: int, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = Position(tokens, width)
        self.layers = nn.ModuleList(EncoderLayer(width, inner, 8) for _ in range(depth))
        self.out = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits for ``[batch, tokens]``."""
        x = self.position(self.embedding(x))
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.out(x)
        return out


class Gru(nn.Module):
    """A cell unrolled over a sequence, from zeros."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs, width)
        self.out = nn.Linear(width, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, steps, inputs]``."""
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        out: Tensor = self.out(state)
        return out


class Lstm(nn.Module):
    """Two layers over a sequence, the last step read out."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, width, 2, batch_first=True)
        self.out = nn.Linear(width, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, steps, inputs]``."""
        out: Tensor = self.out(self.rnn(x)[0][:, -1])
        return out
