"""A served board, and a reader of server-sent events."""

import json
import socket
import time
from contextlib import contextmanager

import httpx
import pytest

from flodl.records.board import RunBoard
from flodl.testing.fake_run import FakeRun, FakeRunShape, serve_board


class EventReader:
    """Reads the events of one open stream, each with a deadline."""

    def __init__(self, response):
        self._lines = response.iter_lines()

    def next(self):
        event = {}
        for line in self._lines:
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif event.keys() > {"retry"} or "event" in event:
                if "data" in event:
                    event["data"] = json.loads(event["data"])
                return event
            else:
                event = {}
        return None

    def until(self, wanted):
        """Return the events up to and including the first that fits."""
        events = []
        while True:
            event = self.next()
            assert event is not None, f"the stream ended before it came: {events[-3:]}"
            events.append(event)
            if wanted(event):
                return events

    def rest(self):
        events = []
        while (event := self.next()) is not None:
            events.append(event)
        return events


class Portal:
    """One served board and clients for it."""

    def __init__(self, board, server):
        self.board = board
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"
        self.client = httpx.Client(base_url=self.url, timeout=20, verify=False, trust_env=False)

    def get(self, path, **params):
        return self.client.get(path, **params)

    @contextmanager
    def stream(self, path, **headers):
        with self.client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield EventReader(response)

    def raw(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=20)

    def wait_for(self, condition):
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.get("/healthz")

    def close(self):
        self.client.close()
        self.server.stop()


@pytest.fixture
def serve():
    portals = []

    def start(board=None, **options):
        board = board or RunBoard()
        portal = Portal(board, serve_board(board, **options))
        portals.append(portal)
        return portal

    yield start
    for portal in portals:
        portal.close()


def running():
    """Two hosts, four ranks, three epochs done."""
    run = FakeRun(FakeRunShape(ranks=4, hosts=2, epochs=10, windows=5))
    run.run_epochs(3)
    return run


@pytest.fixture
def portal(serve):
    run = running()
    served = serve(run.board)
    served.run = run
    return served


@pytest.fixture(scope="module")
def reading():
    """One served board for all tests of a module that only read."""
    run = running()
    portal = Portal(run.board, serve_board(run.board))
    yield portal
    portal.close()
