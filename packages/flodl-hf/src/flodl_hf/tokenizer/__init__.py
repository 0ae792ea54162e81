"""Texts to tensors. The ``tokenizers`` library is loaded when the first tokenizer is made."""

from flodl_hf.tokenizer.encoded import EncodedBatch as EncodedBatch
from flodl_hf.tokenizer.tokenizer import HfTokenizer as HfTokenizer

__all__ = ["EncodedBatch", "HfTokenizer"]
