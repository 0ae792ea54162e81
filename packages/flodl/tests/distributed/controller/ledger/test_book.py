import pytest

from flodl.core.errors import AccountingError, ConfigError
from flodl.distributed.controller.ledger import Ledger, WorkPlan
from flodl.distributed.protocol.values import Trained


def ledger(samples=100, batch_size=10, **options):
    book = Ledger(WorkPlan(samples=samples, batch_size=batch_size, num_epochs=2, **options))
    book.open(0)
    return book


def trained(book, member, samples, *, marks=True):
    (work,) = book.held(member)
    return book.report(
        member,
        [Trained(lease_id=work.lease_id, batches=-(-samples // 10), samples=samples)],
        marks=marks,
    )


def test_work_goes_from_free_to_committed_once():
    book = ledger()
    lease = book.grant("a", 0, 10)
    assert lease.ranges == ((0, 100),)
    assert book.grant("b", 0, 1) is None
    assert trained(book, "a", 100)
    assert not book.is_complete(0)
    assert book.commit("a").samples == 100
    assert book.is_complete(0)
    account = book.close(0)
    assert (account.committed, account.retrained, account.is_exact) == (100, 0, True)


def test_work_of_a_lost_member_is_free_again_unless_it_was_committed():
    book = ledger()
    book.grant("a", 0, 6)
    trained(book, "a", 20)
    done = book.commit("a")
    assert (done.batches, done.samples, done.by_epoch) == (2, 20, {0: (2, 20)})
    trained(book, "a", 50)
    assert book.release("a") == 30
    assert book.free_batches(0) == 8
    assert book.grant("b", 0, 3).ranges == ((20, 50),)
    assert book.committed_ranges(0) == ((0, 20),)
    assert book.account(0).retrained == 30
    book.check()


def test_what_was_trained_after_the_snapshot_waits_for_the_next_window():
    book = ledger()
    book.grant("a", 0, 5)
    trained(book, "a", 20)
    trained(book, "a", 40, marks=False)
    assert book.commit("a").samples == 20
    assert book.release("a") == 20


def test_skipped_samples_are_done_but_not_committed():
    book = ledger(samples=20)
    book.grant("a", 0, 2)
    trained(book, "a", 10)
    book.skip("a")
    trained(book, "a", 20)
    book.commit("a")
    account = book.close(0)
    assert (account.committed, account.skipped_nonfinite) == (10, 10)


def test_batches_that_were_left_out_are_done_but_not_committed():
    book = ledger(samples=70)
    book.grant("a", 0, 3)
    book.grant("a", 0, 4)
    (first, second) = book.held("a")
    reports = [
        Trained(lease_id=first.lease_id, batches=3, samples=30),
        Trained(lease_id=second.lease_id, batches=2, samples=20),
    ]
    assert book.report("a", reports, marks=True)
    done = book.commit("a", ((0, 1), (2, 4), (9, 12)))  # the last of one, the first of the other
    assert (done.batches, done.samples, done.by_epoch) == (2, 20, {0: (2, 20)})
    assert book.skipped_ranges(0) == ((0, 10), (20, 40))
    assert book.committed_ranges(0) == ((10, 20), (40, 50))
    done = book.advance("a", 2, ((1, 2),))
    assert (done.batches, done.samples) == (1, 10)
    book.check()
    account = book.close(0)
    assert (account.committed, account.skipped_nonfinite) == (30, 40)


@pytest.mark.parametrize(("member", "samples"), [("b", 10), ("a", 70), ("a", 10)])
def test_reports_that_cannot_be_true_change_nothing(member, samples):
    book = ledger()
    book.grant("a", 0, 6)
    trained(book, "a", 20)
    book.commit("a")
    (work,) = book.held("a")
    before = book.to_state()
    report = Trained(lease_id=work.lease_id, batches=1, samples=samples)
    assert not book.report(member, [report], marks=True)
    assert book.to_state() == before


def test_the_incomplete_last_batch_is_dropped_or_leased_to_one_rank():
    dropping = ledger(samples=95)
    assert dropping.grant("a", 0, 100).ranges == ((0, 90),)
    trained(dropping, "a", 90)
    dropping.commit("a")
    assert dropping.close(0).dropped == 5
    keeping = ledger(samples=95, drop_last=False)
    assert keeping.free_batches(0) == 10
    assert keeping.grant("a", 0, 9).ranges == ((0, 90),)
    assert keeping.grant("b", 0, 9).ranges == ((90, 95),)


def test_returned_work_comes_before_the_incomplete_batch():
    book = ledger(samples=95, drop_last=False)
    book.grant("a", 0, 2)
    book.grant("b", 0, 7)
    book.release("a")
    assert book.grant("c", 0, 3).ranges == ((0, 20), (90, 95))


def test_batches_alone_name_the_work_of_a_gradient_step():
    book = ledger()
    book.grant("a", 0, 2)
    book.grant("a", 0, 2)
    assert book.advance("a", 3).samples == 30
    assert book.untrained_batches("a") == 1
    assert book.advance("a", 5).batches == 1


def test_an_epoch_that_is_not_complete_cannot_be_closed():
    book = ledger()
    with pytest.raises(AccountingError, match="epoch 0"):
        book.close(0)


def test_check_finds_a_position_that_has_two_states():
    book = ledger()
    lease = book.grant("a", 0, 3)
    book._epochs[0].give_back(lease.ranges)
    with pytest.raises(AccountingError, match="two states"):
        book.check()


def test_check_finds_a_position_that_nobody_has():
    book = ledger()
    book.grant("a", 0, 3)
    book._leases.clear()
    with pytest.raises(AccountingError, match="70 of 100"):
        book.check()


def test_splits_cut_one_pass_into_epochs_without_repeats():
    plan = WorkPlan(samples=105, batch_size=10, num_epochs=6, splits=3)
    assert [plan.bounds(epoch) for epoch in range(3)] == [(0, 40), (40, 70), (70, 100)]
    assert plan.bounds(3) == (0, 40)
    assert [plan.data_epoch(epoch) for epoch in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [plan.dropped(epoch) for epoch in range(3)] == [0, 0, 5]


@pytest.mark.parametrize(
    "options", [{"samples": 0}, {"batch_size": 0}, {"num_epochs": 0}, {"splits": 11}]
)
def test_a_plan_without_work_is_refused(options):
    with pytest.raises(ConfigError):
        WorkPlan(**{"samples": 100, "batch_size": 10, "num_epochs": 1} | options)


def test_saved_state_goes_on_where_it_was():
    book = ledger()
    book.grant("a", 0, 4)
    trained(book, "a", 20)
    book.commit("a")
    twin = Ledger.from_state(book.plan, book.to_state())
    assert twin.to_state() == book.to_state()
    assert twin.release("a") == book.release("a")
    assert twin.grant("b", 0, 2) == book.grant("b", 0, 2)
