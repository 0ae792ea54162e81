"""Downloads from a server on this machine that cuts, lies, limits and gets ranges wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flodl.core.errors import ChecksumError, DatasetUnavailableError
from flodl.data.datasets.catalog import PublishedFile
from flodl.data.datasets.download import HttpSettings, download

BODY = bytes(range(256)) * 1000

Answer = Callable[["Handler", int], None]


@dataclass
class Asked:
    """What the server was asked for, and what it does for each request, in order."""

    address: str = ""
    answers: list[Answer] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    asked: Asked

    def do_GET(self) -> None:
        asked = self.asked
        asked.ranges.append(self.headers.get("Range"))
        asked.paths.append(self.path)
        answer = asked.answers.pop(0) if asked.answers else well
        answer(self, self.first())

    def first(self) -> int:
        header = self.headers.get("Range")
        return int(header.removeprefix("bytes=").rstrip("-")) if header else 0

    def head(self, status: int, length: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def well(request: Handler, first: int) -> None:
    status = 206 if first else 200
    headers = {"Content_Range": f"bytes {first}-{len(BODY) - 1}/{len(BODY)}"} if first else {}
    request.head(status, len(BODY) - first, **headers)
    request.wfile.write(BODY[first:])


def cut(at: int) -> Answer:
    def answer(request: Handler, first: int) -> None:
        headers = {"Content_Range": f"bytes {first}-{len(BODY) - 1}/{len(BODY)}"} if first else {}
        request.head(206 if first else 200, len(BODY) - first, **headers)
        request.wfile.write(BODY[first:at])
        request.wfile.flush()
        request.connection.close()

    return answer


def ignores_the_range(request: Handler, first: int) -> None:
    request.head(200, len(BODY))
    request.wfile.write(BODY)


def another_range(request: Handler, first: int) -> None:
    request.head(206, len(BODY) - 10, Content_Range=f"bytes 10-{len(BODY) - 1}/{len(BODY)}")
    request.wfile.write(BODY[10:])


def another_total(request: Handler, first: int) -> None:
    request.head(206, 5, Content_Range=f"bytes {first}-{first + 4}/{first + 5}")
    request.wfile.write(b"12345")


def no_range_given(request: Handler, first: int) -> None:
    request.head(206, len(BODY))
    request.wfile.write(BODY)


def other_bytes(request: Handler, first: int) -> None:
    headers = {"Content_Range": f"bytes {first}-{len(BODY) - 1}/{len(BODY)}"} if first else {}
    request.head(206 if first else 200, len(BODY) - first, **headers)
    request.wfile.write(b"\xff" * (len(BODY) - first))


def too_much(request: Handler, first: int) -> None:
    request.head(200, len(BODY) + 5)
    request.wfile.write(BODY + b"12345")


def no_length(request: Handler, first: int) -> None:
    request.send_response(200)
    request.end_headers()
    request.wfile.write(BODY[:1000])


def refuses(status: int, **headers: str) -> Answer:
    def answer(request: Handler, first: int) -> None:
        request.head(status, 0, **headers)

    return answer


def redirects(to: str) -> Answer:
    def answer(request: Handler, first: int) -> None:
        request.head(302, 0, Location=to)

    return answer


@pytest.fixture
def server() -> Iterator[Asked]:
    asked = Asked()
    handler = type("Bound", (Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = False
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        asked.address = f"http://127.0.0.1:{running.server_port}"
        yield asked
        running.shutdown()
        thread.join()


class Fetching:
    """Downloads one file into a folder, without pausing; notes the pauses asked for."""

    def __init__(self, server: Asked, folder: Path, **changes: Any) -> None:
        self.file = PublishedFile(
            name="file.bin",
            size=changes.get("size", len(BODY)),
            sha256=hashlib.sha256(BODY).hexdigest(),
            urls=changes.get("urls", (f"{server.address}/file.bin",)),
        )
        self.target = folder / "file.bin"
        self.partial = folder / "file.bin.part"
        self.pauses: list[float] = []

    def run(self, **changes: Any) -> bytes:
        settings = {"schemes": ("http",), "sleep": self.pauses.append, "timeout_s": 5.0, **changes}
        download(self.file, self.target, HttpSettings(**settings))
        assert not self.partial.exists()
        return self.target.read_bytes()


@pytest.fixture
def fetching(server: Asked, tmp_path: Path) -> Fetching:
    return Fetching(server, tmp_path)


def test_a_file_arrives_whole(server: Asked, fetching: Fetching) -> None:
    assert fetching.run() == BODY
    assert (server.ranges, fetching.pauses) == ([None], [])


def test_a_cut_connection_is_gone_on_with_where_it_broke_off(
    server: Asked, fetching: Fetching
) -> None:
    server.answers = [cut(1000), cut(200_000), well]
    assert fetching.run() == BODY
    assert server.ranges == [None, "bytes=1000-", "bytes=200000-"]
    assert fetching.pauses == [1.0, 2.0]


def test_what_an_earlier_process_left_is_gone_on_with(server: Asked, fetching: Fetching) -> None:
    fetching.partial.write_bytes(BODY[:500])
    assert fetching.run() == BODY
    assert server.ranges == ["bytes=500-"]


def test_a_complete_partial_file_needs_no_request(server: Asked, fetching: Fetching) -> None:
    fetching.partial.write_bytes(BODY)
    assert fetching.run() == BODY
    assert server.ranges == []


@pytest.mark.parametrize("left", [b"wrong" * 100, BODY + b"more", b"\x00" * len(BODY)])
def test_a_partial_file_that_is_wrong_is_thrown_away(
    left: bytes, server: Asked, fetching: Fetching
) -> None:
    fetching.partial.write_bytes(left)
    assert fetching.run() == BODY
    assert server.ranges[-1] is None


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (ignores_the_range, 1),
        (another_range, 2),
        (another_total, 2),
        (no_range_given, 2),
        (other_bytes, 2),
    ],
)
def test_ranges_served_wrongly_do_no_harm(
    answer: Answer, requests: int, server: Asked, fetching: Fetching
) -> None:
    fetching.partial.write_bytes(BODY[:500])
    server.answers = [answer]
    assert fetching.run() == BODY
    assert server.ranges == ["bytes=500-", None][:requests]


def test_a_refused_range_starts_anew_at_the_next_address(server: Asked, tmp_path: Path) -> None:
    urls = (f"{server.address}/one", f"{server.address}/two")
    fetching = Fetching(server, tmp_path, urls=urls)
    fetching.partial.write_bytes(BODY[:500])
    server.answers = [refuses(416)]
    assert fetching.run() == BODY
    assert server.paths == ["/one", "/two"]
    assert server.ranges == ["bytes=500-", None]


def test_no_more_bytes_are_taken_than_the_file_has(server: Asked, fetching: Fetching) -> None:
    server.answers = [too_much]
    assert fetching.run() == BODY


@pytest.mark.parametrize("answer", [no_length, cut(1000)])
def test_a_file_that_never_arrives_whole_is_unavailable_and_its_start_is_kept(
    answer: Answer, server: Asked, fetching: Fetching
) -> None:
    server.answers = [answer] * 9
    with pytest.raises(DatasetUnavailableError) as caught:
        fetching.run()
    assert "file.bin could not be fetched:" in str(caught.value)
    assert str(caught.value).count(server.address) == 3
    assert 'source="mini"' in str(caught.value)
    assert not fetching.target.exists()


def test_a_server_that_always_lies_is_a_checksum_error_and_leaves_nothing(
    server: Asked, fetching: Fetching
) -> None:
    server.answers = [other_bytes] * 3
    with pytest.raises(ChecksumError, match="256000 bytes with SHA-256 .*: expected"):
        fetching.run()
    assert list(fetching.target.parent.iterdir()) == []
    assert server.ranges == [None] * 3


def test_mirrors_are_asked_in_order_and_the_rest_of_a_file_may_come_from_the_next(
    server: Asked, tmp_path: Path
) -> None:
    urls = tuple(f"{server.address}/{name}" for name in ("one", "two", "three"))
    fetching = Fetching(server, tmp_path, urls=urls)
    server.answers = [refuses(404), cut(1000), well]
    assert fetching.run() == BODY
    assert server.paths == ["/one", "/two", "/three"]
    assert server.ranges == [None, None, "bytes=1000-"]
    assert fetching.pauses == []


@pytest.mark.parametrize(
    ("asked", "pause"), [("7", 7.0), ("9999", 60.0), ("soon", 1.0), ("0", 1.0)]
)
def test_a_busy_server_is_given_the_time_it_asks_for_within_a_minute(
    asked: str, pause: float, server: Asked, fetching: Fetching
) -> None:
    server.answers = [refuses(429, Retry_After=asked)]
    assert fetching.run() == BODY
    assert fetching.pauses == [pause]


@pytest.mark.parametrize("status", [404, 403, 500, 503])
def test_a_status_is_named_once_for_each_try(
    status: int, server: Asked, fetching: Fetching
) -> None:
    server.answers = [refuses(status)] * 3
    with pytest.raises(DatasetUnavailableError) as caught:
        fetching.run()
    assert str(caught.value).count(f"HTTP status {status}") == 3
    assert fetching.pauses == [1.0, 2.0]


def test_a_server_that_says_nothing_is_left_after_the_timeout(
    server: Asked, fetching: Fetching
) -> None:
    may_end = threading.Event()

    def silent(request: Handler, first: int) -> None:
        may_end.wait(30)

    server.answers = [silent]
    with pytest.raises(DatasetUnavailableError, match="timed out"):
        fetching.run(timeout_s=0.1, tries=1)
    may_end.set()


def test_a_server_that_is_not_there_is_named(tmp_path: Path, server: Asked) -> None:
    fetching = Fetching(server, tmp_path, urls=("http://127.0.0.1:9/file.bin",))
    with pytest.raises(DatasetUnavailableError, match=r"127\.0\.0\.1:9/file.bin: .*refused"):
        fetching.run()


def test_redirects_are_followed_within_the_allowed_schemes(
    server: Asked, fetching: Fetching
) -> None:
    server.answers = [redirects("/elsewhere")]
    assert fetching.run() == BODY
    assert server.paths == ["/file.bin", "/elsewhere"]
    server.answers = [redirects("ftp://127.0.0.1/x")]
    fetching.target.unlink()
    with pytest.raises(DatasetUnavailableError, match="127.0.0.1/x is not fetched: only http"):
        fetching.run(tries=1)


def test_plain_http_is_refused_by_default(server: Asked, fetching: Fetching) -> None:
    with pytest.raises(DatasetUnavailableError, match="is not fetched: only https addresses are"):
        download(fetching.file, fetching.target, HttpSettings(tries=1))
    assert server.paths == []
