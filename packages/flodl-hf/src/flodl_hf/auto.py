"""The family is read from ``config.json``; the classes here pick it and load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Unpack

from flodl.graph import Graph
from flodl_hf.config.base import HfConfig, parse_object
from flodl_hf.errors import UnsupportedModelTypeError
from flodl_hf.families.albert import (
    AlbertForMaskedLM,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from flodl_hf.families.backbone import Backbone
from flodl_hf.families.bert import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from flodl_hf.families.deberta_v2 import (
    DebertaV2ForMaskedLM,
    DebertaV2ForQuestionAnswering,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DebertaV2Model,
)
from flodl_hf.families.distilbert import (
    DistilBertForMaskedLM,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)
from flodl_hf.families.roberta import (
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from flodl_hf.families.xlm_roberta import (
    XlmRobertaForMaskedLM,
    XlmRobertaForQuestionAnswering,
    XlmRobertaForSequenceClassification,
    XlmRobertaForTokenClassification,
    XlmRobertaModel,
)
from flodl_hf.heads.base import Head
from flodl_hf.heads.loading import LoadOptions, PretrainedOptions, load_backbone, load_head
from flodl_hf.heads.masked import MaskedHead
from flodl_hf.heads.question import QuestionHead
from flodl_hf.heads.sequence import SequenceHead
from flodl_hf.heads.token import TokenHead
from flodl_hf.hub.fetch import FileSet, HubOptions, locate

BACKBONES: dict[str, type[Backbone]] = {
    "albert": AlbertModel,
    "bert": BertModel,
    "deberta-v2": DebertaV2Model,
    "distilbert": DistilBertModel,
    "roberta": RobertaModel,
    "xlm-roberta": XlmRobertaModel,
}


def family_of(data: Mapping[str, object], title: str) -> str:
    """Return the ``model_type`` of a config.

    Raises:
        UnsupportedModelTypeError: It is none of the families here.
    """
    kind = data.get("model_type")
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise UnsupportedModelTypeError(
            "model_type",
            f"{title}: config model_type={kind!r}; there are {', '.join(BACKBONES)}",
            value=kind,
        )
    return kind


def read_family(files: FileSet) -> str:
    """Return the family of a model's files; see ``family_of``."""
    path = files.require("config.json")
    return family_of(parse_object(path.read_bytes(), str(path)), files.title)


class AutoConfig:
    """Reads a config of any family."""

    @staticmethod
    def from_json(text: str | bytes, title: str = "config") -> HfConfig:
        """Return the config that a text describes, of the class its ``model_type`` names.

        Args:
            text: What a ``config.json`` holds.
            title: Where it is from, for messages.

        Raises:
            ConfigError: It is not legal.
        """
        data = parse_object(text, title)
        return BACKBONES[family_of(data, title)].config_class.from_dict(data)

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        subfolder: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool | None = None,
        token: str | bool | None = None,
    ) -> HfConfig:
        """Return the config of a directory, or of a repository on the Hub.

        Raises:
            ConfigError: It is not legal.
            HubError: It cannot be had.
        """
        options = HubOptions(
            revision=revision,
            subfolder=subfolder,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            token=token,
        )
        files = locate(source, options)
        path = files.require("config.json")
        return AutoConfig.from_json(path.read_bytes(), str(path))


