"""The stream on which a step is warmed up and captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """One stream for warm-up and capture: library handles belong to a stream.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None

    @property
    def stream(self) -> torch.cuda.Stream:
        """The stream, made when first asked for."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        return self._stream

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run a block on the stream, in order with what the current one does."""
        side, current = self.stream, torch.cuda.current_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            yield
        current.wait_stream(side)
