"""Libraries that come with an extra: loaded on first use, or named when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from flodl_hf.errors import MissingExtraError


def load_extra(library: str, extra: str) -> ModuleType:
    """Import ``library`` and return it.

    Raises:
        MissingExtraError: It is not installed; names the extra that brings it.
    """
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise MissingExtraError(library, extra) from error
