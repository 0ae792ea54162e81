"""The heads of masked language models, whose last layer is the word table once more."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl_hf.config.base import Sizes
from flodl_hf.encoder.activations import activation
from flodl_hf.encoder.embeddings import Embeddings
from flodl_hf.encoder.layer import place


class Decoder(nn.Module):
    """Scores each token of the vocabulary.

    Tied, it holds no weight: it reads the word table of the embeddings at every call, so the two
    cannot come apart, whatever is copied, cast, moved or loaded.

    Args:
        embeddings: Whose word table it borrows.
        sizes: Sizes of the encoder.
        is_tied: Whether it borrows.
        has_bias: Whether it holds the bias, too.
    """

    def __init__(
        self, embeddings: Embeddings, sizes: Sizes, *, is_tied: bool, has_bias: bool
    ) -> None:
        super().__init__()
        # In a tuple: the embeddings are a part of the backbone, not of this.
        self._embeddings = (embeddings,)
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if not is_tied:
            self.weight = nn.Parameter(torch.empty(sizes.vocab, sizes.embedding))
        if has_bias:
            self.bias = nn.Parameter(torch.zeros(sizes.vocab))

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return scores ``[..., V]`` for states ``[..., E]``; an own bias comes first."""
        own = self.weight
        table = self._embeddings[0].word_embeddings.weight if own is None else own
        return functional.linear(x, table, bias if self.bias is None else self.bias)

    def untie(self) -> None:
        """Hold a weight of its own from now on; its values are not set."""
        self.weight = nn.Parameter(torch.empty_like(self._embeddings[0].word_embeddings.weight))


class PredictionHead(nn.Module):
    """Dense layer, activation, norm, and scores for each token of the vocabulary.

    An untied head keeps a bias that it does not use beside the one in its decoder, as the
    reference does, which would miss it in a file.

    Args:
        sizes: Sizes of the encoder.
        embeddings: Whose word table is the last layer.
        dense: Where the dense layer stands.
        norm: Where the norm stands.
        activation_name: Between the two.
        is_tied: Whether the last layer is the word table.
    """

    def __init__(
        self,
        sizes: Sizes,
        embeddings: Embeddings,
        *,
        dense: str,
        norm: str,
        activation_name: str,
        is_tied: bool,
    ) -> None:
        super().__init__()
        self._act = activation(activation_name)
        self._dense = place(self, dense, nn.Linear(sizes.hidden, sizes.embedding))
        self._norm = place(self, norm, nn.LayerNorm(sizes.embedding, eps=sizes.eps))
        self.decoder = Decoder(embeddings, sizes, is_tied=is_tied, has_bias=not is_tied)
        self.bias = nn.Parameter(torch.zeros(sizes.vocab), requires_grad=is_tied)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores ``[..., V]`` for states ``[..., H]``."""
        x = self._norm(self)(self._act(self._dense(self)(x)))
        scores: Tensor = self.decoder(x, self.bias)
        return scores

    def untie(self) -> None:
        """Give the decoder a weight and a bias of its own; their values are not set."""
        self.decoder.untie()
        self.decoder.bias = nn.Parameter(torch.empty_like(self.bias))
        self.bias.requires_grad_(False)
