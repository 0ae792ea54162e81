"""flodl-hf: Hugging Face checkpoints as flodl graphs.

Names load their module on first use: importing this package loads neither torch nor a library of
the Hub.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flodl_hf.auto import AutoConfig as AutoConfig
    from flodl_hf.auto import AutoModel as AutoModel
    from flodl_hf.auto import AutoModelForMaskedLM as AutoModelForMaskedLM
    from flodl_hf.auto import AutoModelForQuestionAnswering as AutoModelForQuestionAnswering
    from flodl_hf.auto import (
        AutoModelForSequenceClassification as AutoModelForSequenceClassification,
    )
    from flodl_hf.auto import AutoModelForTokenClassification as AutoModelForTokenClassification
    from flodl_hf.config import AlbertConfig as AlbertConfig
    from flodl_hf.config import BertConfig as BertConfig
    from flodl_hf.config import DebertaV2Config as DebertaV2Config
    from flodl_hf.config import DistilBertConfig as DistilBertConfig
    from flodl_hf.config import HfConfig as HfConfig
    from flodl_hf.config import RobertaConfig as RobertaConfig
    from flodl_hf.config import XlmRobertaConfig as XlmRobertaConfig
    from flodl_hf.data import MlmCollator as MlmCollator
    from flodl_hf.data import MlmDataset as MlmDataset
    from flodl_hf.data import PairDataset as PairDataset
    from flodl_hf.data import TextDataset as TextDataset
    from flodl_hf.data import TokenDataset as TokenDataset
    from flodl_hf.data import align_labels as align_labels
    from flodl_hf.encoder.masks import prepare_mask as prepare_mask
    from flodl_hf.errors import ConfigError as ConfigError
    from flodl_hf.errors import DtypeError as DtypeError
    from flodl_hf.errors import EmptyBatchError as EmptyBatchError
    from flodl_hf.errors import HeadError as HeadError
    from flodl_hf.errors import HfError as HfError
    from flodl_hf.errors import HubError as HubError
    from flodl_hf.errors import KeyCollisionError as KeyCollisionError
    from flodl_hf.errors import KeySetError as KeySetError
    from flodl_hf.errors import MaskTokenError as MaskTokenError
    from flodl_hf.errors import MissingExtraError as MissingExtraError
    from flodl_hf.errors import NoPadTokenError as NoPadTokenError
    from flodl_hf.errors import NoSafetensorsError as NoSafetensorsError
    from flodl_hf.errors import OfflineError as OfflineError
    from flodl_hf.errors import RepoIdError as RepoIdError
    from flodl_hf.errors import RepoNotFoundError as RepoNotFoundError
    from flodl_hf.errors import SequenceTooLongError as SequenceTooLongError
    from flodl_hf.errors import TiedWeightError as TiedWeightError
    from flodl_hf.errors import TokenizerError as TokenizerError
    from flodl_hf.errors import TokenizerMismatchError as TokenizerMismatchError
    from flodl_hf.errors import UnsupportedArchitectureError as UnsupportedArchitectureError
    from flodl_hf.errors import UnsupportedModelTypeError as UnsupportedModelTypeError
    from flodl_hf.errors import VerifyError as VerifyError
    from flodl_hf.errors import WeightsError as WeightsError
    from flodl_hf.extras import load_extra as load_extra
    from flodl_hf.families.albert import AlbertForMaskedLM as AlbertForMaskedLM
    from flodl_hf.families.albert import AlbertForQuestionAnswering as AlbertForQuestionAnswering
    from flodl_hf.families.albert import (
        AlbertForSequenceClassification as AlbertForSequenceClassification,
    )
    from flodl_hf.families.albert import (
        AlbertForTokenClassification as AlbertForTokenClassification,
    )
    from flodl_hf.families.albert import AlbertModel as AlbertModel
    from flodl_hf.families.bert import BertForMaskedLM as BertForMaskedLM
    from flodl_hf.families.bert import BertForQuestionAnswering as BertForQuestionAnswering
    from flodl_hf.families.bert import (
        BertForSequenceClassification as BertForSequenceClassification,
    )
    from flodl_hf.families.bert import BertForTokenClassification as BertForTokenClassification
    from flodl_hf.families.bert import BertModel as BertModel
    from flodl_hf.families.deberta_v2 import DebertaV2ForMaskedLM as DebertaV2ForMaskedLM
    from flodl_hf.families.deberta_v2 import (
        DebertaV2ForQuestionAnswering as DebertaV2ForQuestionAnswering,
    )
    from flodl_hf.families.deberta_v2 import (
        DebertaV2ForSequenceClassification as DebertaV2ForSequenceClassification,
    )
    from flodl_hf.families.deberta_v2 import (
        DebertaV2ForTokenClassification as DebertaV2ForTokenClassification,
    )
    from flodl_hf.families.deberta_v2 import DebertaV2Model as DebertaV2Model
    from flodl_hf.families.distilbert import DistilBertForMaskedLM as DistilBertForMaskedLM
    from flodl_hf.families.distilbert import (
        DistilBertForQuestionAnswering as DistilBertForQuestionAnswering,
    )
    from flodl_hf.families.distilbert import (
        DistilBertForSequenceClassification as DistilBertForSequenceClassification,
    )
    from flodl_hf.families.distilbert import (
        DistilBertForTokenClassification as DistilBertForTokenClassification,
    )
    from flodl_hf.families.distilbert import DistilBertModel as DistilBertModel
    from flodl_hf.families.roberta import RobertaForMaskedLM as RobertaForMaskedLM
    from flodl_hf.families.roberta import RobertaForQuestionAnswering as RobertaForQuestionAnswering
    from flodl_hf.families.roberta import (
        RobertaForSequenceClassification as RobertaForSequenceClassification,
    )
    from flodl_hf.families.roberta import (
        RobertaForTokenClassification as RobertaForTokenClassification,
    )
    from flodl_hf.families.roberta import RobertaModel as RobertaModel
    from flodl_hf.families.xlm_roberta import XlmRobertaForMaskedLM as XlmRobertaForMaskedLM
    from flodl_hf.families.xlm_roberta import (
        XlmRobertaForQuestionAnswering as XlmRobertaForQuestionAnswering,
    )
    from flodl_hf.families.xlm_roberta import (
        XlmRobertaForSequenceClassification as XlmRobertaForSequenceClassification,
    )
    from flodl_hf.families.xlm_roberta import (
        XlmRobertaForTokenClassification as XlmRobertaForTokenClassification,
    )
    from flodl_hf.families.xlm_roberta import XlmRobertaModel as XlmRobertaModel
    from flodl_hf.heads.groups import no_decay_groups as no_decay_groups
    from flodl_hf.heads.losses import question_loss as question_loss
    from flodl_hf.heads.losses import sequence_loss as sequence_loss
    from flodl_hf.heads.losses import token_loss as token_loss
    from flodl_hf.heads.question import Answer as Answer
    from flodl_hf.heads.spans import EntitySpan as EntitySpan
    from flodl_hf.heads.token import TokenPrediction as TokenPrediction
    from flodl_hf.tokenizer import EncodedBatch as EncodedBatch
    from flodl_hf.tokenizer import HfTokenizer as HfTokenizer
    from flodl_hf.weights import HfLoadReport as HfLoadReport
    from flodl_hf.weights import load_safetensors_into as load_safetensors_into
    from flodl_hf.weights import save_safetensors_from as save_safetensors_from

_HOMES = {
    "flodl_hf.auto": (
        "AutoConfig",
        "AutoModel",
        "AutoModelForMaskedLM",
        "AutoModelForQuestionAnswering",
        "AutoModelForSequenceClassification",
        "AutoModelForTokenClassification",
    ),
    "flodl_hf.config": (
        "AlbertConfig",
        "BertConfig",
        "DebertaV2Config",
        "DistilBertConfig",
        "HfConfig",
        "RobertaConfig",
        "XlmRobertaConfig",
    ),
    "flodl_hf.data": (
        "MlmCollator",
        "MlmDataset",
        "PairDataset",
        "TextDataset",
        "TokenDataset",
        "align_labels",
    ),
    "flodl_hf.encoder.masks": ("prepare_mask",),
    "flodl_hf.errors": (
        "ConfigError",
        "DtypeError",
        "EmptyBatchError",
        "HeadError",
        "HfError",
        "HubError",
        "KeyCollisionError",
        "KeySetError",
        "MaskTokenError",
        "MissingExtraError",
        "NoPadTokenError",
        "NoSafetensorsError",
        "OfflineError",
        "RepoIdError",
        "RepoNotFoundError",
        "SequenceTooLongError",
        "TiedWeightError",
        "TokenizerError",
        "TokenizerMismatchError",
        "UnsupportedArchitectureError",
        "UnsupportedModelTypeError",
        "VerifyError",
        "WeightsError",
    ),
    "flodl_hf.extras": ("load_extra",),
    "flodl_hf.families.albert": (
        "AlbertForMaskedLM",
        "AlbertForQuestionAnswering",
        "AlbertForSequenceClassification",
        "AlbertForTokenClassification",
        "AlbertModel",
    ),
    "flodl_hf.families.bert": (
        "BertForMaskedLM",
        "BertForQuestionAnswering",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertModel",
    ),
    "flodl_hf.families.deberta_v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2ForQuestionAnswering",
        "DebertaV2ForSequenceClassification",
        "DebertaV2ForTokenClassification",
        "DebertaV2Model",
    ),
    "flodl_hf.families.distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertForQuestionAnswering",
        "DistilBertForSequenceClassification",
        "DistilBertForTokenClassification",
        "DistilBertModel",
    ),
    "flodl_hf.families.roberta": (
        "RobertaForMaskedLM",
        "RobertaForQuestionAnswering",
        "RobertaForSequenceClassification",
        "RobertaForTokenClassification",
        "RobertaModel",
    ),
    "flodl_hf.families.xlm_roberta": (
        "XlmRobertaForMaskedLM",
        "XlmRobertaForQuestionAnswering",
        "XlmRobertaForSequenceClassification",
        "XlmRobertaForTokenClassification",
        "XlmRobertaModel",
    ),
    "flodl_hf.heads.groups": ("no_decay_groups",),
    "flodl_hf.heads.losses": (
        "question_loss",
        "sequence_loss",
        "token_loss",
    ),
    "flodl_hf.heads.question": ("Answer",),
    "flodl_hf.heads.spans": ("EntitySpan",),
    "flodl_hf.heads.token": ("TokenPrediction",),
    "flodl_hf.tokenizer": (
        "EncodedBatch",
        "HfTokenizer",
    ),
    "flodl_hf.weights": (
        "HfLoadReport",
        "load_safetensors_into",
        "save_safetensors_from",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AlbertConfig",
    "AlbertForMaskedLM",
    "AlbertForQuestionAnswering",
    "AlbertForSequenceClassification",
    "AlbertForTokenClassification",
    "AlbertModel",
    "Answer",
    "AutoConfig",
    "AutoModel",
    "AutoModelForMaskedLM",
    "AutoModelForQuestionAnswering",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "BertConfig",
    "BertForMaskedLM",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "ConfigError",
    "DebertaV2Config",
    "DebertaV2ForMaskedLM",
    "DebertaV2ForQuestionAnswering",
    "DebertaV2ForSequenceClassification",
    "DebertaV2ForTokenClassification",
    "DebertaV2Model",
    "DistilBertConfig",
    "DistilBertForMaskedLM",
    "DistilBertForQuestionAnswering",
    "DistilBertForSequenceClassification",
    "DistilBertForTokenClassification",
    "DistilBertModel",
    "DtypeError",
    "EmptyBatchError",
    "EncodedBatch",
    "EntitySpan",
    "HeadError",
    "HfConfig",
    "HfError",
    "HfLoadReport",
    "HfTokenizer",
    "HubError",
    "KeyCollisionError",
    "KeySetError",
    "MaskTokenError",
    "MissingExtraError",
    "MlmCollator",
    "MlmDataset",
    "NoPadTokenError",
    "NoSafetensorsError",
    "OfflineError",
    "PairDataset",
    "RepoIdError",
    "RepoNotFoundError",
    "RobertaConfig",
    "RobertaForMaskedLM",
    "RobertaForQuestionAnswering",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "RobertaModel",
    "SequenceTooLongError",
    "TextDataset",
    "TiedWeightError",
    "TokenDataset",
    "TokenPrediction",
    "TokenizerError",
    "TokenizerMismatchError",
    "UnsupportedArchitectureError",
    "UnsupportedModelTypeError",
    "VerifyError",
    "WeightsError",
    "XlmRobertaConfig",
    "XlmRobertaForMaskedLM",
    "XlmRobertaForQuestionAnswering",
    "XlmRobertaForSequenceClassification",
    "XlmRobertaForTokenClassification",
    "XlmRobertaModel",
    "align_labels",
    "load_extra",
    "load_safetensors_into",
    "no_decay_groups",
    "prepare_mask",
    "question_loss",
    "save_safetensors_from",
    "sequence_loss",
    "token_loss",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
