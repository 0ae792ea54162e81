"""The ledger: who holds which work, and what of it is in the consensus."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flodl.core.errors import AccountingError
from flodl.distributed.controller.ledger.epoch import (
    EpochAccount,
    EpochWork,
    LeasedWork,
)
from flodl.distributed.controller.ledger.plan import WorkPlan
from flodl.distributed.protocol.messages import Lease
from flodl.distributed.protocol.ranges import between, cut, joined, length
from flodl.distributed.protocol.values import Ranges, Trained


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """Work of one member that entered the consensus."""

    batches: int
    samples: int
    by_epoch: dict[int, tuple[int, int]]
    """Batches and samples of each epoch; a window may reach into a second one."""


class Ledger:
    """Hands out an epoch's positions and follows them until they are committed.

    Positions go from free to leased, trained and committed, never back, except that work of a
    lost member which is not committed is free again.

    Args:
        plan: The work of all epochs.
    """

    def __init__(self, plan: WorkPlan) -> None:
        self.plan = plan
        self._epochs: dict[int, EpochWork] = {}
        self._leases: dict[int, LeasedWork] = {}
        self._held: dict[str, list[int]] = {}
        self._next_id = 1
        self._known_ids = 1
        """Leases below it were written down: where they are missing they are over."""
        self.accounts: list[EpochAccount] = []

    # Epochs

    @property
    def open_epochs(self) -> list[int]:
        """Epochs that were opened and not closed, in order."""
        return sorted(self._epochs)

    def open(self, epoch: int) -> None:
        """Begin an epoch: all of it is free."""
        self._epochs[epoch] = EpochWork.fresh(
            epoch, self.plan.bounds(epoch), self.plan.dropped(epoch)
        )

    def reopen(
        self, epoch: int, committed: Ranges, skipped: Ranges = (), retrained: int = 0
    ) -> None:
        """Go on with an epoch of which a part was done: the rest is free.

        Raises:
            AccountingError: The parts overlap, or are not of this epoch.
        """
        work = EpochWork.fresh(epoch, self.plan.bounds(epoch), self.plan.dropped(epoch))
        for piece in (*committed, *skipped):
            if not work.claim((piece,)):
                raise AccountingError(
                    f"epoch {epoch}: [{piece[0]}, {piece[1]}) is done twice, or not of "
                    f"[{work.bounds[0]}, {work.bounds[1]})"
                )
        work.committed, work.retrained = length(committed), retrained
        work.skip(skipped)
        self._epochs[epoch] = work

    def skipped_ranges(self, epoch: int) -> Ranges:
        """Return the positions of an open epoch that were left out as not finite."""
        return joined(self._epochs[epoch].skipped)

    def free_batches(self, epoch: int) -> int:
        """Return the batches of an open epoch that nobody holds."""
        return self.plan.batches(self._epochs[epoch].free_samples)

    def is_complete(self, epoch: int) -> bool:
        """Return whether everything of an open epoch is committed or skipped."""
        return self._epochs[epoch].is_complete

    def close(self, epoch: int) -> EpochAccount:
        """End a complete epoch and return its account.

        Raises:
            AccountingError: It is not complete.
        """
        account = self._epochs[epoch].account()
        if not self._epochs[epoch].is_complete or not account.is_exact:
            raise AccountingError(f"epoch {epoch} ends with {account}")
        del self._epochs[epoch]
        self.accounts.append(account)
        return account

    # Leases

    def grant(self, member: str, epoch: int, batches: int) -> Lease | None:
        """Give a member the next free batches of an open epoch; ``None`` when none are free."""
        work = self._epochs[epoch]
        ranges = work.take(batches * self.plan.batch_size)
        if not ranges:
            return None
        lease_id, self._next_id = self._next_id, self._next_id + 1
        self._leases[lease_id] = LeasedWork(
            lease_id=lease_id, epoch=epoch, member=member, ranges=ranges, samples=length(ranges)
        )
        self._held.setdefault(member, []).append(lease_id)
        return Lease(
            lease_id=lease_id,
            epoch=epoch,
            data_epoch=self.plan.data_epoch(epoch),
            ranges=ranges,
            batch_size=self.plan.batch_size,
        )

    def held(self, member: str) -> list[LeasedWork]:
        """Return the leases that a member holds, in the order in which it trains them."""
        return [self._leases[lease_id] for lease_id in self._held.get(member, ())]

    def untrained_batches(self, member: str) -> int:
        """Return the batches that a member holds and has not reported as trained."""
        return sum(self.plan.batches(work.samples - work.trained) for work in self.held(member))

    def newest(self, member: str) -> int:
        """Return the number of the last lease that a member holds, 0 for none."""
        held = self._held.get(member)
        return held[-1] if held else 0

    def adopt(self, member: str, lease: Lease) -> None:
        """Take over a lease that a member holds and that is not known here.

        A controller that was started again may have forgotten it. What is not free is left alone.
        """
        work = self._epochs.get(lease.epoch)
        if work is None or lease.lease_id in self._leases or lease.lease_id < self._known_ids:
            return
        if not work.claim(lease.ranges):
            return
        self._next_id = max(self._next_id, lease.lease_id + 1)
        self._leases[lease.lease_id] = LeasedWork(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            member=member,
            ranges=lease.ranges,
            samples=length(lease.ranges),
        )
        self._held.setdefault(member, []).append(lease.lease_id)

    def holder(self, lease_id: int) -> str | None:
        """Return the member that holds a lease, ``None`` once it is over."""
        work = self._leases.get(lease_id)
        return None if work is None else work.member

    def report(self, member: str, trained: Iterable[Trained], *, marks: bool) -> bool:
        """Take how far a member has come.

        Args:
            member: Who reports.
            trained: Of each lease, counted from its start. What is not the member's, or goes
                back, or beyond the lease, changes nothing.
            marks: Whether this is what goes into the window that is being averaged.

        Returns:
            Whether all of it fitted.
        """
        fits = True
        for item in trained:
            work = self._leases.get(item.lease_id)
            if work is None:
                continue  # it was committed to its end, or given to someone else
            if work.member != member or not work.committed <= item.samples <= work.samples:
                fits = False
                continue
            work.trained = max(work.trained, item.samples)
            if marks:
                work.marked = item.samples
        return fits

    def commit(self, member: str, left_out: Ranges = ()) -> Committed:
        """Count what a member marked as part of the consensus.

        Args:
            member: Who marked it.
            left_out: Batches of it, by their order, that are done without being part of it.
        """
        by_epoch: dict[int, tuple[int, int]] = {}
        first = 0
        for work in self.held(member):
            if work.marked <= work.committed:
                continue
            end = first + self.plan.batches(work.marked) - self.plan.batches(work.committed)
            batches, samples = self._settle(work, between(left_out, first, end))
            first = end
            if batches:
                known = by_epoch.get(work.epoch, (0, 0))
                by_epoch[work.epoch] = (known[0] + batches, known[1] + samples)
        return Committed(
            batches=sum(batches for batches, _ in by_epoch.values()),
            samples=sum(samples for _, samples in by_epoch.values()),
            by_epoch=by_epoch,
        )

    def skip(self, member: str) -> None:
        """Count what a member marked as done without being part of the consensus."""
        self.commit(member, ((0, sys.maxsize),))

    def advance(self, member: str, batches: int, left_out: Ranges = ()) -> Committed:
        """Commit a member's next batches, known by their number alone (gradient payload)."""
        left, size = batches, self.plan.batch_size
        for work in self.held(member):
            count = min(left, self.plan.batches(work.samples - work.committed))
            work.marked = min(work.samples, work.committed + count * size)
            work.trained = max(work.trained, work.marked)
            left -= count
        return self.commit(member, left_out)

    def _settle(self, work: LeasedWork, left_out: Ranges) -> tuple[int, int]:
        """Count what is marked of a lease; return the batches and samples that are committed."""
        epoch, size, start = self._epochs[work.epoch], self.plan.batch_size, work.committed
        batches = self.plan.batches(work.marked) - self.plan.batches(start)
        samples = work.marked - start
        for low, high in left_out:
            piece = start + low * size, min(work.marked, start + high * size)
            epoch.skip(cut(work.ranges, *piece))
            batches, samples = batches - (high - low), samples - (piece[1] - piece[0])
        epoch.committed += samples
        work.committed = work.marked
        if work.committed == work.samples:
            self._end(work)
        return batches, samples

    def release(self, member: str) -> int:
        """Make what a member holds and is not committed free again.

        Returns:
            Samples of it that had been trained.
        """
        retrained = 0
        for work in self.held(member):
            epoch = self._epochs[work.epoch]
            epoch.give_back(work.open_ranges)
            count = work.trained - work.committed
            epoch.retrained += count
            retrained += count
            del self._leases[work.lease_id]
        self._held.pop(member, None)
        return retrained

    def _end(self, work: LeasedWork) -> None:
        del self._leases[work.lease_id]
        self._held[work.member].remove(work.lease_id)

    # Proof and persistence

    def committed_ranges(self, epoch: int) -> Ranges:
        """Return the positions of an open epoch that are in the consensus."""
        return self._epochs[epoch].committed_ranges(self._leases_of(epoch))

    def account(self, epoch: int) -> EpochAccount:
        """Return what became of an open epoch's samples so far."""
        return self._epochs[epoch].account()

    def check(self) -> None:
        """Check every open epoch.

        Raises:
            AccountingError: A position has two states, or none.
        """
        for epoch, work in self._epochs.items():
            work.check(self._leases_of(epoch))

    def _leases_of(self, epoch: int) -> list[LeasedWork]:
        return [work for work in self._leases.values() if work.epoch == epoch]

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "next_id": self._next_id,
            "epochs": [work.to_state() for work in self._epochs.values()],
            "leases": [dataclasses.asdict(work) for work in self._leases.values()],
            "held": {member: list(ids) for member, ids in self._held.items()},
            "accounts": [dataclasses.asdict(account) for account in self.accounts],
        }

    @classmethod
    def from_state(cls, plan: WorkPlan, state: dict[str, Any]) -> Ledger:
        """Return the ledger that ``to_state`` described."""
        ledger = cls(plan)
        ledger._next_id = ledger._known_ids = state["next_id"]
        ledger._epochs = {item["epoch"]: EpochWork.from_state(item) for item in state["epochs"]}
        for item in state["leases"]:
            ranges = tuple((start, stop) for start, stop in item["ranges"])
            ledger._leases[item["lease_id"]] = LeasedWork(**{**item, "ranges": ranges})
        ledger._held = {member: list(ids) for member, ids in state["held"].items()}
        ledger.accounts = [EpochAccount(**item) for item in state["accounts"]]
        return ledger
