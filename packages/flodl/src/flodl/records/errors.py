"""What can be wrong about records."""

from __future__ import annotations

from flodl.core.errors import ConfigError, FlodlError


class ReductionConflict(ConfigError):
    """A reduction was declared for a key whose reduction is fixed, or declared otherwise before."""


class RecordLogError(FlodlError):
    """A record log cannot be opened for writing or reading."""


class TelemetryError(FlodlError):
    """What a rank has sent about itself does not have the agreed form."""
