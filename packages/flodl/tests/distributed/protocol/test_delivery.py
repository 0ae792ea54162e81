import random

import pytest

from flodl.distributed.protocol import GenerationGate, Inbox, Outbox, ResendGapError


def test_messages_are_numbered_and_kept_until_the_peer_has_them():
    outbox = Outbox()
    sent = [outbox.keep(bytes([number])) for number in range(5)]
    assert [item.seq for item in sent] == [1, 2, 3, 4, 5]
    outbox.acknowledge(2)
    assert [item.data for item in outbox.unacknowledged(3)] == [b"\x03", b"\x04"]
    assert outbox.unacknowledged(5) == []


def test_an_acknowledgment_never_goes_back_or_ahead():
    outbox = Outbox()
    outbox.keep(b"a")
    outbox.keep(b"b")
    outbox.acknowledge(2)
    outbox.acknowledge(1)
    outbox.acknowledge(9)
    assert outbox.acked_seq == 2


def test_a_peer_away_for_too_long_is_told_so():
    outbox = Outbox(size=3)
    for _ in range(5):
        outbox.keep(b"x")
    assert len(outbox.unacknowledged(2)) == 3
    fresh = Outbox(size=3)
    for _ in range(5):
        fresh.keep(b"x")
    with pytest.raises(ResendGapError, match="up to 1"):
        fresh.unacknowledged(1)


def test_what_arrives_twice_or_out_of_order_counts_once():
    rng, inbox = random.Random(0), Inbox()
    numbers = [*range(1, 101), *rng.choices(range(1, 101), k=100)]
    rng.shuffle(numbers)
    new = [seq for seq in numbers if inbox.is_new(seq)]
    assert sorted(new) == list(range(1, 101))
    assert inbox.acked_seq == 100


def test_messages_without_a_number_are_always_new():
    inbox = Inbox()
    assert inbox.is_new(0)
    assert inbox.is_new(0)


def test_a_peer_that_was_started_again_numbers_afresh():
    inbox = Inbox()
    assert inbox.is_new(1)
    inbox.restart()
    assert inbox.is_new(1)


def test_messages_of_generations_that_are_over_are_dropped_and_counted():
    gate = GenerationGate(3)
    assert gate.admits(3)
    assert gate.admits(4)
    assert not gate.admits(2)
    assert gate.dropped == 1


def test_a_drop_of_the_link_loses_nothing_and_repeats_nothing():
    rng, outbox, inbox, received = random.Random(1), Outbox(), Inbox(), []
    wire = []
    for number in range(300):
        wire.append(outbox.keep(str(number).encode()))
        if rng.random() < 0.1:
            arrived, wire = wire[: rng.randint(0, len(wire))], []
            received += [item.data for item in arrived if inbox.is_new(item.seq)]
            wire = outbox.unacknowledged(inbox.acked_seq)
    received += [item.data for item in wire if inbox.is_new(item.seq)]
    assert received == [str(number).encode() for number in range(300)]
