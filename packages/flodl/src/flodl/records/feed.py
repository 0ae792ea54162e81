"""From what ranks tell of themselves to the records of a run: paths, rates, intervals, alerts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from flodl.core.errors import ConfigError
from flodl.core.paths import ROOT, RecordTier, natural_key
from flodl.core.resources import ResourceSample
from flodl.records.board import RunBoard
from flodl.records.cadence import ReportSchedule
from flodl.records.errors import TelemetryError
from flodl.records.eta import EtaEstimator
from flodl.records.hardware import hardware_text
from flodl.records.member import Member
from flodl.records.node import NodeReport
from flodl.records.record import Record
from flodl.records.telemetry import RankTelemetry

_RES_PAUSE_S = 1.0
_MOST_GPUS = 64
_FEED_RES = {"gpu": "gpu_util"}
_FEED_FIELDS = ("cpu", "ram_used", "ram_total", "gpu", "vram_alloc", "vram_total")
_logger = logging.getLogger(__name__)

Telemetry = RankTelemetry | Mapping[str, Any]
SampleFn = Callable[[int, str, ResourceSample], object]


class RankFeed:
    """Publishes what the ranks of one run tell; it belongs to whoever directs them.

    It does nothing by itself: no thread, no file, no socket. Not safe to use from several threads
    at once, other than by reading the board.

    Args:
        board: What viewers see.
        tier: Gives each member its path.
        reports_per_epoch: Reports within each epoch; 0 for none.
        on_sample: Told each member's resources as they come, with its number and host; such as
            ``Timeline.rank_sample``.
        clock: Monotonic seconds.

    Raises:
        ConfigError: ``reports_per_epoch`` is negative.

    Examples:
        >>> board = RunBoard()
        >>> feed = RankFeed(board, RecordTier(["alpha", "beta"]))
        >>> for member, host in enumerate(["alpha", "beta"]):
        ...     _ = feed.join(member, host)
        >>> feed.begin_epoch(0, work=40)
        >>> _ = feed.window([{"rank": 0, "work": 30, "sums": {"loss": [1.0, 1]}}])
        >>> _ = feed.window([{"rank": 1, "work": 10, "sums": {"loss": [2.0, 1]}}])
        >>> _ = feed.end_epoch(0, duration_secs=1.0)
        >>> board.tree.current("root")["metrics"]["loss"]
        1.25
    """

    def __init__(
        self,
        board: RunBoard,
        tier: RecordTier,
        *,
        reports_per_epoch: int = 0,
        on_sample: SampleFn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.board = board
        self.malformed = 0
        """Telemetry that was dropped because it was not of the agreed form."""
        self._tree = board.tree
        self._tier = tier
        self._reports = reports_per_epoch
        self._on_sample = on_sample
        self._clock = clock
        self._members: dict[int, Member] = {}
        self._schedule = ReportSchedule(reports_per_epoch, None)
        self._eta: EtaEstimator | None = None
        self._epoch: int | None = None
        self._epoch_work = 0.0
        self._work_of_epoch: float | None = None
        self._restart = False
        self._windows = 0
        self._window_at, self._window_ms = clock(), 0.0
        self._engine: dict[str, float] = {}
        self._newest: dict[str, Any] = {}
        self._warned: set[str] = set()
        board.count_losses("telemetry", lambda: self.malformed)

    # ------------------------------------------------------------ members

    def path(self, member: int) -> str:
        """Return the record path of a member.

        Raises:
            ConfigError: No member of this number has joined.
        """
        return self._member(member).path

    def join(
        self, member: int, host: str, *, label: str | None = None, device: int | None = None
    ) -> str:
        """Show a member, and return its record path; who joins a running epoch is announced.

        Args:
            member: Its number, which it keeps.
            host: Name of its host.
            label: Name for people, such as the GPU's model.
            device: Physical index of its device.
        """
        path = self._tier.path(member, host)
        known = self._members.get(member)
        if known is None:
            self._members[member] = Member(member, host, path, self._clock(), label, device)
        else:
            known.revive(self._clock(), label, device)
        self._tree.publish([NodeReport(path=path, label=label, device=device)])
        self._tree.watch_stalls(on=True)
        if self._epoch is not None:
            self._tree.alert("rank_joined", path, f"rank {member} joined on {host}")
        return path

    def lose(self, member: int, why: str) -> list[Record]:
        """Mark a member as lost and raise the alert; what it still tells is dropped.

        Raises:
            ConfigError: No member of this number has joined.
        """
        held = self._member(member)
        held.is_lost = True
        made = self._tree.alert("rank_lost", held.path, why)
        return made + self._tree.set_alive(held.path, alive=False)

    # ------------------------------------------------------------ epochs and windows

    def begin_epoch(self, epoch: int, *, work: float | None, restart: bool = False) -> None:
        """Begin an epoch; reports within it are spread over its work.

        Args:
            epoch: 0-based.
            work: Samples of the epoch over all ranks; ``None`` for those of the epoch before.
            restart: Whether the run was resumed, or the epoch is repeated.
        """
        self.board.start()
        if work is not None or self._epoch_work:
            self._work_of_epoch = self._epoch_work if work is None else work
        self._epoch, self._epoch_work, self._restart = epoch, 0.0, restart
        self._schedule = ReportSchedule(self._reports, self._work_of_epoch)
        # time between two epochs belongs to no window
        self._window_at, self._window_ms = self._clock(), 0.0

    def window(
        self,
        telemetry: Iterable[Telemetry],
        *,
        step: int | None = None,
        wall_ms: float | None = None,
        engine: Mapping[str, float] | None = None,
    ) -> list[Record]:
        """Take in a window that all its ranks have finished, and report it if that is due.

        Args:
            telemetry: What each rank told of it, as it came.
            step: Global optimizer step at its end.
            wall_ms: What it took; ``None`` for the time since the window before, or since the
                epoch began.
            engine: Values of the run itself, such as ``anchor``, ``sync_ms``, ``d_raw``; they
                are shown at the root.

        Returns:
            The records made; empty where no report is due.
        """
        for one in telemetry:
            checked = self._checked(one)
            if checked is not None:
                member = self._members[checked.rank]
                member.take(checked, self._epoch)
                self._epoch_work += checked.work
        self._windows += 1
        self._engine.update(engine or {})
        now = self._clock()
        self._window_ms += (now - self._window_at) * 1000 if wall_ms is None else wall_ms
        self._window_at = now
        if not self._schedule.is_due(self._epoch_work, now=now):
            return []
        return self._report(step, now)

    def resources(self, telemetry: Telemetry) -> None:
        """Take in what a rank tells of its device alone; shown by the next :meth:`tick`."""
        checked = self._checked(telemetry)
        if checked is not None:
            self._members[checked.rank].take_resources(checked)

    def end_epoch(
        self,
        epoch: int,
        *,
        duration_secs: float,
        step: int | None = None,
        evals: Mapping[str, float] | None = None,
    ) -> list[Record]:
        """Publish an epoch's records: one for each member that worked in it, and those above.

        Args:
            epoch: 0-based.
            duration_secs: What its training took.
            step: Global optimizer step at its end.
            evals: Results of the evaluation, shown at the root.
        """
        members = self._in_order()
        totals = {m.number: t for m in members if (t := m.take_epoch(epoch)) is not None}
        work = sum(total.work for total in totals.values())
        reports = [
            member.report(
                totals[member.number],
                seconds=duration_secs,
                work_of_all=work,
                epoch=epoch,
                epoch_complete=True,
                step=step,
                restart=self._restart,
            )
            for member in members
            if member.number in totals
        ]
        self._restart = False
        made = self._publish(reports, {**self._engine, **(evals or {})})
        self._engine.clear()
        self._show_hardware()
        self._feed_epoch(epoch, duration_secs, reports)
        return made

    def evaluated(self, epoch: int, values: Mapping[str, float]) -> list[Record]:
        """Show the result of an evaluation at the root; it may come when the epoch is over.

        Args:
            epoch: 0-based epoch that was evaluated.
            values: What came of it, by name.
        """
        if self._newest.get("epoch") == epoch + 1:
            self._newest = {**self._newest, "metrics": {**self._newest["metrics"], **values}}
            self.board.amend_epoch(self._newest)
        return self._tree.publish([], engine=values, of_epoch=epoch)

    def tick(self) -> None:
        """Show resources that came by themselves, and tell alerts that are due."""
        now = self._clock()
        reports = [
            report
            for member in self._in_order()
            if (report := member.resource_report(now, pause_s=_RES_PAUSE_S)) is not None
        ]
        if reports:
            self._tree.publish(reports)
        self._show_hardware()
        self._tree.tick()

    # ------------------------------------------------------------ a new controller

    def state(self) -> dict[str, Any]:
        """Return what a controller that takes over must know, as plain values."""
        return {
            "windows": self._windows,
            "members": [member.state() for member in self._in_order()],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where the feed whose :meth:`state` this is has stopped."""
        self._windows = int(state["windows"])
        for held in state["members"]:
            self.join(held["member"], held["host"], label=held["label"], device=held["device"])
            if held["is_lost"]:
                self._members[held["member"]].is_lost = True
                self._tree.set_alive(self.path(held["member"]), alive=False)

    # ------------------------------------------------------------ inside

    def _member(self, member: int) -> Member:
        held = self._members.get(member)
        if held is None:
            joined = ", ".join(str(number) for number in sorted(self._members)) or "none"
            raise ConfigError(f"member {member} has not joined; joined so far: {joined}")
        return held

    def _in_order(self) -> list[Member]:
        return sorted(self._members.values(), key=lambda member: natural_key(member.path))

    def _checked(self, telemetry: Telemetry) -> RankTelemetry | None:
        try:
            if not isinstance(telemetry, RankTelemetry):
                telemetry = RankTelemetry.from_body(telemetry)
            member = self._members.get(telemetry.rank)
            if member is None or member.is_lost:
                raise TelemetryError(f"telemetry: rank {telemetry.rank} does not take part")
        except TelemetryError as error:
            self.malformed += 1
            rank = _named_rank(telemetry)
            if rank not in self._warned:
                self._warned.add(rank)
                _logger.warning("rank %s: what it tells of itself is dropped: %s", rank, error)
            return None
        sample = None if self._on_sample is None else telemetry.sample()
        if self._on_sample is not None and sample is not None:
            self._on_sample(telemetry.rank, member.host, sample)
        if telemetry.left_out:
            detail = f"{telemetry.left_out} metrics had no room in a window's report"
            self._tree.alert("overflow", member.path, detail)
        return telemetry

    def _report(self, step: int | None, now: float) -> list[Record]:
        members = [member for member in self._in_order() if not member.window.is_empty]
        work = sum(member.window.work for member in members)
        reports = [
            member.report(
                member.take_window(),
                seconds=self._window_ms / 1000,
                work_of_all=work,
                tick=self._windows - 1,
                epoch=self._epoch,
                step=step,
                restart=self._restart,
            )
            for member in members
        ]
        self._window_ms = 0.0
        for member in members:
            member.reported_at = now
        self._restart = False
        self._show_progress()
        engine, self._engine = self._engine, {}
        return self._publish(reports, engine)

    def _show_progress(self) -> None:
        """Say how much time is left, from within an epoch."""
        if self._eta is not None and self._epoch is not None and self._work_of_epoch:
            done = min(1.0, self._epoch_work / self._work_of_epoch)
            left = self._eta.within(self._epoch, done)
            self.board.set_progress(epoch=self._epoch, total=self._eta.total, eta=left)

    def _show_hardware(self) -> None:
        cards = [member.card for member in self._in_order() if not member.is_lost]
        known = [card for card in cards if card is not None]
        # of several hosts the processor of this one says nothing
        res = {} if self._tier.has_hosts else (self._tree.current(ROOT) or {}).get("res", {})
        text = hardware_text(known, threads=res.get("cpus"), ram_total=res.get("ram_total"))
        if text:
            self.board.set_hardware(text, known)

    def _publish(self, reports: list[NodeReport], own: Mapping[str, float]) -> list[Record]:
        """Publish reports with the run's own values, which stand at the root."""
        alone = len(reports) == 1 and reports[0].path == ROOT
        if alone and own:
            reports = [replace(reports[0], metrics={**reports[0].metrics, **own})]
        return self._tree.publish(reports, engine=None if alone else own)

    def _feed_epoch(self, epoch: int, seconds: float, reports: Iterable[NodeReport]) -> None:
        total = max(epoch + 1, int(self._tree.run.get("total_epochs") or 0))
        if self._eta is None:
            self._eta = EtaEstimator(total)
        self._eta.total = total
        left = self._eta.observe(epoch, seconds, self._clock())
        eta = None if epoch + 1 == total else left
        state = self._tree.current(ROOT) or {}
        res = state.get("res", {})
        body: dict[str, Any] = {
            "epoch": epoch + 1,
            "total": total,
            "duration": seconds,
            "metrics": state.get("metrics", {}),
            "resources": _known({f: res.get(_FEED_RES.get(f, f)) for f in _FEED_FIELDS}),
            "gpus": [self._gpu(report) for report in list(reports)[:_MOST_GPUS]],
        }
        if eta is not None:
            body["eta"] = eta
        self.board.set_progress(epoch=epoch + 1, total=total, eta=eta)
        self._newest = body
        self.board.add_epoch(body)

    def _gpu(self, report: NodeReport) -> dict[str, Any]:
        state = self._tree.current(report.path) or {}
        res = state.get("res", {})
        return _known(
            {
                "dev": state.get("device"),
                "name": state.get("label"),
                "util": res.get("gpu_util"),
                "vram_alloc": res.get("vram_alloc"),
                "vram_total": res.get("vram_total"),
                "throughput": report.metrics.get("throughput"),
                "chunk": report.metrics.get("batch_share"),
                "shard": report.work,
            }
        )


def _named_rank(telemetry: object) -> str:
    if isinstance(telemetry, RankTelemetry):
        return str(telemetry.rank)
    rank = telemetry.get("rank") if isinstance(telemetry, Mapping) else None
    return str(rank) if isinstance(rank, int) else "?"


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
