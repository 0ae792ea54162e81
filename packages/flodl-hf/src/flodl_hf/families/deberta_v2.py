"""DeBERTa-v2 and v3: its names, and its classes."""

from __future__ import annotations

from dataclasses import replace

from flodl_hf.config.deberta import DebertaV2Config
from flodl_hf.encoder.spec import BERT_LAYER, FamilySpec
from flodl_hf.families.backbone import Backbone
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

DEBERTA_V2 = FamilySpec(
    model_type="deberta-v2",
    class_stem="DebertaV2",
    prefix="deberta",
    layer_key="encoder.layer.{i}",
    layer=replace(
        BERT_LAYER,
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
    ),
    sums=("position", "type"),
    pooler_key=None,
    sequence_head="context",
)


class DebertaV2Model(Backbone):
    """Makes DeBERTa-v2 and v3 backbones."""

    spec = DEBERTA_V2
    config_class = DebertaV2Config


class DebertaV2ForSequenceClassification(SequenceHead):
    """DeBERTa-v2 and v3 as a classifier of texts."""

    spec = DEBERTA_V2
    config_class = DebertaV2Config


class DebertaV2ForTokenClassification(TokenHead):
    """DeBERTa-v2 and v3 as a classifier of tokens."""

    spec = DEBERTA_V2
    config_class = DebertaV2Config


class DebertaV2ForQuestionAnswering(QuestionHead):
    """DeBERTa-v2 and v3 as answers from a context."""

    spec = DEBERTA_V2
    config_class = DebertaV2Config


class DebertaV2ForMaskedLM(MaskedHead):
    """DeBERTa-v2 and v3 as a masked language model."""

    spec = DEBERTA_V2
    config_class = DebertaV2Config
