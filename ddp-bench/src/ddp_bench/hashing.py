"""Hashes of tensors: equal bits, equal hash."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def state_hash(model: nn.Module) -> str:
    """Return the SHA-256 over all parameters, then all buffers, in order.

    Names do not count, so that two ways to write one model can be compared.
    """
    digest = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return the values of a tensor of any type, row by row, as they lie in memory."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy())
