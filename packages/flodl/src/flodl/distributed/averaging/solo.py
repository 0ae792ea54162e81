"""The average of a lone rank."""

from __future__ import annotations

from typing import final

from torch import Tensor

from flodl.distributed.averaging.exchange import Exchange, Payload, check_weights

__all__ = ["SoloExchange"]


@final
class SoloExchange(Exchange):
    """Gives a rank without peers its own values back."""

    def start(self, payload: Payload) -> None:
        """See `Exchange`."""
        self.sides = payload.side.unsqueeze(0)
        if not payload.is_sum:
            check_weights(self.sides)
        assert payload.values is not None
        self.result = payload.values.clone()

    def advance(self) -> bool:
        """See `Exchange`."""
        return True

    def residual(self) -> Tensor | None:
        """See `Exchange`."""
        return None

    def close(self) -> None:
        """See `Exchange`."""
