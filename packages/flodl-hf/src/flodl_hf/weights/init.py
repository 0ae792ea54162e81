"""Fresh values for parameters that no file has, as the reference initializes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from flodl_hf.weights.read import assign


def initialize(
    graph: nn.Module,
    names: Collection[str],
    *,
    std: float,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Give parameters fresh values on the CPU: normal weights, zero biases, unit norms, zero pads.

    Args:
        graph: The model.
        names: Keys of its ``state_dict``.
        std: Standard deviation of weights.
        generator: Source of the random numbers; a fixed seed when left out, so that all ranks of
            a run begin alike.
        dtype: Of the fresh values; that of the parameter when left out.
    """
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    fresh: dict[str, Tensor] = {}
    state = graph.state_dict(keep_vars=True)
    for name in sorted(names):
        path, _, leaf = name.rpartition(".")
        module = graph.get_submodule(path)
        shape, kind = state[name].shape, dtype or state[name].dtype
        if leaf == "bias":
            value = torch.zeros(shape, dtype=kind)
        elif isinstance(module, nn.LayerNorm):
            value = torch.ones(shape, dtype=kind)
        else:
            value = torch.empty(shape).normal_(0.0, std, generator=generator).to(kind)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                value[module.padding_idx] = 0
        fresh[name] = value
    assign(graph, fresh)


def set_sinusoids(graph: nn.Module) -> None:
    """Give the table of positions sines and cosines, and freeze it; after Vaswani et al. (2017)."""
    name = next(name for name in graph.state_dict() if name.endswith("position_embeddings.weight"))
    table = graph.get_parameter(name)
    rows, width = table.shape
    even = torch.arange(width, dtype=torch.float64) // 2 * 2
    angles = torch.arange(rows, dtype=torch.float64)[:, None] / 10_000 ** (even / width)
    is_cosine = torch.arange(width) % 2 == 1
    with torch.no_grad():
        table.copy_(torch.where(is_cosine, angles.cos(), angles.sin()))
    table.requires_grad_(False)


def give_memory(graph: nn.Module, dtypes: Mapping[str, torch.dtype]) -> None:
    """Give every parameter memory on the CPU; the values are not set, a load must follow.

    Args:
        graph: The model.
        dtypes: By key; float32 for keys that are not in it.
    """
    state = graph.state_dict(keep_vars=True)
    assign(
        graph,
        {
            name: torch.empty(tensor.shape, dtype=dtypes.get(name, torch.float32))
            for name, tensor in state.items()
        },
    )
