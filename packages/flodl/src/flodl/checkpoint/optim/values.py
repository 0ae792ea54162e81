"""Nested plain values with tensors among them, as JSON that names the tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from flodl.core.errors import CheckpointError

Json = Any
"""What the json module reads and writes."""


class MalformedStateError(ValueError):
    """JSON that no writer of state files produces; its text ends up in the error users see."""


def encode(value: object, tensors: dict[str, Tensor], place: str) -> Json:
    """Return a value as JSON, and put its tensors into ``tensors`` under their place.

    Raises:
        CheckpointError: Something in it is neither plain nor a tensor; the message says where.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, Tensor):
        tensors[place] = value
        return {"tensor": place}
    if isinstance(value, list):
        return [encode(item, tensors, f"{place}/{index}") for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": encode(list(value), tensors, place)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            "map": {key: encode(item, tensors, f"{place}/{key}") for key, item in value.items()}
        }
    raise CheckpointError(
        f"cannot store the state at {place!r}: it is {type(value).__name__}",
        hint="a state holds text, numbers, booleans, None, tensors, and lists, tuples and maps "
        "with text keys of these",
    )


def decode(value: Json, tensors: Mapping[str, Tensor]) -> Any:
    """Return what ``encode`` was given.

    Raises:
        MalformedStateError: The JSON is not of ``encode``, or names a tensor that is not there.
    """
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise MalformedStateError(f"a map with the keys {sorted(value)}")
    ((kind, content),) = value.items()
    if kind == "tensor" and isinstance(content, str) and content in tensors:
        return tensors[content]
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(decode(content, tensors))
    if kind == "map" and isinstance(content, dict):
        return {key: decode(item, tensors) for key, item in content.items()}
    raise MalformedStateError(f"an unknown {kind!r} of {content!r:.60}")
