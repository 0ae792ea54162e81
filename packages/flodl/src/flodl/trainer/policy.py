"""Which rank does what one rank does for all."""

from __future__ import annotations

from dataclasses import dataclass

from flodl.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EpochCallbackPolicy:
    """Who evaluates and saves after an epoch.

    Attributes:
        number: The rank that was named; ``None`` for the fastest.
    """

    number: int | None = None

    @classmethod
    def fastest(cls) -> EpochCallbackPolicy:
        """Return the policy that takes the rank with the shortest batches, and stays with it."""
        return cls()

    @classmethod
    def rank(cls, number: int) -> EpochCallbackPolicy:
        """Return the policy that takes one rank; when it is lost, the fastest takes over.

        Raises:
            ConfigError: The number is negative.
        """
        if isinstance(number, bool) or number < 0:
            raise ConfigError(f"rank({number!r}): must be a whole number of at least 0")
        return cls(number)
