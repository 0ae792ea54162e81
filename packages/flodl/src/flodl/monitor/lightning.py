"""A run of PyTorch Lightning, followed by a monitor; loads only where Lightning is installed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

from flodl.core.paths import ROOT
from flodl.monitor.errors import MissingExtraError
from flodl.monitor.monitor import EndStatus, Monitor
from flodl.records.node import NodeReport

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_END: Mapping[str, EndStatus] = {"success": "complete", "failed": "failed", "aborted": "aborted"}


def _lightning(module: str) -> Any:
    for package in _PACKAGES:
        try:
            return importlib.import_module(f"{package}.{module}")
        except ImportError:
            continue
    raise MissingExtraError("FlodlLogger", extra="lightning")


_Logger: Any = _lightning("loggers.logger").Logger
_on_rank_zero: Any = _lightning("utilities").rank_zero_only


class FlodlLogger(_Logger):  # type: ignore[misc] # the base is Lightning's, where it is installed
    """Shows what a Lightning trainer logs in a monitor: lines, portal, files, sinks.

    What is logged within an epoch becomes its records; the newest values of an epoch are its
    line, which comes when the next epoch logs or the run ends. Only the first rank logs.

    Args:
        monitor: The monitor; it is finished when the trainer is done with the logger.

    Raises:
        MissingExtraError: When this module is imported, and Lightning is not installed.
    """

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor
        self._epoch = 0
        self._tick = 0
        self._latest: dict[str, float] = {}
        self._epoch_began = time.monotonic()

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._monitor.name or "flodl"

    @property
    def version(self) -> str:
        """Identity of the run."""
        return str(self._monitor.board.tree.run["id"])

    @property
    def experiment(self) -> Monitor:
        """The monitor."""
        return self._monitor

    @_on_rank_zero  # type: ignore[untyped-decorator] # Lightning's own
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record what the trainer logs; called by Lightning."""
        values = {key: float(value) for key, value in metrics.items() if key != "epoch"}
        epoch = int(metrics.get("epoch", self._epoch))
        if epoch > self._epoch:
            self._end_epoch()
            self._epoch = epoch
        self._latest.update(values)
        report = NodeReport(path=ROOT, metrics=values, tick=self._tick, epoch=epoch, step=step)
        self._tick += 1
        self._monitor.board.start()
        self._monitor.board.tree.publish([report])

    @_on_rank_zero  # type: ignore[untyped-decorator] # Lightning's own
    def log_hyperparams(self, params: Any, *_args: Any, **_more: Any) -> None:
        """Show the settings of the run; called by Lightning."""
        settings = dict(params if isinstance(params, Mapping) else vars(params))
        self._monitor.set_metadata(settings)

    @_on_rank_zero  # type: ignore[untyped-decorator] # Lightning's own
    def finalize(self, status: str) -> None:
        """Log the last epoch and finish the monitor; called by Lightning."""
        if self._latest:
            self._end_epoch()
        self._monitor.finish(status=_END.get(status, "failed"))

    def _end_epoch(self) -> None:
        now = time.monotonic()
        seconds, self._epoch_began = now - self._epoch_began, now
        self._monitor.log(self._epoch, seconds, self._latest)
        self._latest = {}
