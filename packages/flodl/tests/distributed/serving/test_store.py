import asyncio

from flodl.distributed.protocol.messages import StoreRequest
from flodl.distributed.serving.store import TIMEOUT, StoreServer
from flodl.distributed.worker import store as client


def request(number, op, *keys, **fields):
    return StoreRequest(request_id=number, op=op, keys=keys, **fields)


def answered(*asked, wait_for):
    """Return the replies, by request, to requests that one member makes."""
    replies = {}

    async def ask():
        server = StoreServer(lambda member, gen, reply: replies.update({reply.request_id: reply}))
        for one in asked:
            server.ask("m", 1, one)
        deadline = asyncio.get_running_loop().time() + 5.0
        while len(replies) < wait_for and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        server.close()

    asyncio.run(ask())
    return replies


def test_each_operation_is_answered():
    replies = answered(
        request(1, "set", "k", value=b"v"),
        request(2, "get", "k"),
        request(3, "add", "n", amount=5),
        request(4, "add", "n", amount=-2),
        request(5, "check", "k", "n"),
        request(6, "check", "k", "x"),
        request(7, "compare_set", "k", expected=b"v", value=b"w"),
        request(8, "delete", "k"),
        request(9, "delete", "k"),
        wait_for=9,
    )
    assert replies[2].value == b"v"
    assert [replies[n].number for n in (3, 4, 5, 6, 8, 9)] == [5, 3, 1, 0, 1, 0]
    assert replies[7].value == b"w"
    assert all(reply.ok for reply in replies.values())


def test_who_waits_is_answered_once_all_keys_are_there():
    waiting = request(1, "wait", "a", "b", timeout=5.0)
    assert 1 not in answered(waiting, request(2, "set", "a", value=b""), wait_for=1)
    replies = answered(
        waiting,
        request(2, "set", "a", value=b""),
        request(3, "get", "b", timeout=5.0),
        request(4, "set", "b", value=b"y"),
        wait_for=4,
    )
    assert replies[1].ok
    assert replies[3].value == b"y"


def test_who_waits_in_vain_is_told_so():
    replies = answered(request(1, "wait", "never", timeout=0.02), wait_for=1)
    assert not replies[1].ok
    assert replies[1].error == TIMEOUT == client.TIMEOUT


def test_a_request_that_cannot_be_carried_out_is_answered_with_an_error():
    replies = answered(
        request(1, "set", "k", value=b"text"),
        request(2, "add", "k", amount=1),
        request(3, "get"),
        wait_for=3,
    )
    assert "not a number" in replies[2].error
    assert replies[3].error == "no keys"


def test_waiting_for_no_keys_is_over_at_once():
    replies = answered(request(1, "wait", timeout=5.0), request(2, "check"), wait_for=2)
    assert replies[1].ok
    assert (replies[2].ok, replies[2].number) == (True, 1)


def test_keys_of_generations_that_are_over_are_removed():
    replies = {}

    async def ask():
        server = StoreServer(
            lambda member, gen, reply: replies.update({reply.request_id: reply}), "r"
        )
        for gen in range(1, 5):
            server.begin(f"n/{gen}")
            server.begin(f"n/{gen}")
            server.ask("m", gen, request(gen, "set", f"r/n/{gen}/{gen}/flat/k", value=b"v"))
        for gen in range(1, 5):
            server.ask("m", gen, request(10 + gen, "check", f"r/n/{gen}/{gen}/flat/k"))
        server.close()

    asyncio.run(ask())
    assert [replies[10 + gen].number for gen in range(1, 5)] == [0, 0, 1, 1]
