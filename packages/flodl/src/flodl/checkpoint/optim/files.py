"""Saving and loading the state of anything that has one, as a file without code in it."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, runtime_checkable

import torch
from torch import Tensor

from flodl.checkpoint.format import canonical_json
from flodl.checkpoint.load import LoadReport
from flodl.checkpoint.optim.image import OptimizerImage, from_json, image_of, to_json
from flodl.checkpoint.optim.match import load_image
from flodl.checkpoint.optim.reader import Source, StateFile, damaged, read_state_file
from flodl.checkpoint.optim.values import Json, MalformedStateError, decode, encode
from flodl.checkpoint.save import save_checkpoint
from flodl.core.errors import CheckpointError, StateMismatchError

STATE_KINDS = ("optimizer", "grad_scaler", "scheduler", "sampler", "loader")
_TORCH_KINDS: dict[type, str] = {
    torch.optim.Optimizer: "optimizer",
    torch.optim.lr_scheduler.LRScheduler: "scheduler",
    torch.amp.GradScaler: "grad_scaler",
}


@runtime_checkable
class Stateful(Protocol):
    """Has a state of plain values and tensors, and says what kind of thing it belongs to."""

    state_kind: str
    """``optimizer``, ``grad_scaler``, ``scheduler``, ``sampler`` or ``loader``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Take over a state."""
        ...


HasState = (
    Stateful | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler
)


def save_state_file(obj: HasState, path: str | os.PathLike[str]) -> None:
    """Save a state to a file, by custom named ``.optim``; compressed if it ends in ``.gz``.

    The file is replaced in one step and holds the old state after any error or kill. Equal states
    give equal bytes. The folder must exist.

    Args:
        obj: One of flodl's optimizers, scalers, schedulers, samplers or loaders, or torch's own.
        path: The file.

    Raises:
        CheckpointError: The state holds something that cannot be stored, or the file cannot be
            written.
        TypeError: ``obj`` has no state.
    """
    _save(obj, path)


def save_state(obj: HasState, fp: BinaryIO) -> None:
    """Save a state as :func:`save_state_file` does, to an open binary file."""
    _save(obj, fp)


def load_state_file(
    obj: HasState, path: str | os.PathLike[str], *, strict: bool = True, cast: bool = False
) -> LoadReport:
    """Make ``obj`` go on where the saved one was.

    A load that raises has changed nothing. Parameters of optimizers are matched by name where
    both sides have names, else by position. State goes to the device of its parameter, in the
    dtype it was saved in; tensors that are there already, learning rates too, are written in
    place. Which implementation computes the step is not taken over.

    Args:
        obj: Of the same class as the saved one.
        path: The file, compressed or not.
        strict: Whether other parameters or groups are an error, and Adam and AdamW different
            classes.
        cast: Convert the state of a floating parameter to the parameter's dtype.

    Raises:
        StateFileError: The file cannot be read; ``reason`` says why.
        StateMismatchError: The file is sound, but belongs to something else.
        TypeError: ``obj`` has no state.
    """
    return _load(obj, path, strict=strict, cast=cast)


def load_state(
    obj: HasState, fp: BinaryIO, *, strict: bool = True, cast: bool = False
) -> LoadReport:
    """Load a state as :func:`load_state_file` does, from an open, seekable binary file."""
    return _load(obj, fp, strict=strict, cast=cast)


def write_image(target: str | os.PathLike[str] | BinaryIO, image: OptimizerImage) -> None:
    """Write a state file from an image of an optimizer."""
    _write(target, "optimizer", *to_json(image))


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDocument:
    """What a state file is made of; its tensors may be replaced by copies before it is written.

    Attributes:
        kind: What kind of thing the state belongs to.
        document: JSON values that name the tensors.
        tensors: The tensors themselves, not copied.
    """

    kind: str
    document: Json
    tensors: dict[str, Tensor]

    def write(self, target: str | os.PathLike[str] | BinaryIO, tensors: dict[str, Tensor]) -> None:
        """Write the state file with these tensors in place of its own."""
        _write(target, self.kind, self.document, tensors)


def state_document(obj: HasState) -> StateDocument:
    """Return what :func:`save_state_file` would write of an object.

    Raises:
        CheckpointError: The state holds something that cannot be stored.
        TypeError: ``obj`` has no state.
    """
    kind = state_kind_of(obj)
    if isinstance(obj, torch.optim.Optimizer):
        document, tensors = to_json(image_of(obj))
        return StateDocument(kind=kind, document=document, tensors=tensors)
    tensors = {}
    value = encode(obj.state_dict(), tensors, "state")
    document = {"class": type(obj).__name__, "value": value}
    return StateDocument(kind=kind, document=document, tensors=tensors)


def state_kind_of(obj: object) -> str:
    """Return the kind of state that an object has.

    Raises:
        TypeError: It has none.
    """
    kind = getattr(obj, "state_kind", None)
    if kind is None:
        kind = next((name for base, name in _TORCH_KINDS.items() if isinstance(obj, base)), None)
    if kind not in STATE_KINDS:
        raise TypeError(
            f"{type(obj).__name__} has no state to save: it needs state_dict, load_state_dict and "
            f"a state_kind of {', '.join(STATE_KINDS)}"
        )
    return str(kind)


def _save(obj: HasState, target: str | os.PathLike[str] | BinaryIO) -> None:
    state = state_document(obj)
    state.write(target, state.tensors)


def _write(
    target: str | os.PathLike[str] | BinaryIO,
    kind: str,
    document: Json,
    tensors: dict[str, Tensor],
) -> None:
    save_checkpoint(
        target, tensors, hash="", kind=kind, extra={"fdl.state": canonical_json(document)}
    )


def _load(obj: HasState, source: Source, *, strict: bool, cast: bool) -> LoadReport:
    own = state_kind_of(obj)
    file = read_state_file(source)
    if file.kind != own:
        raise StateMismatchError(
            file.name, None, "wrong kind", f"it holds the state of a {file.kind}, not of a {own}"
        )
    if isinstance(obj, torch.optim.Optimizer):
        try:
            image = from_json(file.document, file.tensors)
        except ValueError as error:
            raise damaged(file.name, error) from error
        return load_image(image, obj, strict=strict, cast=cast, name=file.name)
    state = _plain_state(obj, file)
    before = copy.deepcopy(obj.state_dict())
    try:
        obj.load_state_dict(state)
    except Exception as error:
        obj.load_state_dict(before)
        raise StateMismatchError(
            file.name, None, "state not accepted", f"{type(obj).__name__}: {error}"
        ) from error
    return LoadReport((), (), (), (), hash_checked=False, path=file.name)


def _plain_state(obj: HasState, file: StateFile) -> dict[str, Any]:
    try:
        kind, value = file.document["class"], decode(file.document["value"], file.tensors)
    except (KeyError, TypeError, MalformedStateError) as error:
        raise damaged(file.name, error) from error
    if kind != type(obj).__name__:
        raise StateMismatchError(
            file.name,
            None,
            "wrong class",
            f"it is the state of {kind}, not of {type(obj).__name__}",
            hint=f"build {kind}, which the file was saved from",
        )
    if not isinstance(value, dict):
        raise damaged(file.name, CheckpointError(f"the state is a {type(value).__name__}, no map"))
    return value
