"""Config of DeBERTa-v2 and v3: disentangled attention and its many switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from flodl_hf.config.base import HfConfig, Sizes, check_activation
from flodl_hf.config.bert import BERT_SIZES
from flodl_hf.config.fields import check_number
from flodl_hf.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DebertaV2Config(HfConfig):
    """Config of a DeBERTa-v2 or DeBERTa-v3 model.

    Attributes:
        pos_att_type: Any of ``"c2p"`` and ``"p2c"``; files may also spell ``"c2p|p2c"``.
        norm_rel_ebd: What is applied to the position table, joined by ``|``.
    """

    model_type: ClassVar[str] = "deberta-v2"
    presence: ClassVar[tuple[str, ...]] = BERT_SIZES

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    embedding_size: int | None = None
    attention_head_size: int | None = None
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    pooler_hidden_size: int | None = None
    pooler_hidden_act: str = "gelu"
    pooler_dropout: float = 0.0
    cls_dropout: float | None = None
    relative_attention: bool = False
    max_relative_positions: int = -1
    position_buckets: int = -1
    pos_att_type: tuple[str, ...] = ()
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    position_biased_input: bool = True
    legacy: bool = True
    conv_kernel_size: int = 0
    conv_act: str = "tanh"
    conv_groups: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [kind for kind in self.pos_att_type if kind not in {"c2p", "p2c"}]
        if unknown:
            raise ConfigError(
                "pos_att_type",
                f"config pos_att_type={list(self.pos_att_type)!r}: expected any of c2p, p2c",
                value=self.pos_att_type,
            )
        if self.pooler_hidden_size not in (None, self.hidden_size):
            raise ConfigError(
                "pooler_hidden_size",
                f"config pooler_hidden_size={self.pooler_hidden_size}: must be the hidden_size, "
                f"{self.hidden_size}",
                value=self.pooler_hidden_size,
            )
        for key in ("embedding_size", "attention_head_size"):
            if getattr(self, key) is not None:
                check_number(key, getattr(self, key), 1)
        if self.position_buckets == 1:
            raise ConfigError(
                "position_buckets",
                "config position_buckets=1: expected 2 or more, or -1 for none",
                value=1,
            )
        if self.conv_kernel_size > 0:
            self._check_convolution()

    def _check_convolution(self) -> None:
        check_activation("conv_act", self.conv_act)
        if self.conv_kernel_size % 2 == 0:
            raise ConfigError(
                "conv_kernel_size",
                f"config conv_kernel_size={self.conv_kernel_size}: expected an odd number, which "
                "keeps the length of a text",
                value=self.conv_kernel_size,
            )
        if self.conv_groups < 1 or self.hidden_size % self.conv_groups:
            raise ConfigError(
                "conv_groups",
                f"config conv_groups={self.conv_groups}: does not divide the hidden_size, "
                f"{self.hidden_size}",
                value=self.conv_groups,
            )

    @classmethod
    def read_field(cls, key: str, value: Any, kind: str) -> Any:
        """Return the value of one field; ``pos_att_type`` may be ``"c2p|p2c"``."""
        if key == "pos_att_type" and isinstance(value, str):
            return tuple(part.strip() for part in value.lower().split("|") if part.strip())
        return super().read_field(key, value, kind)

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
            embedding=self.hidden_size if self.embedding_size is None else self.embedding_size,
            pad=self.pad_token_id,
            eps=self.layer_norm_eps,
            activation=self.hidden_act,
            dropout=self.hidden_dropout_prob,
            attention_dropout=self.attention_probs_dropout_prob,
        )

    def activation_keys(self) -> tuple[str, ...]:
        """Return the fields that name activations."""
        return ("hidden_act", "pooler_hidden_act")

    def head_dropout(self, shape: str) -> float:
        """Return the dropout in the head ``sequence``, ``token`` or ``question``."""
        if shape == "sequence" and self.cls_dropout is not None:
            return self.cls_dropout
        return super().head_dropout(shape)

    def head_width(self) -> int:
        """Return the width of one attention head."""
        given = self.attention_head_size
        return self.hidden_size // self.num_attention_heads if given is None else given

    def reach(self) -> int:
        """Return the largest relative position that is told apart from larger ones."""
        given = self.max_relative_positions
        return self.max_position_embeddings if given < 1 else given

    def span(self) -> int:
        """Return half the rows of the relative position table."""
        return self.position_buckets if self.position_buckets > 0 else self.reach()

    def normalizes_table(self) -> bool:
        """Return whether there is a norm for the relative position table."""
        return "layer_norm" in [part.strip() for part in self.norm_rel_ebd.lower().split("|")]

    @classmethod
    def deberta_v3_base(cls) -> Self:
        """Return the sizes and switches of ``microsoft/deberta-v3-base``."""
        return cls(
            vocab_size=128100,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
            relative_attention=True,
            position_buckets=256,
            pos_att_type=("p2c", "c2p"),
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
            pooler_hidden_size=768,
        )
