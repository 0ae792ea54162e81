"""Parts of a checkpoint that are copied while training waits, and written while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from flodl.checkpoint import TensorCopy, save_checkpoint
from flodl.checkpoint.format import canonical_json
from flodl.checkpoint.optim import StateDocument
from flodl.engine.drafts import PartWriter

Tensors = dict[str, Tensor]


class PartCopies:
    """Copies of all that goes into parts, and what writes each part from them."""

    def __init__(self) -> None:
        self._sources: Tensors = {}
        self._copies: list[TensorCopy] = []
        self._writers: dict[str, Callable[[Path, Tensors], None]] = {}

    def add(
        self, suffix: str, tensors: Mapping[str, Tensor], write: Callable[[Path, Tensors], None]
    ) -> None:
        """Register a part: its tensors, and what writes them to a file."""
        self._sources |= {f"{suffix}:{name}": tensor for name, tensor in tensors.items()}
        self._writers[suffix] = write

    def add_state(self, suffix: str, state: StateDocument) -> None:
        """Register a part that is a state file."""
        self.add(suffix, state.tensors, state.write)

    def copy(self) -> None:
        """Copy what was registered since the last time; it may change from now on."""
        self._copies.append(TensorCopy(self._sources))
        self._sources = {}

    def writers(self) -> dict[str, PartWriter]:
        """Return what writes each part; waits for copies from a GPU.

        What was registered and not copied is written as it is at that time.
        """
        copies: Tensors = dict(self._sources)
        for copy in self._copies:
            copies |= copy.tensors()
        found: dict[str, PartWriter] = {}
        for suffix, write in self._writers.items():
            own = {
                name.removeprefix(f"{suffix}:"): tensor
                for name, tensor in copies.items()
                if name.startswith(f"{suffix}:")
            }
            found[suffix] = partial(_written, write, own)
        return found


def _written(write: Callable[[Path, Tensors], None], tensors: Tensors, file: Path) -> None:
    write(file, tensors)


def model_part(
    model: nn.Module, meta: Mapping[str, Any], names: Collection[str] | None = None
) -> tuple[Tensors, Callable[[Path, Tensors], None]]:
    """Return what a model's part is made of: its tensors, and what writes them to a file.

    Args:
        model: The model.
        meta: Stored with it.
        names: Tensors that are wanted; by default all.
    """
    tensors: Tensors = model.state_dict(keep_vars=True)
    if names is not None:
        tensors = {name: tensors[name] for name in names}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = sorted(name for name in tensors if name not in parameters)
    options: dict[str, Any] = {
        "hash": str(getattr(model, "structural_hash", "")),
        "meta": dict(meta),
        "extra": {"fdl.buffers": canonical_json(buffers)} if buffers else {},
    }
    return tensors, lambda file, own: save_checkpoint(file, own, **options)
