"""DistilBERT: its names, and its classes."""

from __future__ import annotations

from flodl_hf.config.distilbert import DistilBertConfig
from flodl_hf.encoder.spec import FamilySpec, LayerNames
from flodl_hf.families.backbone import Backbone
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

DISTILBERT = FamilySpec(
    model_type="distilbert",
    class_stem="DistilBert",
    prefix="distilbert",
    layer_key="transformer.layer.{i}",
    layer=LayerNames(
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        norm_1="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm_2="output_layer_norm",
    ),
    takes_types=False,
    sums=("position",),
    drops_output=False,
    pooler_key=None,
    sequence_head="pre_classifier",
    masked_head="vocab",
)


class DistilBertModel(Backbone):
    """Makes DistilBERT backbones."""

    spec = DISTILBERT
    config_class = DistilBertConfig


class DistilBertForSequenceClassification(SequenceHead):
    """DistilBERT as a classifier of texts."""

    spec = DISTILBERT
    config_class = DistilBertConfig


class DistilBertForTokenClassification(TokenHead):
    """DistilBERT as a classifier of tokens."""

    spec = DISTILBERT
    config_class = DistilBertConfig


class DistilBertForQuestionAnswering(QuestionHead):
    """DistilBERT as answers from a context."""

    spec = DISTILBERT
    config_class = DistilBertConfig


class DistilBertForMaskedLM(MaskedHead):
    """DistilBERT as a masked language model."""

    spec = DISTILBERT
    config_class = DistilBertConfig
