"""The exception tree of flodl-hf.

HfError (a FlodlError)         every error flodl-hf raises on purpose
└── MissingExtraError          a feature needs a library that this install profile leaves out
"""

from __future__ import annotations

from flodl.core.errors import FlodlError


class HfError(FlodlError):
    """Base of every error that flodl-hf raises on purpose."""


class MissingExtraError(HfError, ImportError):
    """A feature needs a library that this install profile leaves out.

    Args:
        library: The missing library, as it is imported.
        extra: The extra of flodl-hf that brings it.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is not installed; this flodl-hf has no [{extra}] extra",
            hint=f'pip install "flodl-hf[{extra}]"',
        )
        self.library = library
        self.extra = extra
