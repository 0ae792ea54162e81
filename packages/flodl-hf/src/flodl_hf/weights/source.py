"""Stored tensors by name, from a file, several files, bytes, or a mapping."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from torch import Tensor

from flodl_hf.errors import WeightsError
from flodl_hf.weights.direct import DirectFile

INDEX_NAME = "model.safetensors.index.json"
WEIGHTS_NAME = "model.safetensors"

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class TensorSource(Protocol):
    """Tensors that are read one at a time."""

    title: str

    def names(self) -> list[str]:
        """Return all names."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        ...

    def dtype(self, name: str) -> torch.dtype | str:
        """Return a floating dtype, or the stored name of another one."""
        ...

    def read(self, name: str) -> Tensor:
        """Return a tensor."""
        ...


class MappingSource:
    """Tensors that are in memory already."""

    def __init__(self, tensors: Mapping[str, Tensor], title: str) -> None:
        self.title = title
        self._tensors = tensors

    def names(self) -> list[str]:
        """Return all names."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> torch.dtype | str:
        """Return a floating dtype, or the name of another one."""
        dtype = self._tensors[name].dtype
        return dtype if dtype in _DTYPES.values() else str(dtype).removeprefix("torch.")

    def read(self, name: str) -> Tensor:
        """Return a copy, so that the model does not share memory with the mapping."""
        return self._tensors[name].detach().clone()


class FileSource:
    """Tensors in one or more safetensors files.

    Args:
        files: File of each tensor; ``None`` for the only file, whose names are then all taken.
        mmap: Return tensors that are the mapped file, instead of copies.
    """

    def __init__(
        self, stack: ExitStack, files: Mapping[str, Path] | Path, title: str, *, mmap: bool
    ) -> None:
        self.title = title
        self._direct: dict[int, DirectFile] | None = None if mmap else {}
        self._of: dict[str, Any] = {}
        if isinstance(files, Path):
            opened = self._open(stack, files)
            self._of = dict.fromkeys(opened.keys(), opened)
            return
        by_path = {path: self._open(stack, path) for path in sorted(set(files.values()))}
        for name, path in files.items():
            if name not in by_path[path].keys():  # noqa: SIM118 - no mapping, only keys()
                raise WeightsError(
                    f"{title}: {name!r} should be in {path.name}, which does not have it",
                    hint="copy or download the files again",
                )
            self._of[name] = by_path[path]

    def _open(self, stack: ExitStack, path: Path) -> Any:
        try:
            opened = stack.enter_context(safe_open(path, framework="pt"))
            if self._direct is not None:
                file = stack.enter_context(FileIO(path))
                self._direct[id(opened)] = DirectFile(file, str(path))
            return opened
        except (SafetensorError, OSError) as error:
            size = f", {path.stat().st_size} bytes long" if path.is_file() else ""
            raise WeightsError(
                f"{path}{size}: cannot be read: {error}", hint="copy or download the file again"
            ) from error

    def names(self) -> list[str]:
        """Return all names."""
        return list(self._of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        return tuple(self._of[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype | str:
        """Return a floating dtype, or the stored name of another one."""
        stored: str = self._of[name].get_slice(name).get_dtype()
        return _DTYPES.get(stored, stored)

    def read(self, name: str) -> Tensor:
        """Return a tensor; without ``mmap`` one that needs no file any more."""
        opened, dtype = self._of[name], self.dtype(name)
        if self._direct is None or not isinstance(dtype, torch.dtype):
            tensor: Tensor = opened.get_tensor(name)
            return tensor
        return self._direct[id(opened)].read(name, self.shape(name), dtype)


def open_source(
    stack: ExitStack,
    source: str | os.PathLike[str] | bytes | Mapping[str, Tensor],
    *,
    mmap: bool = False,
) -> TensorSource:
    """Return the tensors of a file, a directory with one or with shards, bytes, or a mapping.

    Raises:
        WeightsError: They cannot be read.
    """
    if isinstance(source, Mapping):
        return MappingSource(source, "the mapping")
    if isinstance(source, bytes):
        try:
            return MappingSource(load_bytes(source), f"{len(source)} bytes")
        except SafetensorError as error:
            raise WeightsError(f"{len(source)} bytes: no safetensors content: {error}") from error
    path = Path(source)
    if path.is_dir():
        single = path / WEIGHTS_NAME
        path = single if single.is_file() else path / INDEX_NAME
    if path.name.endswith(".index.json"):
        return FileSource(stack, read_index(path), str(path), mmap=mmap)
    return FileSource(stack, path, str(path), mmap=mmap)


def read_index(path: Path) -> dict[str, Path]:
    """Return the file of each tensor that an index of shards names.

    Raises:
        WeightsError: It is no index, or names files outside its directory.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): str(file) for name, file in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path}: no index of shards ({error})",
            hint="a directory needs model.safetensors, or model.safetensors.index.json",
        ) from error
    for file in set(files.values()):
        if file in {"", ".", ".."} or "/" in file or "\\" in file:
            raise WeightsError(f"{path}: names {file!r}; shards must lie beside the index")
    return {name: path.parent / file for name, file in files.items()}
