"""ALBERT: its names, and its classes."""

from __future__ import annotations

from flodl_hf.config.albert import AlbertConfig
from flodl_hf.encoder.spec import FamilySpec, LayerNames
from flodl_hf.families.backbone import Backbone
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

ALBERT = FamilySpec(
    model_type="albert",
    class_stem="Albert",
    prefix="albert",
    layer_key="encoder.albert_layer_groups.{i}",
    layer=LayerNames(
        query="attention.query",
        key="attention.key",
        value="attention.value",
        output="attention.dense",
        norm_1="attention.LayerNorm",
        up="ffn",
        down="ffn_output",
        norm_2="full_layer_layer_norm",
    ),
    drops_ffn=False,
    pooler_key="pooler",
    masked_head="predictions",
)


class AlbertModel(Backbone):
    """Makes ALBERT backbones."""

    spec = ALBERT
    config_class = AlbertConfig


class AlbertForSequenceClassification(SequenceHead):
    """ALBERT as a classifier of texts."""

    spec = ALBERT
    config_class = AlbertConfig


class AlbertForTokenClassification(TokenHead):
    """ALBERT as a classifier of tokens."""

    spec = ALBERT
    config_class = AlbertConfig


class AlbertForQuestionAnswering(QuestionHead):
    """ALBERT as answers from a context."""

    spec = ALBERT
    config_class = AlbertConfig


class AlbertForMaskedLM(MaskedHead):
    """ALBERT as a masked language model."""

    spec = ALBERT
    config_class = AlbertConfig
