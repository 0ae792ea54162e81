import asyncio
import contextlib
import logging

import pytest
from websockets.asyncio.server import serve

from flodl.core.errors import JoinRejected
from flodl.distributed.cluster.door import HOST_HEADER, INSTANCE_HEADER
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.messages import Beat, Bye, RankExit, TelemetryRecord, Throttle
from flodl.distributed.worker.uplink import Endpoint, Uplink


class Controller:
    """The far end of uplinks: keeps what arrives, and says what it is told to."""

    def __init__(self, instance="c1"):
        self.instance = instance
        self.got = []
        self.headers = []
        self.sockets = []
        self.acks = True

    @contextlib.asynccontextmanager
    async def open(self, port=0):
        async with serve(
            self._take, "127.0.0.1", port, process_response=self._greet, max_size=None
        ) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    def _greet(self, connection, request, response):
        response.headers[INSTANCE_HEADER] = self.instance
        return response

    async def _take(self, socket):
        self.headers.append(socket.request.headers)
        self.sockets.append(socket)
        async for data in socket:
            frame = decode(data)
            if isinstance(frame.message, Beat):
                if self.acks:
                    seq = max((f.seq for f in self.got), default=0)
                    await socket.send(
                        said(Beat(monotonic_ms=frame.message.monotonic_ms, acked_seq=seq), 0)
                    )
            else:
                self.got.append(frame)


def said(message, seq, member="u"):
    return encode(Frame(run="nonce", gen=1, seq=seq, member=member, message=message))


class Host:
    def __init__(self, port):
        self.received, self.confirmed, self.opened = [], [], 0
        self.uplink = Uplink(
            Endpoint(address=f"127.0.0.1:{port}", token="t"),
            "node-a",
            receive=self.received.append,
            confirm=self.confirmed.append,
            timeouts=Timeouts(heartbeat=0.02),
        )

    async def connect(self):
        return await self.uplink.connect(self._on_open)

    def _on_open(self):
        self.opened += 1
        self.uplink.send(Bye(reason=f"hello {self.opened}"), 0)


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


def reasons(controller):
    return [frame.message.reason for frame in controller.got]


def test_a_host_shows_who_it_is_and_never_its_token_in_the_address():
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.got)
            headers = controller.headers[0]
            assert headers[HOST_HEADER] == "node-a"
            assert headers["Authorization"] == "Bearer t"
            assert headers[INSTANCE_HEADER]
            assert controller.sockets[0].request.path == "/ctl"
            await host.uplink.close()
            assert await carrying == "closed"

    asyncio.run(run())


def test_messages_that_were_sent_without_a_connection_arrive_with_the_next():
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            host.uplink.send(Bye(reason="early"), 3, "u")
            carrying = asyncio.create_task(host.connect())
            await until(lambda: len(controller.got) == 2)
            assert reasons(controller) == ["early", "hello 1"]
            assert [f.seq for f in controller.got] == [1, 2]
            assert (controller.got[0].gen, controller.got[0].member) == (3, "u")
            await host.uplink.close()
            await carrying

    asyncio.run(run())


def test_after_a_break_only_what_the_controller_does_not_have_comes_again():
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            carrying = asyncio.create_task(host.connect())
            await until(lambda: host.uplink._outbox.acked_seq == 1)
            controller.acks = False
            host.uplink.send(Bye(reason="unsure"), 0)
            await until(lambda: len(controller.got) == 2)
            await controller.sockets[0].close()
            await carrying
            assert not host.uplink.is_connected
            carrying = asyncio.create_task(host.connect())
            await until(lambda: len(controller.got) == 4)
            assert reasons(controller) == ["hello 1", "unsure", "unsure", "hello 2"]
            assert [f.seq for f in controller.got] == [1, 2, 2, 3]
            await host.uplink.close()
            await carrying

    asyncio.run(run())


def test_a_controller_that_was_started_again_hears_what_still_matters():
    gone = RankExit(uid="u", incarnation=0, code=1)

    async def run():
        async with Controller().open() as controller:
            controller.acks = False
            host = Host(controller.port)
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.got)
            host.uplink.send(gone, 1)
            host.uplink.send(Throttle(reason="of the old one"), 1)
            await until(lambda: len(controller.got) == 3)
            controller.instance, controller.got = "c2", []
            await controller.sockets[0].close()
            await carrying
            carrying = asyncio.create_task(host.connect())
            await until(lambda: len(controller.got) == 2)
            assert [type(f.message) for f in controller.got] == [Bye, RankExit]
            assert [f.seq for f in controller.got] == [1, 2]
            await host.uplink.close()
            await carrying

    asyncio.run(run())


def test_what_arrives_twice_is_taken_once_and_beats_confirm_a_time():
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            before = asyncio.get_running_loop().time()
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.sockets)
            for seq in (1, 1, 2):
                await controller.sockets[0].send(said(Throttle(reason=str(seq)), seq))
            await until(lambda: len(host.received) == 2 and len(host.confirmed) > 1)
            assert [f.message.reason for f in host.received] == ["1", "2"]
            assert before <= host.confirmed[-1] <= asyncio.get_running_loop().time()
            assert host.confirmed == sorted(host.confirmed)
            await host.uplink.close()
            await carrying

    asyncio.run(run())


def test_a_peer_that_was_away_too_long_is_met_anew(monkeypatch):
    monkeypatch.setattr("flodl.distributed.protocol.delivery.Outbox.__init__.__defaults__", (3,))

    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            for number in range(6):
                host.uplink.send(Bye(reason=str(number)), 0)
            first = host.uplink._instance
            reason = await host.connect()
            assert "only the last 3" in reason
            assert host.uplink._instance != first
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.got)
            assert controller.got[0].seq == 1
            await host.uplink.close()
            await carrying

    asyncio.run(run())


def test_telemetry_that_cannot_go_at_once_is_dropped_and_nothing_else_is():
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            host.uplink.send(TelemetryRecord(path="", values={"rank": 0}), 1, "u")
            host.uplink.send(Throttle(reason="kept"), 1, "u")
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.got)
            host.uplink.send(TelemetryRecord(path="", values={"rank": 1}), 1, "u")
            await until(lambda: len(controller.got) == 3)
            await host.uplink.close()
            await carrying
        sent = [f.message for f in controller.got if not isinstance(f.message, Bye)]
        assert sent == [Throttle(reason="kept"), TelemetryRecord(path="", values={"rank": 1})]

    asyncio.run(run())


def test_nobody_there_is_a_reason_and_not_an_error():
    async def run():
        async with Controller().open() as controller:
            port = controller.port
        assert await Host(port).connect()

    asyncio.run(run())


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (429, True)])
def test_a_closed_door_is_a_rejection_that_says_why(status, retryable):
    async def run():
        async def refuse(connection, request):
            return connection.respond(status, "")

        async with serve(lambda s: None, "127.0.0.1", 0, process_request=refuse) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(JoinRejected, match="token") as rejected:
                await Host(port).connect()
            assert rejected.value.retryable is retryable

    asyncio.run(run())


def test_the_token_is_not_logged_even_where_everything_is(caplog):
    async def run():
        async with Controller().open() as controller:
            host = Host(controller.port)
            host.uplink._endpoint = Endpoint(
                address=f"127.0.0.1:{controller.port}", token="a-secret-token"
            )
            carrying = asyncio.create_task(host.connect())
            await until(lambda: controller.got)
            await host.uplink.close()
            await carrying

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    ours = [r.getMessage() for r in caplog.records if r.name != "websockets.server"]
    assert not any("a-secret-token" in line for line in ours)
