"""flodl-hf: Hugging Face checkpoints as flodl graphs.

This version holds the package's errors and its install profiles; families and heads follow.
"""

from flodl_hf.errors import HfError as HfError
from flodl_hf.errors import MissingExtraError as MissingExtraError
from flodl_hf.extras import load_extra as load_extra

__all__ = ["HfError", "MissingExtraError", "load_extra"]
