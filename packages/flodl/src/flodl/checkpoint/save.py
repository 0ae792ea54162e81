"""Saving named tensors, of any module, as one checkpoint file."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from flodl.checkpoint.content import write_container
from flodl.checkpoint.files import CHUNK_BYTES, gzip_into, os_error_hint, write_atomically
from flodl.checkpoint.format import (
    FORMAT_VERSION,
    MAX_META_BYTES,
    NAME_OF_DTYPE,
    canonical_json,
)
from flodl.core.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


def save_checkpoint(
    path: str | os.PathLike[str] | BinaryIO,
    source: nn.Module | Mapping[str, torch.Tensor],
    hash: str | None = None,  # noqa: A002 - the published name of the argument
    *,
    label: str = "",
    meta: Mapping[str, Any] | None = None,
    kind: str = "model",
    extra: Mapping[str, str] | None = None,
) -> None:
    """Save parameters and persistent buffers to a ``.fdl`` file, or to an open binary file.

    A path is replaced in one step: after any error, Ctrl-C or kill it holds the old file. A path
    that ends in ``.gz`` is compressed. Tied tensors are stored once. Values are written as they
    are, dtype included; only one tensor at a time is copied.

    Args:
        path: Where to write; the folder must exist.
        source: A module, or tensors by name.
        hash: Structural hash to store; by default the module's own, if it has one.
        label: Name stored with the file.
        meta: Your own JSON values, at most one mebibyte of text.
        kind: What the file holds; ``"model"`` for parameters.
        extra: More ``fdl.*`` metadata.

    Raises:
        CheckpointError: A tensor cannot be stored, or the file cannot be written; the message
            names the reason.
    """
    tensors, buffers = _named_tensors(source)
    _check_storable(tensors)
    stored, aliases = _without_aliases(tensors)
    metadata = {
        "format": "fdl",
        "fdl.version": str(FORMAT_VERSION),
        "fdl.min_reader": str(FORMAT_VERSION),
        "fdl.kind": kind,
        "fdl.hash": _structural_hash(source) if hash is None else hash,
        "fdl.label": label,
        "fdl.flodl": _flodl_version(),
        "fdl.torch": str(torch.__version__),
        **(extra or {}),
    }
    if aliases:
        metadata["fdl.aliases"] = canonical_json(aliases)
    if buffers:
        metadata["fdl.buffers"] = canonical_json(sorted(buffers))
    if meta is not None:
        metadata["fdl.meta"] = _meta_json(meta)
    _write(path, metadata, stored)


def _write(
    path: str | os.PathLike[str] | BinaryIO,
    metadata: Mapping[str, str],
    tensors: Mapping[str, torch.Tensor],
) -> None:
    if not isinstance(path, str | os.PathLike):
        with tempfile.TemporaryFile() as whole:
            write_container(whole, metadata, tensors)
            whole.seek(0)
            shutil.copyfileobj(whole, path, CHUNK_BYTES)
        return
    try:
        with write_atomically(path) as file:
            if Path(path).suffix == ".gz":
                with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent) as plain:
                    write_container(plain, metadata, tensors)
                    gzip_into(plain, file)
            else:
                write_container(file, metadata, tensors)
    except OSError as error:
        raise CheckpointError(
            f"cannot write checkpoint {os.fspath(path)}: {error.strerror or error}; "
            "what was there before is unchanged",
            hint=os_error_hint(error),
        ) from error


def _named_tensors(
    source: nn.Module | Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], list[str]]:
    if not isinstance(source, nn.Module):
        return dict(source), []
    tensors: dict[str, torch.Tensor] = source.state_dict(keep_vars=True)
    parameters = {name for name, _ in source.named_parameters(remove_duplicate=False)}
    return dict(tensors), [name for name in tensors if name not in parameters]


def _check_storable(tensors: Mapping[str, object]) -> None:
    problems = [
        f"{name}: {problem}"
        for name, value in tensors.items()
        if (problem := _why_not_storable(value)) is not None
    ]
    if problems:
        raise CheckpointError(
            "cannot save as a checkpoint: " + "; ".join(problems),
            hint="pass the tensors to save by name: save_checkpoint(path, {name: tensor, …})",
        )


def _why_not_storable(value: object) -> str | None:
    if not isinstance(value, torch.Tensor):
        return f"is no tensor but {type(value).__name__}"
    if is_lazy(value):
        return "is not initialized yet; run one forward first"
    if value.is_meta:
        return "is on the meta device and has no values"
    if value.dtype not in NAME_OF_DTYPE:
        return f"has dtype {value.dtype}; storable are {', '.join(map(str, NAME_OF_DTYPE))}"
    # __tensor_flatten__ marks tensors that are made of others: sharded, quantized, nested.
    if value.layout is not torch.strided or hasattr(value, "__tensor_flatten__"):
        return (
            "is no plain dense tensor (sparse, quantized or spread over devices): convert it first"
        )
    return None


def _without_aliases(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Keep the first name, in name order, of tensors that are the same memory."""
    stored: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first_name: dict[tuple[object, ...], str] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = first_name.setdefault(place, name) if tensor.numel() else name
        if first == name:
            stored[name] = tensor
        else:
            aliases[name] = first
    return stored, aliases


def _structural_hash(source: object) -> str:
    return str(getattr(source, "structural_hash", ""))


def _flodl_version() -> str:
    try:
        return version("flodl")
    except PackageNotFoundError:
        # Run from a source tree that is not installed.
        return "unknown"


def _meta_json(meta: Mapping[str, Any]) -> str:
    try:
        text = canonical_json(dict(meta))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"meta cannot be stored as JSON: {error}",
            hint="use only text, finite numbers, booleans, None, lists and maps with text keys",
        ) from error
    if len(text.encode()) > MAX_META_BYTES:
        raise CheckpointError(
            f"meta takes {len(text.encode())} bytes of JSON; {MAX_META_BYTES} are possible",
            hint="keep large values in a file of their own",
        )
    return text
