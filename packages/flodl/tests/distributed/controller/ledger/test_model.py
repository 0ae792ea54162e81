"""The ledger against a plain model: one state for each sample, whatever happens."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flodl.distributed.controller.ledger import Ledger, WorkPlan
from flodl.distributed.protocol.values import Trained

MEMBERS = st.sampled_from("abcde")
STEPS = 100


class LedgerModel(RuleBasedStateMachine):
    """Keeps for each sample of each epoch what became of it."""

    @initialize(
        samples=st.integers(1, 300),
        batch_size=st.integers(1, 16),
        drop_last=st.booleans(),
    )
    def begin(self, samples, batch_size, drop_last):
        drop_last = drop_last and samples >= batch_size
        plan = WorkPlan(samples=samples, batch_size=batch_size, num_epochs=50, drop_last=drop_last)
        self.plan, self.ledger = plan, Ledger(plan)
        self.states = {}
        self.committed_by = {}
        self.window = 0
        self.marks = {}
        self.next_epoch = 0
        self.open_next()

    def open_next(self):
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        self.ledger.open(epoch)
        low, high = self.plan.bounds(epoch)
        self.states[epoch] = dict.fromkeys(range(low, high), "free")

    def epochs(self):
        return self.ledger.open_epochs

    @precondition(lambda self: len(self.epochs()) < 2 and self.next_epoch < 50)
    @rule()
    def run_ahead(self):
        self.open_next()

    @rule(member=MEMBERS, batches=st.integers(1, 8), ahead=st.booleans())
    def lease(self, member, batches, ahead):
        epoch = self.epochs()[-1 if ahead else 0]
        states = self.states[epoch]
        had = [position for position, state in states.items() if state == "free"]
        lease = self.ledger.grant(member, epoch, batches)
        assert (lease is None) == (not had)
        if lease is None:
            return
        positions = [p for start, stop in lease.ranges for p in range(start, stop)]
        assert positions == sorted(had)[: len(positions)]
        assert len(positions) == min(len(had), batches * self.plan.batch_size)
        for position in positions:
            assert states[position] == "free"
            states[position] = ("leased", member)

    def positions(self, work):
        return [p for start, stop in work.ranges for p in range(start, stop)]

    @rule(member=MEMBERS, batches=st.integers(0, 6), marks=st.booleans())
    def train(self, member, batches, marks):
        reports = []
        for work in self.ledger.held(member):
            done = min(work.samples, work.trained + batches * self.plan.batch_size)
            reports.append(Trained(lease_id=work.lease_id, batches=0, samples=done))
            states = self.states[work.epoch]
            for position in self.positions(work)[work.trained : done]:
                assert states[position] == ("leased", member)
                states[position] = ("trained", member)
            if marks:
                self.marks[work.lease_id] = done
        assert self.ledger.report(member, reports, marks=marks)

    def marked(self, work):
        return self.positions(work)[work.committed : self.marks.get(work.lease_id, 0)]

    @rule(members=st.sets(MEMBERS), skipped=st.sets(MEMBERS, max_size=1))
    def commit(self, members, skipped):
        self.window += 1
        for member in members:
            held = self.ledger.held(member)
            expected = [
                (work.epoch, position)
                for work in held
                for position in self.positions(work)[
                    work.committed : self.marks.get(work.lease_id, 0)
                ]
            ]
            is_skipped = member in skipped
            if is_skipped:
                self.ledger.skip(member)
            else:
                assert self.ledger.commit(member).samples == len(expected)
            for epoch, position in expected:
                assert self.states[epoch][position] == ("trained", member)
                self.states[epoch][position] = "skipped" if is_skipped else "committed"
                key = (epoch, position)
                assert key not in self.committed_by
                self.committed_by[key] = self.window

    @rule(member=MEMBERS)
    def lose(self, member):
        lost = 0
        for states in self.states.values():
            for position, state in states.items():
                if isinstance(state, tuple) and state[1] == member:
                    lost += state[0] == "trained"
                    states[position] = "free"
        assert self.ledger.release(member) == lost

    @rule()
    def close_complete(self):
        epoch = self.epochs()[0]
        states = self.states[epoch]
        is_done = all(state in ("committed", "skipped") for state in states.values())
        assert self.ledger.is_complete(epoch) == is_done
        if is_done:
            account = self.ledger.close(epoch)
            assert account.committed == sum(s == "committed" for s in states.values())
            assert account.is_exact
            del self.states[epoch]
            if not self.epochs():
                self.open_next()

    @rule()
    def save_and_load(self):
        self.ledger = Ledger.from_state(self.plan, self.ledger.to_state())

    events = 0

    @invariant()
    def states_are_those_of_the_model(self):
        if not hasattr(self, "ledger"):
            return
        LedgerModel.events += 1
        self.ledger.check()
        for epoch, states in self.states.items():
            committed = {
                p for low, high in self.ledger.committed_ranges(epoch) for p in range(low, high)
            }
            assert committed == {p for p, state in states.items() if state == "committed"}
            free = sum(state == "free" for state in states.values())
            assert self.ledger.free_batches(epoch) == self.plan.batches(free)


@pytest.mark.parametrize("events", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_order_of_events_leaves_each_sample_with_one_state(events):
    LedgerModel.events = 0
    case = settings(
        max_examples=events // 70,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(LedgerModel, settings=case)
    assert LedgerModel.events >= events
