"""How many whole batches each device takes between two steps, as ElChe plans it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from flodl.core.errors import ConfigError
from flodl.distributed.config import STABLE, ElCheConfig
from flodl.distributed.config.elche import DEFAULT_ANCHOR
from flodl.distributed.elche import ElChe
from flodl.distributed.replica.config import DdpConfig, TakesEvents
from flodl.records.events import EventKind


def settings_of(config: DdpConfig) -> ElCheConfig:
    """Return what ElChe is told by the settings of a graph's own loop."""
    most = config.max_anchor
    return ElCheConfig.nccl_cadence(
        anchor=DEFAULT_ANCHOR if most is None else min(DEFAULT_ANCHOR, most),
        max_anchor=most,
        overhead_target=config.overhead_target,
        speed_hint=config.speed_hint,
    )


@final
class Cadence:
    """Counts of batches, made anew after each step.

    Args:
        world: Number of devices.
        settings: How counts are made.
        timeline: Is told when the anchor moves.

    Raises:
        ConfigError: A hint names a device that is not there.
    """

    def __init__(
        self, world: int, settings: ElCheConfig, timeline: TakesEvents | None = None
    ) -> None:
        hint = settings.speed_hint
        if hint is not None and hint[0] >= world:
            raise ConfigError(
                f"speed_hint={hint!r}: there is no device {hint[0]}, but 0 to {world - 1}"
            )
        self._elche = ElChe.for_members(list(map(str, range(world))), settings)
        self._timeline = timeline

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the next batches of each device."""
        counts = self._elche.batch_counts
        return tuple(count / sum(counts) for count in counts)

    def begin(self, batches: int | None) -> None:
        """Say how many batches an epoch has, where that is known."""
        if batches:
            self._elche.set_epoch_batches(batches)

    def counts(self, batches: int | None) -> list[int]:
        """Return how many batches each device takes next, at most ``batches`` together."""
        if batches is None:
            return self._elche.batch_counts
        return self._elche.clamp_total(batches)

    def report(self, wall_ms: Sequence[float], batches: Sequence[int], sync_ms: float) -> None:
        """Take what the batches up to a step have shown."""
        before = self._elche.anchor
        self._elche.report_window(wall_ms, batches, sync_ms)
        # No device drifts from another here, as all step with the same gradients.
        self._elche.apply_verdict(STABLE)
        if self._timeline is not None and self._elche.anchor != before:
            self._timeline.event(EventKind.anchor_changed(old=before, new=self._elche.anchor))
