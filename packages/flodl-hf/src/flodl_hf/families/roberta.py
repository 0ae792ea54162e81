"""RoBERTa: its names, and its classes."""

from __future__ import annotations

from flodl_hf.config.bert import RobertaConfig
from flodl_hf.encoder.spec import BERT_LAYER, FamilySpec
from flodl_hf.families.backbone import Backbone
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

ROBERTA = FamilySpec(
    model_type="roberta",
    class_stem="Roberta",
    prefix="roberta",
    layer_key="encoder.layer.{i}",
    layer=BERT_LAYER,
    positions="offset",
    mask_token="<mask>",  # noqa: S106 - a token of texts
    sequence_head="first_token",
    masked_head="lm_head",
)


class RobertaModel(Backbone):
    """Makes RoBERTa backbones."""

    spec = ROBERTA
    config_class = RobertaConfig


class RobertaForSequenceClassification(SequenceHead):
    """RoBERTa as a classifier of texts."""

    spec = ROBERTA
    config_class = RobertaConfig


class RobertaForTokenClassification(TokenHead):
    """RoBERTa as a classifier of tokens."""

    spec = ROBERTA
    config_class = RobertaConfig


class RobertaForQuestionAnswering(QuestionHead):
    """RoBERTa as answers from a context."""

    spec = ROBERTA
    config_class = RobertaConfig


class RobertaForMaskedLM(MaskedHead):
    """RoBERTa as a masked language model."""

    spec = ROBERTA
    config_class = RobertaConfig
