"""Data sets of texts for fine-tuning, and the labels that go with their tokens."""

from flodl_hf.data.align import align_labels as align_labels
from flodl_hf.data.datasets import MlmDataset as MlmDataset
from flodl_hf.data.datasets import PairDataset as PairDataset
from flodl_hf.data.datasets import TextDataset as TextDataset
from flodl_hf.data.datasets import TokenDataset as TokenDataset
from flodl_hf.data.masking import MlmCollator as MlmCollator

__all__ = [
    "MlmCollator",
    "MlmDataset",
    "PairDataset",
    "TextDataset",
    "TokenDataset",
    "align_labels",
]
