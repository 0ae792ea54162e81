"""Routes of others on the portal's port."""

import asyncio
import time

import httpx
import pytest
from fastapi import APIRouter, Request, WebSocket

from flodl.monitor.place import serve_place
from flodl.monitor.plane import RunPlane
from flodl.records.board import RunBoard
from flodl.web import server as server_module
from flodl.web.app import create_app
from flodl.web.auth import Auth
from flodl.web.budget import RequestBudget
from flodl.web.extension import Extension
from flodl.web.gate import Gate

CONTROL = "Bearer control-token"


def routes():
    router = APIRouter()

    @router.post("/start")
    async def start(request: Request):
        return {"got": (await request.body()).decode()}

    @router.get("/state.json")
    async def state():
        return {"phase": "waiting"}

    @router.websocket("/ctl")
    async def ctl(socket: WebSocket):
        await socket.accept()
        while True:
            await socket.send_bytes(await socket.receive_bytes())

    return router


def extension(**options):
    return Extension(
        routers=[routes()],
        paths=frozenset({"/start", "/state.json", "/ctl"}),
        is_reader=lambda authorization: authorization == CONTROL,
        **options,
    )


@pytest.fixture
def served():
    planes = []

    def start(**options):
        plane = RunPlane(RunBoard())
        planes.append(plane)
        plane.board.start()
        return plane.serve(serve_place(0, token="viewer"), extension(**options))

    yield start
    for plane in planes:
        plane.finish("done")


@pytest.fixture
def client(served):
    portal = served()
    with httpx.Client(base_url=f"http://127.0.0.1:{portal.port}", trust_env=False) as client:
        yield client


def test_added_routes_take_any_method_and_no_viewers_token(client):
    assert client.post("/start", content=b"go").json() == {"got": "go"}
    assert client.get("/state.json").json() == {"phase": "waiting"}


def test_added_routes_answer_to_any_name(client):
    answer = client.get("/state.json", headers={"host": "controller.example"})
    assert answer.status_code == 200
    assert client.get("/paths", headers={"host": "controller.example"}).status_code == 421


def test_the_portal_stays_closed_beside_them(client):
    assert client.get("/paths").status_code == 401
    assert client.post("/paths").status_code == 405
    assert client.get("/start/../paths").status_code == 401


def test_a_reader_of_the_extension_may_look(client):
    assert client.get("/paths", headers={"authorization": CONTROL}).json() == ["root"]
    assert client.get("/paths", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/paths", headers={"authorization": "Bearer viewer"}).json() == ["root"]


def test_answers_of_added_routes_carry_the_headers_of_all(client):
    assert client.get("/state.json").headers["x-content-type-options"] == "nosniff"


def test_a_flood_of_viewers_does_not_hold_up_the_added_routes():
    """The budget is used up for good, and yet they are answered at once."""
    app = create_app(RunBoard(), auth=Auth(), extension=extension())
    assert isinstance(app, Gate)
    empty = RequestBudget(lambda: False, rate=0.001, burst=0.0)
    gate = Gate(app._app, Auth(), empty, extension())

    async def ask():
        transport = httpx.ASGITransport(app=gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.wait_for(client.get("/state.json"), 2)

    assert asyncio.run(ask()).status_code == 200


def websockets_or_skip():
    return pytest.importorskip("websockets.sync.client", reason="websockets is not installed")


def test_a_websocket_of_an_added_route_works_and_outlives_the_sweep(served, monkeypatch):
    client = websockets_or_skip()
    monkeypatch.setattr(server_module, "_SWEEP_S", 0.05)
    monkeypatch.setattr(server_module, "_SILENCE_S", 0.1)
    portal = served(websocket_bytes=1 << 20)
    with client.connect(f"ws://127.0.0.1:{portal.port}/ctl", proxy=None) as socket:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            socket.send(b"x" * 100_000)
            assert len(socket.recv(timeout=5)) == 100_000
        time_of_silence = time.monotonic() + 0.4
        with pytest.raises(TimeoutError):
            socket.recv(timeout=time_of_silence - time.monotonic())
        socket.send(b"still there")
        assert socket.recv(timeout=5) == b"still there"


def test_a_message_beyond_the_limit_ends_its_websocket(served):
    client = websockets_or_skip()
    from websockets.exceptions import ConnectionClosed

    portal = served(websocket_bytes=1000)
    with (
        client.connect(f"ws://127.0.0.1:{portal.port}/ctl", proxy=None) as socket,
        pytest.raises(ConnectionClosed) as ended,
    ):
        socket.send(b"x" * 1001)
        socket.recv(timeout=5)
    assert ended.value.rcvd.code == 1009


def test_a_websocket_elsewhere_is_refused(served):
    client = websockets_or_skip()
    from websockets.exceptions import InvalidStatus

    portal = served(websocket_bytes=1000)
    with pytest.raises(InvalidStatus) as refused:
        client.connect(f"ws://127.0.0.1:{portal.port}/stream", proxy=None)
    assert refused.value.response.status_code == 403
