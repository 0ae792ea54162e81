"""From the older pickled files to safetensors: the one place that opens a pickle, on request.

``torch.load(weights_only=True)`` reads tensors and plain containers, and refuses everything that
could run code.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint import write_atomically
from flodl_hf.errors import WeightsError
from flodl_hf.weights.keymap import BIAS_COPIES, TABLE_COPIES, WORD_TABLE
from flodl_hf.weights.source import WEIGHTS_NAME, read_index
from flodl_hf.weights.write import write_tensors

PICKLE_NAME = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"


def convert_pickle(
    source: Path,
    out: Path,
    *,
    config: Path | None = None,
    origin: dict[str, str] | None = None,
    force: bool = False,
) -> Path:
    """Write the tensors of a pickled file as ``model.safetensors``, and say where they come from.

    Args:
        source: A ``.bin`` file, or the index of several.
        out: Folder for ``model.safetensors``, ``config.json`` and ``provenance.json``; made if
            need be.
        config: ``config.json`` to copy.
        origin: What to record of the source, such as repository and commit.
        force: Convert again when the folder already has a conversion.

    Returns:
        The file of weights; when it is there already, nothing is done.

    Raises:
        WeightsError: The file holds more than tensors, or cannot be read or written.
    """
    target = out / WEIGHTS_NAME
    if target.is_file() and not force:
        return target
    parts = sorted(set(read_index(source).values())) if source.suffix == ".json" else [source]
    tensors: dict[str, Tensor] = {}
    digests = {}
    for part in parts:
        digests[part.name] = _digest(part)
        for name, tensor in read_pickle(part).items():
            if name in tensors:
                raise WeightsError(f"{part}: {name!r} is in another part, too")
            tensors[name] = tensor
    kept = without_copies(tensors)
    record: dict[str, Any] = {
        **(origin or {"source": str(source)}),
        "sha256": digests,
        "versions": {name: version(name) for name in ("torch", "safetensors", "flodl-hf")},
    }
    out.mkdir(parents=True, exist_ok=True)
    # The weights come last: they are what says that a conversion is there.
    if config is not None and config.resolve() != (out / "config.json").resolve():
        _write(out / "config.json", config.read_bytes())
    _write(out / "provenance.json", (json.dumps(record, indent=2, sort_keys=True) + "\n").encode())
    write_tensors(kept, target)
    return target


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a pickled file; nothing in it is run.

    Raises:
        WeightsError: It cannot be read, or holds something else than tensors by name.
    """
    try:
        with warnings.catch_warnings():
            # torch warns of pickle protocols it seldom meets, then reads or refuses them.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damage makes torch's reader run into errors of any kind
        raise WeightsError(
            f"{path}: refused: {_reason(error)}",
            hint="the file is damaged, or holds objects that could run code: it was not run",
        ) from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: holds a {type(content).__name__}, not tensors by name")
    for name, value in content.items():
        if not isinstance(value, Tensor):
            raise WeightsError(
                f"{path}: {name!r} is a {type(value).__name__}, not a tensor",
                hint="take the file of the model's weights alone",
            )
        if value.is_meta or value.is_quantized or value.layout != torch.strided:
            kind = "meta" if value.is_meta else f"{value.layout}, {value.dtype}"
            raise WeightsError(
                f"{path}: {name!r} is a tensor that safetensors cannot hold ({kind})",
                hint="take the original weights, dense and not quantized",
            )
    return {str(name): tensor for name, tensor in content.items()}


def _reason(error: Exception) -> str:
    """Return what torch found, without its advice to read the file unsafely."""
    text = str(error).rpartition("WeightsUnpickler error:")[2]
    lines = (line.strip() for line in text.splitlines())
    found = (line for line in lines if line and "weights_only" not in line)
    return next(found, type(error).__name__)[:200]


def without_copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that share no memory, without equal copies of the shared ones."""
    kept = dict(tensors)
    tables = [name for name in tensors if name.endswith(WORD_TABLE)]
    pairs = [(copy, table) for copy in TABLE_COPIES for table in tables]
    pairs += list(BIAS_COPIES.items())
    for copy, name in pairs:
        if copy in kept and name in kept and torch.equal(kept[copy], kept[name]):
            del kept[copy]
    return {name: tensor.detach().clone().contiguous() for name, tensor in kept.items()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    try:
        with write_atomically(path) as file:
            file.write(content)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be written: {error}") from error
