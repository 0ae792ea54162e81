"""What can go wrong around the portal's server."""

from __future__ import annotations

from flodl.core.errors import ConfigError, FlodlError


class DashboardBindError(FlodlError):
    """The server cannot listen where it was told to."""


class DashboardAlreadyServing(ConfigError):
    """The portal is served already, on another port."""


class ApiError(Exception):
    """A request that cannot be answered; becomes the JSON error of the response.

    Args:
        status: HTTP status.
        code: Short name of what is wrong, for programs.
        message: What is wrong, for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def body(self) -> dict[str, dict[str, str]]:
        """Return the JSON form."""
        return {"error": {"code": self.code, "message": self.message}}