class AutoModel:
    """Loads a backbone of any family."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str],
        *,
        with_pooler: bool | None = False,
        **options: Unpack[PretrainedOptions],
    ) -> Graph:
        """Return the backbone as a graph, in evaluation mode; it returns ``[B, S, H]``.

        Args:
            source: A directory, or ``owner/name``.
            with_pooler: Build the pooler, too, and return ``[B, H]``.
            options: See ``PretrainedOptions``.

        Raises:
            HfError: As ``AutoModelForSequenceClassification.from_pretrained``.
        """
        chosen = LoadOptions(**options)
        files = locate(source, chosen.hub())
        family = BACKBONES[read_family(files)]
        graph, _ = load_backbone(
            files, chosen, family.spec, family.config_class, with_pooler=with_pooler
        )
        return graph


class AutoHead:
    """Loads a head of any family; the classes below say which head."""

    classes: ClassVar[Mapping[str, type[Head]]]

    @classmethod
    def _load(cls, source: str | os.PathLike[str], options: PretrainedOptions) -> Head:
        chosen = LoadOptions(**options)
        files = locate(source, chosen.hub())
        head = cls.classes[read_family(files)]
        return head.from_loaded(load_head(files, chosen, head.kind()))


class AutoModelForSequenceClassification(AutoHead):
    """Loads a classifier of texts of any family."""

    classes: ClassVar[Mapping[str, type[SequenceHead]]] = {
        "albert": AlbertForSequenceClassification,
        "bert": BertForSequenceClassification,
        "deberta-v2": DebertaV2ForSequenceClassification,
        "distilbert": DistilBertForSequenceClassification,
        "roberta": RobertaForSequenceClassification,
        "xlm-roberta": XlmRobertaForSequenceClassification,
    }

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], **options: Unpack[PretrainedOptions]
    ) -> SequenceHead:
        """Return the classifier with its weights and tokenizer, in evaluation mode.

        Args:
            source: A directory, or ``owner/name``.
            options: See ``PretrainedOptions``.

        Raises:
            RepoIdError: ``source`` is neither.
            HubError: Files cannot be had.
            ConfigError: The config is not legal, or of another family.
            KeySetError: The weights are not those of this head; ``new_head=True`` allows a
                backbone without it.
        """
        head = cls._load(source, options)
        assert isinstance(head, SequenceHead)
        return head


class AutoModelForTokenClassification(AutoHead):
    """Loads a classifier of tokens of any family."""

    classes: ClassVar[Mapping[str, type[TokenHead]]] = {
        "albert": AlbertForTokenClassification,
        "bert": BertForTokenClassification,
        "deberta-v2": DebertaV2ForTokenClassification,
        "distilbert": DistilBertForTokenClassification,
        "roberta": RobertaForTokenClassification,
        "xlm-roberta": XlmRobertaForTokenClassification,
    }

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], **options: Unpack[PretrainedOptions]
    ) -> TokenHead:
        """Return the classifier with its weights and tokenizer, in evaluation mode.

        See ``AutoModelForSequenceClassification.from_pretrained``.
        """
        head = cls._load(source, options)
        assert isinstance(head, TokenHead)
        return head


class AutoModelForQuestionAnswering(AutoHead):
    """Loads a model that finds answers in a context, of any family."""

    classes: ClassVar[Mapping[str, type[QuestionHead]]] = {
        "albert": AlbertForQuestionAnswering,
        "bert": BertForQuestionAnswering,
        "deberta-v2": DebertaV2ForQuestionAnswering,
        "distilbert": DistilBertForQuestionAnswering,
        "roberta": RobertaForQuestionAnswering,
        "xlm-roberta": XlmRobertaForQuestionAnswering,
    }

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], **options: Unpack[PretrainedOptions]
    ) -> QuestionHead:
        """Return the model with its weights and tokenizer, in evaluation mode.

        See ``AutoModelForSequenceClassification.from_pretrained``.
        """
        head = cls._load(source, options)
        assert isinstance(head, QuestionHead)
        return head


class AutoModelForMaskedLM(AutoHead):
    """Loads a masked language model of any family."""

    classes: ClassVar[Mapping[str, type[MaskedHead]]] = {
        "albert": AlbertForMaskedLM,
        "bert": BertForMaskedLM,
        "deberta-v2": DebertaV2ForMaskedLM,
        "distilbert": DistilBertForMaskedLM,
        "roberta": RobertaForMaskedLM,
        "xlm-roberta": XlmRobertaForMaskedLM,
    }

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike[str], **options: Unpack[PretrainedOptions]
    ) -> MaskedHead:
        """Return the model with its weights and tokenizer, in evaluation mode.

        See ``AutoModelForSequenceClassification.from_pretrained``.
        """
        head = cls._load(source, options)
        assert isinstance(head, MaskedHead)
        return head
