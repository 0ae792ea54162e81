"""What a watched model says about itself: identity, parameter counts, pictures."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from flodl.core.log import warn_once

_logger = logging.getLogger(__name__)


class Watchable(Protocol):
    """A model that can be pictured, such as a graph."""

    @property
    def label(self) -> str | None:
        """Its name."""

    @property
    def structural_hash(self) -> str:
        """Identity of its structure."""

    def svg(self) -> str:
        """Return its picture."""

    def parameters(self) -> Any:
        """Return an iterator over its parameters."""


class ProfiledModel(Watchable, Protocol):
    """A model that can also be pictured by what its parts cost."""

    def svg_with_profile(self) -> str:
        """Return its picture, colored by cost."""


class Counted(Protocol):
    """Anything with parameters."""

    def parameters(self) -> Any:
        """Return an iterator over its parameters."""


def parameter_counts(model: Counted) -> dict[str, int]:
    """Return how many parameters a model has: all, trainable, and frozen."""
    sizes = [(int(p.numel()), bool(p.requires_grad)) for p in model.parameters()]
    trainable = sum(size for size, is_trained in sizes if is_trained)
    total = sum(size for size, _ in sizes)
    return {"total": total, "trainable": trainable, "frozen": total - trainable}


def json_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata whose every value has a JSON form; others become their ``repr``."""
    return {str(key): _json_value(str(key), value) for key, value in meta.items()}


def _json_value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _json_value(f"{key}.{name}", inner) for name, inner in value.items()}
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        warn_once(_logger, "metadata %r has no JSON form; its repr is shown", key)
        return repr(value)
    return value
