"""Config of DistilBERT, which has names of its own for the sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from flodl_hf.config.base import HfConfig, Sizes


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(HfConfig):
    """Config of a DistilBERT model."""

    model_type: ClassVar[str] = "distilbert"
    presence: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "dim",
        "n_layers",
        "n_heads",
        "hidden_dim",
        "max_position_embeddings",
    )

    dim: int
    n_layers: int
    n_heads: int
    hidden_dim: int
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    seq_classif_dropout: float = 0.2
    qa_dropout: float = 0.1
    sinusoidal_pos_embds: bool = False

    def sizes(self) -> Sizes:
        """Return the sizes of the encoder."""
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.dim,
            layers=self.n_layers,
            heads=self.n_heads,
            intermediate=self.hidden_dim,
            positions=self.max_position_embeddings,
            types=0,
            embedding=self.dim,
            pad=self.pad_token_id,
            eps=1e-12,  # fixed in the reference; no key of the file sets it
            activation=self.activation,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    def activation_keys(self) -> tuple[str, ...]:
        """Return the fields that name activations."""
        return ("activation",)

    def head_dropout(self, shape: str) -> float:
        """Return the dropout in the head ``sequence``, ``token`` or ``question``."""
        own = {"sequence": self.seq_classif_dropout, "question": self.qa_dropout}
        return own.get(shape, self.dropout)

    @classmethod
    def distilbert_base_uncased(cls) -> Self:
        """Return the sizes of ``distilbert/distilbert-base-uncased``."""
        return cls(
            vocab_size=30522,
            dim=768,
            n_layers=6,
            n_heads=12,
            hidden_dim=3072,
            max_position_embeddings=512,
        )
