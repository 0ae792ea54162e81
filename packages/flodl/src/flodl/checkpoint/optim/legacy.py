"""Optimizer states of the Rust original: binary files without a header, little endian."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint.optim.image import GroupImage, OptimizerImage, ParameterImage
from flodl.core.errors import StateFileError

_DTYPES = {
    1: torch.float16,
    2: torch.bfloat16,
    3: torch.float32,
    4: torch.float64,
    5: torch.int32,
    6: torch.int64,
}
_MAX_DIMS = 64


class _Cursor:
    """Takes values from the front of the bytes; what is not there is an error at its offset."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.position = 0

    def fail(self, reason: str, detail: str) -> StateFileError:
        return StateFileError(
            self.name,
            self.position,
            reason,
            detail,
            hint="check that optimizer= names the class that the file was saved from",
        )

    def take(self, count: int) -> bytes:
        part = self.data[self.position : self.position + count]
        if len(part) < count:
            raise self.fail("truncated", f"{count} bytes should follow, {len(part)} do")
        self.position += count
        return part

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def tensor(self) -> Tensor | None:
        present = self.number("B")
        if present not in (0, 1):
            raise self.fail("damaged state", f"a flag is {present}, it must be 0 or 1")
        if not present:
            return None
        dims = self.number("I")
        if dims > _MAX_DIMS:
            raise self.fail("damaged state", f"a tensor of {dims} dimensions")
        shape = [self.number("q") for _ in range(dims)]
        dtype = _DTYPES.get(self.number("B"))
        size = self.number("Q")
        if dtype is None or min(shape, default=0) < 0:
            raise self.fail("damaged state", f"a tensor of shape {shape} with an unknown dtype")
        if size != math.prod(shape) * dtype.itemsize:
            raise self.fail("damaged state", f"{size} bytes for shape {shape} of {dtype}")
        data = bytearray(self.take(size))
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()

    def groups(self, count: int, settings: dict[str, Any]) -> tuple[GroupImage, ...]:
        """Return the groups, which hold each parameter once; none stand for one group of all."""
        ranges = [
            (self.number("d"), self.number("q"), self.number("q")) for _ in range(self.number("I"))
        ]
        if not ranges:
            return (GroupImage(settings=settings, members=tuple(range(count))),)
        covered = sorted((start, stop) for _, start, stop in ranges)
        ends = [0, *(stop for _, stop in covered)]
        if [start for start, _ in covered] != ends[:-1] or ends[-1] != count:
            raise self.fail(
                "damaged state", f"groups {covered} do not hold {count} parameters once"
            )
        return tuple(
            GroupImage(settings={**settings, "lr": lr}, members=tuple(range(start, stop)))
            for lr, start, stop in ranges
        )

    def end(self) -> None:
        if self.position != len(self.data):
            rest = len(self.data) - self.position
            raise self.fail("trailing bytes", f"{rest} bytes are left over")


def read_legacy(data: bytes, kind: str, name: str) -> OptimizerImage:
    """Return the image of a file that the Rust original saved from an optimizer of this class.

    Raises:
        StateFileError: The bytes are not of that layout, or no layout is known for the class.
    """
    reader = _LAYOUTS.get(kind)
    if reader is None:
        raise StateFileError(
            name,
            None,
            "not a state file",
            f"the Rust original saved no {kind}; it saved {', '.join(sorted(_LAYOUTS))}",
        )
    cursor = _Cursor(data, name)
    image = reader(cursor)
    cursor.end()
    return image


def _parameter(state: dict[str, Tensor | None]) -> ParameterImage:
    present = {key: value for key, value in state.items() if value is not None}
    moments = [value for value in present.values() if value.dim()]
    like = moments[0] if moments else None
    return ParameterImage(
        name=None,
        shape=None if like is None else tuple(like.shape),
        dtype=None if like is None else like.dtype,
        state=dict(present),
    )


def _adam(cursor: _Cursor, kind: str = "Adam", **settings: float) -> OptimizerImage:
    count, lr, steps = cursor.number("I"), cursor.number("d"), cursor.number("q")
    parameters = []
    for _ in range(count):
        moments = {"exp_avg": cursor.tensor(), "exp_avg_sq": cursor.tensor()}
        begun = all(value is not None for value in moments.values())
        step = torch.tensor(float(steps)) if begun else None
        parameters.append(_parameter({"step": step, **moments} if begun else {}))
    groups = cursor.groups(count, {"lr": lr, **settings})
    return OptimizerImage(kind=kind, groups=groups, parameters=tuple(parameters))


def _adamw(cursor: _Cursor) -> OptimizerImage:
    return _adam(cursor, "AdamW", weight_decay=cursor.number("d"))


def _sgd(cursor: _Cursor) -> OptimizerImage:
    count, lr, weight_decay = cursor.number("I"), cursor.number("d"), cursor.number("d")
    parameters = [_parameter({"momentum_buffer": cursor.tensor()}) for _ in range(count)]
    groups = cursor.groups(count, {"lr": lr, "weight_decay": weight_decay})
    return OptimizerImage(kind="SGD", groups=groups, parameters=tuple(parameters))


def _rmsprop(cursor: _Cursor) -> OptimizerImage:
    count = cursor.number("I")
    names = ("lr", "alpha", "eps", "weight_decay", "momentum")
    settings = {name: cursor.number("d") for name in names}
    parameters = []
    for _ in range(count):
        average, buffer = cursor.tensor(), cursor.tensor()
        # torch counts steps but computes nothing from the count.
        step = None if average is None else torch.tensor(0.0)
        state = {"step": step, "square_avg": average, "momentum_buffer": buffer}
        parameters.append(_parameter(state))
    groups = cursor.groups(count, settings)
    return OptimizerImage(kind="RMSprop", groups=groups, parameters=tuple(parameters))


_LAYOUTS: dict[str, Callable[[_Cursor], OptimizerImage]] = {
    "Adam": _adam,
    "AdamW": _adamw,
    "RMSprop": _rmsprop,
    "SGD": _sgd,
}
