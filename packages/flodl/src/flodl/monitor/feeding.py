"""What a single process puts on its board: parts of epochs, epochs, and who it is."""

from __future__ import annotations

import time
from typing import Any

from flodl.core.paths import ROOT
from flodl.core.resources import ResourceSample, host_body
from flodl.monitor.devices import Spreads, device_reports, peak_body
from flodl.monitor.history import EpochRecord, feed_body
from flodl.monitor.scope import StepReport
from flodl.records.board import RunBoard
from flodl.records.hardware import Card, hardware_text
from flodl.records.node import NodeReport


class MonitorFeed:
    """Publishes one process's epochs, and counts what lies between them.

    A process with several GPUs has a node for each of them below the root.

    Args:
        board: Where they go.
    """

    def __init__(self, board: RunBoard) -> None:
        self.steps = 0
        """Optimizer steps so far, as far as they were told."""
        self.steps_per_epoch = 0
        """Steps of the newest epoch's loop, as far as they were told."""
        self._board = board
        self._tick = 0
        self._epoch_samples = 0.0

    def end_steps(self, global_step: int, steps: int, samples: float) -> None:
        """Take note of what the epoch to be logged amounts to.

        Args:
            global_step: Optimizer steps of the run at its end.
            steps: Steps of its loop.
            samples: Its samples.
        """
        self.steps, self.steps_per_epoch = global_step, steps
        self._epoch_samples = samples

    def publish_epoch(
        self,
        record: EpochRecord,
        total: int,
        spreads: Spreads,
        *,
        samples: int,
        restart: bool,
    ) -> None:
        """Publish an epoch.

        Args:
            record: The epoch.
            total: Epochs of the run.
            spreads: Extremes of its resources, by device and field.
            samples: What it worked on; 0 for what was noted before.
            restart: Whether it is repeated.
        """
        noted, self._epoch_samples = self._epoch_samples, 0.0
        self._board.set_progress(epoch=record.epoch + 1, total=total, eta=record.eta_secs)
        self._publish(
            record.resources,
            spreads,
            metrics=record.metrics,
            work=samples or int(noted),
            epoch=record.epoch,
            epoch_complete=True,
            step=self.steps or None,
            restart=restart,
        )
        self._board.add_epoch(feed_body(record, total))

    def publish_part(
        self, epoch: int, part: StepReport, sample: ResourceSample, spreads: Spreads
    ) -> None:
        """Publish some steps of an epoch.

        Args:
            epoch: 0-based.
            part: The steps.
            sample: Resources since the part before.
            spreads: Their extremes, by device and field.
        """
        metrics = dict(part.means)
        if part.seconds > 0:
            metrics["throughput"] = part.samples / (part.seconds * 1000)
        self._tick += 1
        self._publish(
            sample,
            spreads,
            metrics=metrics,
            work=part.samples,
            tick=self._tick - 1,
            epoch=epoch,
            step=self.steps,
        )

    def _publish(self, sample: ResourceSample, spreads: Spreads, **fields: Any) -> None:
        self._show_hardware(sample)
        gpus = sample.gpus
        alone = gpus[0] if len(gpus) == 1 else None
        root = NodeReport(
            path=ROOT,
            # several devices report for themselves
            res={} if len(gpus) > 1 else peak_body(sample, spreads),
            host_res=host_body(sample),
            label=None if alone is None else alone.name,
            device=None if alone is None else alone.device_index,
            **fields,
        )
        self._board.tree.publish([root, *device_reports(sample, spreads, **fields)])

    def _show_hardware(self, sample: ResourceSample) -> None:
        cards = [Card(g.device_index, g.name, g.vram_total_bytes) for g in sample.gpus]
        text = hardware_text(cards, threads=sample.cpu_count, ram_total=sample.ram_total_bytes)
        # between two readings there may be none to judge by
        if text:
            self._board.set_hardware(text, cards)


def describe(board: RunBoard, name: str | None, total: int, start_epoch: int) -> None:
    """Say on a board what run of a single process it shows."""
    now_ms = int(time.time() * 1000)
    board.tree.describe(
        id=f"{now_ms:x}",
        label=name,
        hash=None,
        total_epochs=total,
        start_epoch=start_epoch,
        started_ts=now_ms,
        mode="solo",
        reports_per_epoch=0,
    )
    board.set_facts(label=name)
