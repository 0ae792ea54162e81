"""BERT: its names, and its classes."""

from __future__ import annotations

from flodl_hf.config.bert import BertConfig
from flodl_hf.encoder.spec import BERT_LAYER, FamilySpec
from flodl_hf.families.backbone import Backbone
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

BERT = FamilySpec(
    model_type="bert",
    class_stem="Bert",
    prefix="bert",
    layer_key="encoder.layer.{i}",
    layer=BERT_LAYER,
)


class BertModel(Backbone):
    """Makes BERT backbones."""

    spec = BERT
    config_class = BertConfig


class BertForSequenceClassification(SequenceHead):
    """BERT as a classifier of texts."""

    spec = BERT
    config_class = BertConfig


class BertForTokenClassification(TokenHead):
    """BERT as a classifier of tokens."""

    spec = BERT
    config_class = BertConfig


class BertForQuestionAnswering(QuestionHead):
    """BERT as answers from a context."""

    spec = BERT
    config_class = BertConfig


class BertForMaskedLM(MaskedHead):
    """BERT as a masked language model."""

    spec = BERT
    config_class = BertConfig
