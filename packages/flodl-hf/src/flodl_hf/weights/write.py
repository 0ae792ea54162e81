"""Writing a graph's tensors as the reference does: its names, one file or shards."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from flodl.checkpoint import write_atomically
from flodl_hf.errors import WeightsError
from flodl_hf.weights.source import INDEX_NAME, WEIGHTS_NAME

MAX_SHARD_BYTES = 5_000_000_000


def save_safetensors_from(graph: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the tensors of a graph to one file, under their checkpoint names, in their dtypes.

    The file is replaced in one step.

    Raises:
        WeightsError: It cannot be written; what was there before is unchanged.
    """
    write_tensors(stored_tensors(graph), Path(path))


def save_sharded_from(
    graph: nn.Module, directory: str | os.PathLike[str], *, max_shard_bytes: int = MAX_SHARD_BYTES
) -> list[Path]:
    """Write the tensors of a graph into a directory, several files if one would be too large.

    Returns:
        The files written; the index of shards last.

    Raises:
        WeightsError: A file cannot be written.
    """
    folder = Path(directory)
    tensors = stored_tensors(graph)
    shards = _shards(tensors, max_shard_bytes)
    if len(shards) == 1:
        write_tensors(tensors, folder / WEIGHTS_NAME)
        return [folder / WEIGHTS_NAME]
    files = [
        folder / f"model-{number:05}-of-{len(shards):05}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    for file, names in zip(files, shards, strict=True):
        write_tensors({name: tensors[name] for name in names}, file)
    index = {
        "metadata": {"total_size": sum(_size(tensor) for tensor in tensors.values())},
        "weight_map": {
            name: file.name for file, names in zip(files, shards, strict=True) for name in names
        },
    }
    with write_atomically(folder / INDEX_NAME) as out:
        out.write((json.dumps(index, indent=2, sort_keys=True) + "\n").encode())
    return [*files, folder / INDEX_NAME]


def stored_tensors(graph: nn.Module) -> dict[str, Tensor]:
    """Return what a file of this graph holds, sorted by name."""
    state = graph.state_dict()
    return {name: state[name].detach().cpu().contiguous() for name in sorted(state)}


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file, replaced in one step.

    Raises:
        WeightsError: It cannot be written.
    """
    try:
        with write_atomically(path) as file:
            # Into the file that is open here, by its name: the library copies no tensor then.
            save_file(dict(tensors), file.name, metadata={"format": "pt"})
    except OSError as error:
        raise WeightsError(
            f"{path}: cannot be written: {error}", hint="check the folder and the free space"
        ) from error


def _shards(tensors: Mapping[str, Tensor], limit: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    filled = 0
    for name, tensor in tensors.items():
        size = _size(tensor)
        if shards[-1] and filled + size > limit:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
