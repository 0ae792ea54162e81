"""What is wrong with bytes that arrived."""

from __future__ import annotations

from flodl.core.errors import FlodlError

MALFORMED = 4400
TOO_LARGE = 1009


class FrameError(FlodlError):
    """Bytes are no frame of the protocol.

    Args:
        message: What was expected and what came.
        close_code: Code to close the websocket with: 1009 too large, 4400 malformed.
    """

    def __init__(self, message: str, *, close_code: int = MALFORMED) -> None:
        super().__init__(message)
        self.close_code = close_code
