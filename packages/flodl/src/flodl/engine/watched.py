"""Noticing that a step looks at where its batch belongs, which a replay would not do again."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from flodl.data import Batch
from flodl.engine.fallback import CaptureReason, ReasonCode, user_location

_PLACE = ("epoch", "index", "lease_id", "ranges")


class WatchedBatch(Batch):
    """A batch that notes when its place in the epoch is read.

    Args:
        batch: The batch; its tensors are shared.
        reasons: Where a reading is noted.
    """

    __slots__ = ("_place", "_reasons")

    def __init__(self, batch: Batch, reasons: list[CaptureReason]) -> None:
        self._reasons = reasons
        self._place: dict[str, Any] = {}
        super().__init__(
            batch.into_list(),
            batch.names,
            epoch=batch.epoch,
            index=batch.index,
            static=batch.static,
            is_static=batch.is_static,
        )
        self._place["lease_id"], self._place["ranges"] = batch.lease_id, batch.ranges

    def _rebuilt(self, tensors: tuple[Tensor, ...], *, is_static: bool) -> Batch:
        plain = Batch(tensors, self.names, static=self.static, is_static=is_static)
        rebuilt = WatchedBatch(plain, self._reasons)
        rebuilt._place = self._place
        return rebuilt


def _watched(name: str) -> property:
    def read(batch: WatchedBatch) -> Any:
        reason = CaptureReason.of(
            ReasonCode.BAKED_SCALAR,
            f"the step reads batch.{name}, and a replay would repeat what it read",
            user_location(),
            hint="let the number be a tensor of the batch",
        )
        if reason not in batch._reasons:  # noqa: SLF001 - of the class that this is a part of
            batch._reasons.append(reason)  # noqa: SLF001 - as above
        return batch._place[name]  # noqa: SLF001 - as above

    def write(batch: WatchedBatch, value: Any) -> None:
        batch._place[name] = value  # noqa: SLF001 - as above

    return property(read, write)


for _name in _PLACE:
    setattr(WatchedBatch, _name, cast("Any", _watched(_name)))
