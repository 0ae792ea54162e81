"""Configs of BERT and of the families that share its keys: RoBERTa and XLM-RoBERTa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from flodl_hf.config.base import HfConfig, Sizes
from flodl_hf.errors import ConfigError

BERT_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


@dataclass(frozen=True, kw_only=True)
class BertLikeConfig(HfConfig):
    """The keys that BERT, RoBERTa and XLM-RoBERTa have in common."""

    presence: ClassVar[tuple[str, ...]] = BERT_SIZES
    counts_from_pad: ClassVar[bool] = False
    """Whether positions begin after the pad id."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counts_from_pad and self.pad_token_id + 1 >= self.max_position_embeddings:
            raise ConfigError(
                "max_position_embeddings",
                f"config max_position_embeddings={self.max_position_embeddings}: the first "
                f"{self.pad_token_id + 1} are for padding, expected more",
                value=self.max_position_embeddings,
            )

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
            embedding=self.hidden_size,
            pad=self.pad_token_id,
            eps=self.layer_norm_eps,
            activation=self.hidden_act,
            dropout=self.hidden_dropout_prob,
            attention_dropout=self.attention_probs_dropout_prob,
        )

    def head_dropout(self, shape: str) -> float:
        """Return the dropout in the head ``sequence``, ``token`` or ``question``."""
        if shape == "question" or self.classifier_dropout is None:
            return super().head_dropout(shape)
        return self.classifier_dropout


@dataclass(frozen=True, kw_only=True)
class BertConfig(BertLikeConfig):
    """Config of a BERT model."""

    model_type: ClassVar[str] = "bert"

    @classmethod
    def bert_base_uncased(cls) -> Self:
        """Return the sizes of ``google-bert/bert-base-uncased``."""
        return cls(
            vocab_size=30522,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
        )


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertLikeConfig):
    """Config of a RoBERTa model."""

    model_type: ClassVar[str] = "roberta"
    counts_from_pad: ClassVar[bool] = True

    pad_token_id: int = 1

    @classmethod
    def roberta_base(cls) -> Self:
        """Return the sizes of ``FacebookAI/roberta-base``."""
        return cls(
            vocab_size=50265,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        )


@dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(BertLikeConfig):
    """Config of an XLM-RoBERTa model."""

    model_type: ClassVar[str] = "xlm-roberta"
    counts_from_pad: ClassVar[bool] = True

    pad_token_id: int = 1

    @classmethod
    def xlm_roberta_base(cls) -> Self:
        """Return the sizes of ``FacebookAI/xlm-roberta-base``."""
        return cls(
            vocab_size=250002,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=514,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        )
