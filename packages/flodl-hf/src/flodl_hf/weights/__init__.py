"""Checkpoint files: names, strict loading, and writing."""

from flodl_hf.weights.read import load_safetensors_into as load_safetensors_into
from flodl_hf.weights.report import HfLoadReport as HfLoadReport
from flodl_hf.weights.write import save_safetensors_from as save_safetensors_from

__all__ = ["HfLoadReport", "load_safetensors_into", "save_safetensors_from"]
