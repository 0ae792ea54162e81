"""The ``config.json`` of each family as a frozen dataclass."""

from flodl_hf.config.albert import AlbertConfig as AlbertConfig
from flodl_hf.config.base import ACTIVATIONS as ACTIVATIONS
from flodl_hf.config.base import HfConfig as HfConfig
from flodl_hf.config.base import Sizes as Sizes
from flodl_hf.config.bert import BertConfig as BertConfig
from flodl_hf.config.bert import RobertaConfig as RobertaConfig
from flodl_hf.config.bert import XlmRobertaConfig as XlmRobertaConfig
from flodl_hf.config.deberta import DebertaV2Config as DebertaV2Config
from flodl_hf.config.distilbert import DistilBertConfig as DistilBertConfig

__all__ = [
    "ACTIVATIONS",
    "AlbertConfig",
    "BertConfig",
    "DebertaV2Config",
    "DistilBertConfig",
    "HfConfig",
    "RobertaConfig",
    "Sizes",
    "XlmRobertaConfig",
]
