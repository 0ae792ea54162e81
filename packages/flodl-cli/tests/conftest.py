"""A project of manifests in a temporary folder, and fdl run in it as a user would see it."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from flodl_cli import names
from flodl_cli.__main__ import main


@pytest.fixture(autouse=True, scope="session")
def hangup_ends_programs():
    """Let SIGHUP have its effect on what is started, also where nohup has started the tests."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


class Result(NamedTuple):
    code: int
    out: str
    err: str


class FdlProject:
    """Manifests below ``root``; ``fdl(...)`` runs one command line there."""

    def __init__(self, root: Path, read: Callable[[], tuple[str, str]]) -> None:
        self.root = root
        self._read = read

    def write(self, name: str, text: str) -> Path:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def manifest(self, text: str) -> Path:
        return self.write("fdl.yml", text)

    def fdl(self, *argv: str) -> Result:
        self._read()
        code = main(argv)
        return Result(code, *self._read())

    def explained(self, *argv: str) -> str:
        """The command line that would be run."""
        result = self.fdl("--explain", *argv)
        assert result.code == 0, result.err
        return result.out.splitlines()[0].removeprefix("command").strip()


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("FDL_", "FLODL_")) or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "GITHUB_ENV", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["pytest"])


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> FdlProject:
    monkeypatch.chdir(tmp_path)

    def read() -> tuple[str, str]:
        captured = capfd.readouterr()
        return captured.out, captured.err

    return FdlProject(tmp_path, read)


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` with ranges and tags; ``answers`` are codes to give before that.

    ``cut`` is how many bytes of each answer arrive before the connection breaks, one entry a call.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FileHandler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.answers: list[int] = []
        self.cut: list[int] = []
        self.ranges = True
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """Connections break here on purpose."""


class _FileHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        path = re.sub("^http://[^/]+", "", self.path)  # asked as a proxy
        server.seen.append((path, dict(self.headers)))
        if server.answers:
            return self._refuse(server.answers.pop(0))
        if path not in server.files or "User-Agent" not in self.headers:
            return self._refuse(403)
        body, etag = server.files[path], server.etags.get(path, '"one"')
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = 0
        if asked and server.ranges and self.headers.get("If-Range") == etag:
            start = int(asked[1])
            if start >= len(body):
                return self._refuse(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("ETag", etag)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if server.cut:
            self.wfile.write(body[start : start + server.cut.pop(0)])
            self.close_connection = True
            return None
        self.wfile.write(body[start:])
        return None

    def _refuse(self, code):
        self.send_response(code)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def fake_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put programs written in sh before all others on PATH."""
    folder = tmp_path / "fakes"

    def make(name: str, body: str) -> Path:
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return program

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return make


@pytest.fixture
def cache_file(tmp_path: Path) -> Path:
    return tmp_path / names.CACHE_FOLDER / "cache" / "tree.json"
