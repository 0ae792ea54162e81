"""One rank as its run's feed sees it: who it is, and what it has told and nobody was shown yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.core.resources import Envelope
from flodl.records.hardware import Card
from flodl.records.node import NodeReport
from flodl.records.telemetry import RankTelemetry
from flodl.records.totals import WorkTotals

_PEAKS = {"gpu_util": "gpu_util_max", "vram_alloc": "vram_alloc_max"}
_WHOLE = frozenset({"vram_alloc", "vram_alloc_max", "vram_total", "temp_c"})


class Member:
    """One member of a run.

    Args:
        number: Its number, which it keeps.
        host: Name of its host.
        path: Its record path.
        now: Monotonic seconds.
        label: Name for people, such as the GPU's model.
        device: Physical index of its device.
    """

    def __init__(
        self,
        number: int,
        host: str,
        path: str,
        now: float,
        label: str | None,
        device: int | None,
    ) -> None:
        self.number = number
        self.host = host
        self.path = path
        self.is_lost = False
        self.reported_at = now
        """When it was shown the last time, or joined."""
        self.window = WorkTotals()
        """What it has told since then."""
        self._label = label
        self._device = device
        self._epochs: dict[int, WorkTotals] = {}
        self._means: dict[str, Envelope] = {}
        self._peaks: dict[str, Envelope] = {}
        self._host_res: dict[str, float] = {}
        self._vram_total: float | None = None
        self._resources_at = now

    @property
    def card(self) -> Card | None:
        """Its GPU as far as it has told, ``None`` before it told of any memory."""
        if self._vram_total is None:
            return None
        return Card(self._device, self._label or "GPU", self._vram_total)

    def revive(self, now: float, label: str | None, device: int | None) -> None:
        """Go on after its process was replaced; what counted of it still counts."""
        self.is_lost = False
        self.reported_at = self._resources_at = now
        self._label = label or self._label
        self._device = self._device if device is None else device

    def take(self, telemetry: RankTelemetry, epoch: int | None) -> None:
        """Take in what it told of a window.

        Args:
            telemetry: Its numbers.
            epoch: The running epoch, for telemetry that names none.
        """
        named = epoch if telemetry.epoch is None else telemetry.epoch
        parts = [self.window]
        if named is not None:
            parts.append(self._epochs.setdefault(named, WorkTotals()))
        for part in parts:
            part.add(telemetry.sums, telemetry.work, telemetry.timing)
            part.add_nonfinite(telemetry.nonfinite)
        self.take_resources(telemetry)

    def take_resources(self, telemetry: RankTelemetry) -> None:
        """Take in what it told of its device."""
        for key, value in telemetry.res.items():
            _, mean, high = value if isinstance(value, tuple) else (value, value, value)
            self._means.setdefault(key, Envelope()).add(mean)
            if key == "vram_total":
                self._vram_total = mean
            if key in _PEAKS:
                self._peaks.setdefault(_PEAKS[key], Envelope()).add(high)
        self._host_res.update(telemetry.host_res)
        self._label = telemetry.label or self._label
        self._device = self._device if telemetry.device is None else telemetry.device

    def take_window(self) -> WorkTotals:
        """Return what it has told since it was shown the last time, and start afresh."""
        totals, self.window = self.window, WorkTotals()
        return totals

    def take_epoch(self, epoch: int) -> WorkTotals | None:
        """Return what it has told of an epoch, ``None`` if nothing; older epochs are forgotten."""
        totals = self._epochs.get(epoch)
        self._epochs = {number: held for number, held in self._epochs.items() if number > epoch}
        if not self._epochs:
            self.window = WorkTotals()
        return totals

    def report(
        self, totals: WorkTotals, *, seconds: float, work_of_all: float, **interval: Any
    ) -> NodeReport:
        """Return what the tree is told of a stretch of its work.

        Args:
            totals: The stretch.
            seconds: How long it took.
            work_of_all: Samples of all members in it.
            interval: Fields of the report that say which stretch it is.
        """
        metrics = totals.means()
        if seconds > 0:
            metrics["throughput"] = totals.work / (seconds * 1000)
        if work_of_all > 0:
            metrics["batch_share"] = totals.work / work_of_all
        return NodeReport(
            path=self.path,
            metrics=metrics,
            work=totals.work,
            kwork={k: w for k, w in totals.kwork().items() if k in metrics},
            nonfinite=totals.nonfinite,
            res=self._take_res(),
            host_res=self._take_host_res(),
            label=self._label,
            device=self._device,
            alive=not self.is_lost,
            producer=f"rank{self.number}",
            **interval,
        )

    def resource_report(self, now: float, *, pause_s: float) -> NodeReport | None:
        """Return what it told of its device alone, unless it was shown within the pause."""
        is_recent = now - max(self._resources_at, self.reported_at) < pause_s
        if self.is_lost or is_recent:
            return None
        res, host_res = self._take_res(), self._take_host_res()
        if not res and not host_res:
            return None
        self._resources_at = now
        return NodeReport(
            path=self.path,
            res=res,
            host_res=host_res,
            label=self._label,
            device=self._device,
            producer=f"rank{self.number}",
        )

    def state(self) -> dict[str, Any]:
        """Return who it is, as plain values."""
        return {
            "member": self.number,
            "host": self.host,
            "label": self._label,
            "device": self._device,
            "is_lost": self.is_lost,
        }

    def _take_res(self) -> dict[str, float]:
        means = {key: seen.mean for key, e in self._means.items() if (seen := e.read())}
        peaks = {key: seen.high for key, e in self._peaks.items() if (seen := e.read())}
        res: dict[str, float] = {**means, **peaks}
        if res:
            res["gpus"] = 1
        return {key: round(value) if key in _WHOLE else value for key, value in res.items()}

    def _take_host_res(self) -> Mapping[str, float]:
        host_res, self._host_res = self._host_res, {}
        return host_res
