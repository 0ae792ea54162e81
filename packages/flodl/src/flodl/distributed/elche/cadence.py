"""ElChe: the slowest rank anchors the window, faster ones fill its time with more batches."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig, Verdict, VerdictKind
from flodl.distributed.config.checks import is_whole
from flodl.distributed.elche.counts import BatchCounts, Pace
from flodl.distributed.elche.election import elect_anchor
from flodl.distributed.elche.growth import GrowthLatch, GrowthRule, Phase
from flodl.distributed.elche.partition import clamp_total, round_half_up
from flodl.distributed.elche.speed import MISSING_LIMIT, DeviceSpec, Speed, slowest_by_spec

SHARE_WINDOW = 10
LEAST_NUDGE = 0.1


class ElChe:
    """How many batches each rank takes between two averages.

    One ``report_window`` for each committed window, followed by one ``apply_verdict``. Ranks are
    addressed by their position in ``members``; what is known of a member outlives a change of
    positions.

    Args:
        world_size: Number of ranks, 2 or more.
        anchor: Batches of the slowest rank in the first window.
        members: Their permanent ids; the numbers 0 to ``world_size - 1`` by default. A run that
            shrank to one member goes on with it, so here one is enough.
        config: Everything else; its own anchor does not count.

    Raises:
        ConfigError: A number is out of range.
    """

    def __init__(
        self,
        world_size: int,
        anchor: int = 10,
        *,
        members: Sequence[str] | None = None,
        config: ElCheConfig | None = None,
    ) -> None:
        names = tuple(map(str, range(world_size)) if members is None else members)
        if not is_whole(world_size, 2 if members is None else 1) or len(names) != world_size:
            raise ConfigError(f"ElChe with world_size={world_size!r}: expected 2 or more ranks")
        if not is_whole(anchor, 1):
            raise ConfigError(f"ElChe with anchor={anchor!r}: expected a number of at least 1")
        self.config = config or ElCheConfig(anchor=anchor)
        self.members = names
        self.anchor = anchor
        self.anchor_member: str | None = None
        self.reports = 0
        self.phase = Phase.PROBE
        self._speeds = {name: Speed() for name in names}
        self._counts = BatchCounts(
            wanted=dict.fromkeys(names, anchor), most_change=self.config.max_batch_diff
        )
        self._latch = GrowthLatch()
        self._proposal: int | None = None
        self._shares: deque[dict[str, int]] = deque(maxlen=SHARE_WINDOW)
        self._has_hint = False
        self._rule = GrowthRule(
            target=self.config.overhead_target,
            least=self.config.least_anchor,
            most=self.config.most_anchor,
            decays=self.config.anchor_decay,
        )

    @classmethod
    def for_members(cls, members: Sequence[str], config: ElCheConfig) -> Self:
        """Return the cadence that a run of the given members starts with."""
        elche = cls(len(members), config.initial_anchor, members=members, config=config)
        if config.speed_hint is not None and config.speed_hint[0] < len(members):
            elche.with_speed_ratio(*config.speed_hint)
        return elche

    def with_speed_ratio(self, slow_rank: int, ratio: float) -> Self:
        """Start with one slow rank, the others ``ratio`` times as fast; returns itself.

        Raises:
            ConfigError: No such rank, or a ratio that is not a number.
        """
        if not math.isfinite(ratio):
            raise ConfigError(f"speed ratio {ratio!r}: expected a number")
        self.with_initial_anchor(slow_rank)
        others = round_half_up(self.anchor * max(1.0, ratio))
        for name in self.members:
            self._counts.wanted[name] = self.anchor if name == self.anchor_member else others
        return self

    def with_initial_anchor(self, rank: int) -> Self:
        """Start with a rank as the anchor; returns itself.

        Raises:
            ConfigError: No such rank.
        """
        self.anchor_member = self._member(rank)
        self._has_hint = True
        return self

    def with_device_specs(self, specs: Sequence[DeviceSpec | None]) -> Self:
        """Start with the device that looks slowest as the anchor, unless told; returns itself."""
        slow = slowest_by_spec(specs)
        if slow is not None and not self._has_hint:
            self.anchor_member = self._member(slow)
        return self

    def set_epoch_batches(self, batches: int) -> None:
        """Say how many batches an epoch has: no window is planned longer than that."""
        self._counts.epoch_batches = max(1, batches)

    def report_window(
        self,
        wall_ms: Sequence[float],
        n: Sequence[int],
        sync_ms: float,
        fill_ms: Sequence[float] | None = None,
    ) -> None:
        """Take what a committed window showed.

        Args:
            wall_ms: Time that each rank spent on its batches.
            n: Batches that each rank really ran, 0 for one that did not take part.
            sync_ms: Time of the average itself.
            fill_ms: Time to each rank's first batch.

        Raises:
            ConfigError: A list does not have one entry for each rank.
        """
        if not len(wall_ms) == len(n) == len(self.members):
            raise ConfigError(
                f"window of {len(wall_ms)} times and {len(n)} counts: expected "
                f"{len(self.members)} of each"
            )
        self.reports += 1
        self._counts.slack_ms.clear()
        self._shares.append(dict(zip(self.members, n, strict=True)))
        for name, wall, batches in zip(self.members, wall_ms, n, strict=True):
            self._speeds[name].take(wall, batches)
        self._elect()
        anchor_rank = self.anchor_rank
        fill = 0.0 if fill_ms is None or anchor_rank is None else fill_ms[anchor_rank]
        self._proposal = self._propose(sync_ms + fill)
        self.phase = max(self.phase, Phase.after(self.reports))
        self._recount(forced=False)

    def apply_verdict(self, verdict: Verdict) -> None:
        """Commit or drop what the last report proposed, as a guard says."""
        # Taken off before anything else: a proposal must never undo a nudge.
        proposal, self._proposal = self._proposal, None
        before = self.anchor
        if verdict.kind is VerdictKind.STABLE:
            self._latch.count_stable()
            self.anchor = self._relaxed(before if proposal is None else proposal)
        else:
            self._latch.disarm()
        is_nudge = verdict.kind is VerdictKind.NUDGE_DOWN and math.isfinite(verdict.factor)
        if is_nudge:
            factor = min(max(verdict.factor, LEAST_NUDGE), 1.0)
            self.anchor = max(1, min(before, math.ceil(before * factor)))
        if is_nudge or self.anchor != before:
            self._recount(forced=True)

    def stage_slack(self, rank: int, slack_ms: float) -> None:
        """Give a rank fewer batches in the next window, as it has something else to do."""
        self._counts.slack_ms[self._member(rank)] = slack_ms

    def change_members(
        self, members: Sequence[str], priors: Mapping[str, float | None] | None = None
    ) -> None:
        """Go on with other members; those that stay keep what is known of them.

        Args:
            members: All members, by their new ranks.
            priors: Assumed milliseconds of newcomers.

        Raises:
            ConfigError: There is none, or one twice.
        """
        if not members or len(set(members)) != len(members):
            raise ConfigError(f"members {list(members)}: expected one or more, each once")
        known, self.members = self._speeds, tuple(members)
        self._speeds = {
            name: known[name] if name in known else Speed(prior=(priors or {}).get(name))
            for name in members
        }
        self._counts.change_members(members, self.anchor)
        if self.anchor_member not in self._speeds:
            self.anchor_member = None
            self._elect()
        self._recount(forced=True)

    @property
    def batch_counts(self) -> list[int]:
        """Batches of each rank in the next window."""
        return self._counts.planned(self._speeds)

    def batches(self, rank: int) -> int:
        """Return the batches of one rank in the next window."""
        return self.batch_counts[self.members.index(self._member(rank))]

    @property
    def total_batches(self) -> int:
        """Batches of all ranks in the next window."""
        return sum(self.batch_counts)

    @property
    def ms_per_batch(self) -> list[float | None]:
        """Smoothed time of a batch of each rank; ``None`` while unknown."""
        return [self._speeds[name].ms for name in self.members]

    def ms_of(self, member: str) -> float | None:
        """Return the smoothed time of a batch of one member; ``None`` while unknown."""
        return self._speeds[member].ms

    def slack_of(self, members: Sequence[str]) -> dict[str, float]:
        """Return the milliseconds that each member has to do something else in this window."""
        return {name: self._counts.slack_ms.get(name, 0.0) for name in members}

    @property
    def anchor_rank(self) -> int | None:
        """The rank that sets the window; ``None`` before the first report."""
        return None if self.anchor_member is None else self.members.index(self.anchor_member)

    @property
    def anchor_wall_ms(self) -> float:
        """Time that a window takes; 0 while nothing was measured."""
        return self.anchor * (self._slow_ms() or 0.0)

    @property
    def is_calibrated(self) -> bool:
        """Whether counts come from measurements."""
        return self._slow_ms() is not None

    @property
    def has_speed_hint(self) -> bool:
        """Whether someone said which rank is slow."""
        return self._has_hint

    @property
    def is_cap_binding(self) -> bool:
        """Whether the epoch is too short for the window that speeds ask for."""
        return self._counts.is_cap_binding

    @property
    def is_growth_armed(self) -> bool:
        """Whether a longer window may be proposed."""
        return self._latch.is_armed

    @property
    def recent_batch_share(self) -> list[float]:
        """Share of each rank in the batches of the last 10 windows."""
        done = [sum(counts.get(name, 0) for counts in self._shares) for name in self.members]
        total = sum(done)
        return [count / total if total else 1 / len(done) for count in done]

    def clamp_total(self, most: int) -> list[int]:
        """Return the counts apportioned to a sum of at most ``most``."""
        return clamp_total(self.batch_counts, most)

    def to_state(self, *, exact: bool = False) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes.

        Args:
            exact: Keep every reading, so that a run that goes on decides as this one would;
                otherwise the means, which another set of members can start from.
        """
        return {
            "members": list(self.members),
            "anchor": self.anchor,
            "anchor_member": self.anchor_member,
            "reports": self.reports,
            "phase": int(self.phase),
            "speeds": {name: speed.to_state(exact=exact) for name, speed in self._speeds.items()},
            "counts": dict(self._counts.wanted),
            "calibrated": sorted(self._counts.calibrated),
            "epoch_batches": self._counts.epoch_batches,
            "slack_ms": dict(self._counts.slack_ms),
            "growth": dataclasses.asdict(self._latch),
            "proposal": self._proposal,
            "shares": [dict(counts) for counts in self._shares],
            "has_hint": self._has_hint,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], config: ElCheConfig) -> Self:
        """Return the cadence that ``to_state`` described."""
        members = state["members"]
        elche = cls(len(members), state["anchor"], members=members, config=config)
        elche.anchor_member = state["anchor_member"]
        elche.reports = state["reports"]
        elche.phase = Phase(state["phase"])
        elche._speeds = {name: Speed.from_state(state["speeds"][name]) for name in members}
        elche._counts = BatchCounts(
            wanted={name: state["counts"][name] for name in members},
            most_change=config.max_batch_diff,
            epoch_batches=state["epoch_batches"],
            calibrated=set(state["calibrated"]),
            slack_ms=dict(state["slack_ms"]),
        )
        elche._latch = GrowthLatch(**state["growth"])
        elche._proposal = state["proposal"]
        elche._shares.extend(dict(counts) for counts in state["shares"])
        elche._has_hint = state["has_hint"]
        return elche

    def _member(self, rank: int) -> str:
        if not is_whole(rank, 0) or rank >= len(self.members):
            raise ConfigError(f"rank {rank!r}: expected one of 0 to {len(self.members) - 1}")
        return self.members[rank]

    def _slow_ms(self) -> float | None:
        return None if self.anchor_member is None else self._speeds[self.anchor_member].ms

    def _elect(self) -> None:
        anchor = self.anchor_member
        is_silent = anchor is not None and self._speeds[anchor].missing >= MISSING_LIMIT
        if anchor is None or is_silent or self.phase >= Phase.STABLE:
            speeds = {name: self._speeds[name].ms for name in self.members}
            self.anchor_member = elect_anchor(self.members, speeds, anchor)

    def _propose(self, fixed_ms: float) -> int | None:
        slow_ms = self._slow_ms()
        is_early = self.phase < Phase.STABLE and self.reports < 2
        is_held = self.is_cap_binding or not self._latch.is_armed or self.config.mode.is_sync
        if slow_ms is None or is_early or is_held:
            return None
        return self._rule.propose(self.anchor, slow_ms, fixed_ms, self.phase)

    def _relaxed(self, anchor: int) -> int:
        slow_ms, limit = self._slow_ms(), self.config.max_batch_diff
        is_held = self.is_cap_binding or anchor >= self.config.most_anchor
        if not self.config.relax_up or slow_ms is None or is_held:
            return anchor
        pace = Pace(anchor=anchor + 1, slow_ms=slow_ms, speeds=self._speeds)
        counts = [pace.count(name) for name in self.members]
        return anchor if limit is not None and max(counts) - min(counts) > limit else anchor + 1

    def _recount(self, *, forced: bool) -> None:
        slow_ms = self._slow_ms()
        if slow_ms is None or self.config.mode.is_sync:
            return
        pace = Pace(anchor=self.anchor, slow_ms=slow_ms, speeds=self._speeds)
        self._counts.update(pace, forced=forced)
