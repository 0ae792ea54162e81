"""The run as Prometheus reads it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Response

from flodl.records.board import RunBoard
from flodl.web.errors import ApiError

MAX_PATHS = 512
_VRAM = {"vram_alloc": "allocated", "vram_total": "total"}


def prometheus_routes(board: RunBoard) -> APIRouter:
    """Return the route ``/metrics``."""
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        try:
            library: Any = importlib.import_module("prometheus_client")
        except ImportError as error:
            hint = "needs a library: pip install 'flodl[prometheus]'"
            raise ApiError(501, "missing_extra", hint) from error
        registry = library.CollectorRegistry()
        registry.register(RunCollector(board, library))
        text = library.generate_latest(registry)
        return Response(text, headers={"content-type": library.CONTENT_TYPE_LATEST})

    return router


class RunCollector:
    """Collects a board's numbers when it is asked to.

    Args:
        board: The run.
        library: The module ``prometheus_client``.
    """

    def __init__(self, board: RunBoard, library: Any) -> None:
        self._board = board
        self._gauge = library.metrics_core.GaugeMetricFamily
        self._counter = library.metrics_core.CounterMetricFamily

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics."""
        yield from self._nodes()
        yield from self._run()

    def _nodes(self) -> Iterator[Any]:
        metric = self._gauge("flodl_metric", "Latest value of a metric.", labels=["path", "key"])
        util = self._gauge("flodl_gpu_util_ratio", "Mean use of GPUs, 0 to 1.", labels=["path"])
        vram = self._gauge("flodl_vram_bytes", "Memory of GPUs.", labels=["path", "kind"])
        tree = self._board.tree
        for path in tree.paths()[:MAX_PATHS]:
            state = tree.current(path) or {}
            for key, value in state.get("metrics", {}).items():
                metric.add_metric([path, key], float("nan") if value is None else value)
            res = state.get("res", {})
            if "gpu_util" in res:
                util.add_metric([path], res["gpu_util"] / 100)
            for key, kind in _VRAM.items():
                if key in res:
                    vram.add_metric([path, kind], res[key])
        yield from (metric, util, vram)

    def _run(self) -> Iterator[Any]:
        progress = self._board.progress
        if "epoch" in progress:
            yield self._gauge("flodl_epoch", "Epochs done.", value=progress["epoch"])
        if progress.get("eta") is not None:
            yield self._gauge("flodl_eta_seconds", "Seconds left.", value=progress["eta"])
        ranks = self._gauge("flodl_ranks", "Ranks by state.", labels=["state"])
        for state, count in self._ranks().items():
            ranks.add_metric([state], count)
        alerts = self._counter("flodl_alerts", "Alerts by class.", labels=["class"])
        totals: dict[str, int] = {}
        for alert in self._board.tree.alerts():
            totals[alert["class"]] = totals.get(alert["class"], 0) + alert["total"]
        for name, total in totals.items():
            alerts.add_metric([name], total)
        dropped = self._counter("flodl_dropped", "What readers have lost.", labels=["where"])
        for where, count in self._board.losses().items():
            dropped.add_metric([where], count)
        yield from (ranks, alerts, dropped)

    def _ranks(self) -> dict[str, int]:
        counts = {"alive": 0, "lost": 0}
        tree = self._board.tree
        for path in tree.paths():
            state = tree.current(path)
            if state is not None and "children" not in state:
                counts["alive" if state["alive"] else "lost"] += 1
        return counts
