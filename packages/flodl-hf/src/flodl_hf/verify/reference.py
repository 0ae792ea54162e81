"""Reference files: what the oracle computes for a cell, kept with where it came from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from torch import Tensor

from flodl_hf.hub.fetch import HubOptions, locate
from flodl_hf.verify.cells import Cell
from flodl_hf.verify.export import our_outputs
from flodl_hf.verify.oracle import Sample, library, load_oracle, outputs_of, write_reference

_LENGTHS = (16, 9, 3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A reference file that was written, and how far flodl is from it."""

    cell: Cell
    file: Path
    difference: float
    """Largest difference of flodl's numbers, relative to the largest output if that is above 1."""

    @property
    def passed(self) -> bool:
        """Whether flodl gives the same numbers, within the cell's tolerance."""
        return self.difference <= self.cell.tolerance


def write_parity(cell: Cell, folder: Path, *, offline: bool) -> Reference:
    """Write what the oracle computes for a cell, as ``<folder>/<cell>.safetensors``.

    The file holds ``input_ids``, ``attention_mask`` and the outputs; its metadata the versions of
    the reference library and of torch, the source with its revision, and the digest of the weights.

    Args:
        cell: The family and the shape.
        folder: Where the file goes.
        offline: Take a seeded tiny model that the reference writes, instead of the published one.

    Raises:
        HfError: The model cannot be had, or the reference library is not there.
    """
    with TemporaryDirectory(prefix="flodl-hf-") as name:
        if offline:
            source = Path(name)
            write_reference(Sample(family=cell.family, head=cell.head), source)
            origin = {"source": "seeded tiny model", "revision": "seed 0"}
        else:
            files = locate(cell.repo, HubOptions())
            source = files.require("model.safetensors").parent
            origin = {"source": cell.repo, "revision": files.revision or ""}
        return _write(cell, folder, source, origin)


def _write(cell: Cell, folder: Path, source: Path, origin: dict[str, str]) -> Reference:
    oracle, missing, unexpected = load_oracle(source, cell.head)
    inputs = _inputs(int(oracle.config.vocab_size), int(oracle.config.pad_token_id or 0))
    expected = outputs_of(oracle, cell.head, inputs)
    metadata = {
        **origin,
        "transformers": library().__version__,
        "torch": torch.__version__,
        "weights_sha256": _digest(source / "model.safetensors"),
        "missing_keys": json.dumps(sorted(missing)),
        "unexpected_keys": json.dumps(sorted(unexpected)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{cell.name}.safetensors"
    temporary = file.with_suffix(".tmp")
    tensors = {name: value.contiguous() for name, value in {**inputs, **expected}.items()}
    save_file(tensors, temporary, metadata)
    temporary.replace(file)
    return Reference(cell=cell, file=file, difference=_difference(cell, source, inputs, expected))


def _inputs(vocab_size: int, pad: int) -> dict[str, Tensor]:
    """Return three rows of other lengths, padded, the same for every run."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(_LENGTHS), max(_LENGTHS))
    ids = torch.randint(5, vocab_size, shape, generator=generator)
    mask = torch.arange(shape[1])[None, :] < torch.tensor(_LENGTHS)[:, None]
    return {"input_ids": ids.masked_fill(~mask, pad), "attention_mask": mask.long()}


def _difference(
    cell: Cell, source: Path, inputs: dict[str, Tensor], expected: dict[str, Tensor]
) -> float:
    found = our_outputs(source, cell.head, inputs)
    return max(
        float((value - expected[name]).abs().max()) / max(1.0, float(expected[name].abs().max()))
        for name, value in found.items()
    )


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
