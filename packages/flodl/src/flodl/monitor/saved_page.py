"""The portal as a file: where, how it looks, how large, how often."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flodl.core.errors import ConfigError
from flodl.web.archive import MAX_BYTES, Theme

THEMES: tuple[Theme, ...] = ("auto", "light", "dark")


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedPage:
    """The portal as a file.

    Raises:
        ConfigError: The theme is none, or the interval is not positive.
    """

    path: Path
    theme: Theme = "auto"
    max_bytes: int = MAX_BYTES
    every: float | None = None
    """Seconds between saves while the run goes on; ``None`` saves at its end alone."""

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise ConfigError(
                f"theme={self.theme!r}: must be one of {', '.join(map(repr, THEMES))}"
            )
        if self.every is not None and not self.every > 0:
            raise ConfigError(f"every={self.every}: must be a positive number of seconds, or None")
