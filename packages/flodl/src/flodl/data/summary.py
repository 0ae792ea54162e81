"""What a loader does, in one line for the log, and the warning that it does nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flodl.core.units import format_bytes

if TYPE_CHECKING:
    from flodl.data.config import LoaderConfig
    from flodl.data.delivery import Delivery
    from flodl.data.position import Position

logger = logging.getLogger(__name__)


def summary(config: LoaderConfig, position: Position, delivery: Delivery) -> str:
    """Return samples, memory and its reason, batches, order, and what is loaded ahead."""
    verb = "resident on" if delivery.is_resident else "streamed to"
    total = format_bytes(delivery.source.sample_bytes * position.length)
    order = f"seed {config.seed}" if position.is_shuffled else type(position.sampler).__name__
    last = "dropped" if config.drop_last else "kept"
    depth = delivery.depth.depth
    ahead = f"{depth} ahead" if depth else "in the caller's thread"
    return (
        f"{position.length} samples ({total}) {verb} {delivery.device}: "
        f"{delivery.decision.reason}; {position.num_batches()} batches of {config.batch_size}, "
        f"partial batch {last}, order: {order}, loaded {ahead}"
    )


def warn_if_empty(config: LoaderConfig, position: Position) -> None:
    """Warn of epochs without batches, which would train nothing."""
    if not position.num_batches():
        logger.warning(
            "batch_size=%d is more than the %d samples of an epoch and drop_last is on: epochs "
            "have no batches; use a smaller batch_size or drop_last=False",
            config.batch_size,
            position.part_length(),
        )
