"""What can go wrong in watching a run."""

from __future__ import annotations

from flodl.core.errors import ConfigError, FlodlError


class MonitorFinished(ConfigError):
    """Something was reported to a monitor after its end."""


class MetricTypeError(FlodlError, TypeError):
    """A metric's value is not a single real number."""


class MonitorExportError(FlodlError):
    """A file about the run cannot be written; the ``__cause__`` says why."""


class MissingExtraError(FlodlError, ImportError):
    """A library is not installed that an extra of this package brings."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(
            f"{what} needs a library that is not installed",
            hint=f"pip install 'flodl[{extra}]'",
        )
        self.extra = extra
