"""Config of ALBERT: shared layers, and embedding tables narrower than the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from flodl_hf.config.base import HfConfig, Sizes
from flodl_hf.config.bert import BERT_SIZES
from flodl_hf.config.fields import check_number

_MOST_APPLICATIONS = 10_000


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(HfConfig):
    """Config of an ALBERT model."""

    model_type: ClassVar[str] = "albert"
    presence: ClassVar[tuple[str, ...]] = (*BERT_SIZES, "embedding_size")

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    embedding_size: int
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("num_hidden_groups", "inner_group_num"):
            check_number(key, getattr(self, key), 1)
        # No weights tell how often layers are applied, and each application is a step of a graph.
        check_number("num_hidden_layers", self.num_hidden_layers, 1, _MOST_APPLICATIONS)

    def sizes(self) -> Sizes:
        """Return the sizes of the encoder."""
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            intermediate=self.intermediate_size,
            positions=self.max_position_embeddings,
            types=self.type_vocab_size,
            embedding=self.embedding_size,
            pad=self.pad_token_id,
            eps=self.layer_norm_eps,
            activation=self.hidden_act,
            dropout=self.hidden_dropout_prob,
            attention_dropout=self.attention_probs_dropout_prob,
        )

    def own_layers(self) -> int:
        """Return how many layers have weights of their own."""
        return self.num_hidden_groups * self.inner_group_num

    def head_dropout(self, shape: str) -> float:
        """Return the dropout in the head ``sequence``, ``token`` or ``question``."""
        return 0.0 if shape == "question" else self.classifier_dropout_prob

    def group_of(self, layer: int) -> int:
        """Return the group whose layers application ``layer`` runs."""
        return int(layer / (self.num_hidden_layers / self.num_hidden_groups))

    @classmethod
    def albert_base_v2(cls) -> Self:
        """Return the sizes of ``albert/albert-base-v2``."""
        return cls(
            vocab_size=30000,
            embedding_size=128,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
        )
