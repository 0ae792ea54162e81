"""The scheduler that watches a metric."""

from __future__ import annotations

import logging
import math
from typing import Any, Literal

from flodl.nn.schedulers.base import Schedule, check_count, check_rate

_logger = logging.getLogger(__name__)


class PlateauScheduler(Schedule):
    """Lowers the rate when a metric has stopped improving.

    Args:
        base_lr: The rate until then.
        patience: Observations in a row without improvement after which the rate is lowered.
        factor: What the rate is multiplied by, above 0 and below 1.
        min_lr: The rate never goes below this.
        mode: ``"min"`` when lower metrics are better, ``"max"`` when higher ones are.
        threshold: A metric improves by more than this, or not at all.
    """

    is_reactive = True

    def __init__(
        self,
        base_lr: float,
        patience: int,
        factor: float,
        min_lr: float,
        *,
        mode: Literal["min", "max"] = "min",
        threshold: float = 0.0,
    ) -> None:
        check_rate(self, base_lr=base_lr, min_lr=min_lr, threshold=threshold)
        check_count(self, patience=patience)
        if not 0 < factor < 1:
            raise ValueError(f"PlateauScheduler(factor={factor!r}): must be above 0 and below 1")
        if min_lr > base_lr:
            raise ValueError(f"PlateauScheduler(min_lr={min_lr!r}): is above base_lr={base_lr!r}")
        if mode not in ("min", "max"):
            raise ValueError(f'PlateauScheduler(mode={mode!r}): must be "min" or "max"')
        self._settings: dict[str, Any] = {
            "base_lr": base_lr,
            "patience": patience,
            "factor": factor,
            "min_lr": min_lr,
            "mode": mode,
            "threshold": threshold,
        }
        self._current = base_lr
        self._best: float | None = None
        self._waited = 0

    def lr(self, step: int = 0) -> float:
        """Return the current rate; the step makes no difference."""
        return super().lr(step)

    def _rate(self, step: int) -> float:  # noqa: ARG002 - the shape of every scheduler
        return self._current

    def observe(self, metric: float) -> float:
        """Take in one value of the metric, and return the rate from now on.

        NaN counts as no improvement and is logged.
        """
        value = float(metric)
        if math.isnan(value):
            _logger.warning("PlateauScheduler observed NaN; it counts as no improvement")
        elif self._improves(value):
            self._best, self._waited = value, 0
            return self._current
        self._waited += 1
        if self._waited >= self._settings["patience"]:
            self._waited = 0
            lowered = self._current * self._settings["factor"]
            self._current = max(lowered, self._settings["min_lr"])
        return self._current

    def _improves(self, value: float) -> bool:
        if self._best is None:
            return True
        gain = self._best - value if self._settings["mode"] == "min" else value - self._best
        return bool(gain > self._settings["threshold"])

    def to_dict(self) -> dict[str, Any]:
        """Return the settings; what was observed is in ``state_dict``."""
        return {"type": "PlateauScheduler"} | self._settings

    def observed(self) -> dict[str, Any]:
        """Return the rate, the best metric and how long it has not improved."""
        return {"lr": self._current, "best": self._best, "waited": self._waited}

    def restore(self, observed: dict[str, Any]) -> None:
        """Take over what ``observed`` returned."""
        current, best, waited = observed["lr"], observed["best"], observed["waited"]
        self._current, self._best, self._waited = current, best, waited

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"PlateauScheduler({settings})"
