"""XLM-RoBERTa: its names, and its classes."""

from __future__ import annotations

from dataclasses import replace

from flodl_hf.config.bert import XlmRobertaConfig
from flodl_hf.families.backbone import Backbone
from flodl_hf.families.roberta import ROBERTA
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead

XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta", class_stem="XLMRoberta")


class XlmRobertaModel(Backbone):
    """Makes XLM-RoBERTa backbones."""

    spec = XLM_ROBERTA
    config_class = XlmRobertaConfig


class XlmRobertaForSequenceClassification(SequenceHead):
    """XLM-RoBERTa as a classifier of texts."""

    spec = XLM_ROBERTA
    config_class = XlmRobertaConfig


class XlmRobertaForTokenClassification(TokenHead):
    """XLM-RoBERTa as a classifier of tokens."""

    spec = XLM_ROBERTA
    config_class = XlmRobertaConfig


class XlmRobertaForQuestionAnswering(QuestionHead):
    """XLM-RoBERTa as answers from a context."""

    spec = XLM_ROBERTA
    config_class = XlmRobertaConfig


class XlmRobertaForMaskedLM(MaskedHead):
    """XLM-RoBERTa as a masked language model."""

    spec = XLM_ROBERTA
    config_class = XlmRobertaConfig
