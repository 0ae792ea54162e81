from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.core.errors import ChecksumError, ConfigError, DatasetUnavailableError
from flodl.data.datasets import cache, ensure, load, write_idx
from flodl.data.datasets.cache import CachedFiles, is_offline
from flodl.data.datasets.catalog import CATALOG
from flodl.data.datasets.download import HttpSettings
from flodl.data.datasets.lock import locked

HTTP = HttpSettings(schemes=("http",), sleep=lambda _: None)


class Site:
    """A small MNIST on a server of this machine, published as the real one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[str] = []
        self.address = ""

    @property
    def handler(self) -> type[SimpleHTTPRequestHandler]:
        site = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(site.folder))

            def do_GET(self) -> None:
                site.paths.append(self.path)
                super().do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def site(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    import hashlib

    site = Site(tmp_path_factory.mktemp("site"))
    for stem, count in (("train", 4), ("t10k", 2)):
        images = torch.arange(count * 4, dtype=torch.uint8).view(count, 2, 2)
        write_idx(site.folder / f"{stem}-images-idx3-ubyte.gz", images)
        labels = torch.arange(count, dtype=torch.uint8)
        write_idx(site.folder / f"{stem}-labels-idx1-ubyte.gz", labels)
    with ThreadingHTTPServer(("127.0.0.1", 0), site.handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        files = []
        for file in CATALOG["mnist"]:
            data = (site.folder / file.name).read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            url = f"{site.address}/{file.name}"
            files.append(replace(file, size=len(data), sha256=sha256, urls=(url,)))
        monkeypatch.setitem(CATALOG, "mnist", tuple(files))
        monkeypatch.setattr(cache, "download", lambda file, path, _: _download(file, path))
        yield site
        server.shutdown()
        thread.join()


def _download(file: Any, path: Path) -> None:
    from flodl.data.datasets.download import download

    download(file, path, HTTP)


def test_missing_files_are_fetched_once_and_then_read_from_the_cache(
    site: Site, tmp_path: Path
) -> None:
    assert len(load("mnist", root=tmp_path)) == 4
    assert sorted(site.paths) == ["/train-images-idx3-ubyte.gz", "/train-labels-idx1-ubyte.gz"]
    assert len(load("mnist", root=tmp_path)) == 4
    assert len(load("mnist", root=tmp_path, offline=True)) == 4
    assert len(site.paths) == 2
    assert not list((tmp_path / "mnist").glob("*.part"))


def test_ensure_fetches_all_files_and_gives_their_paths(site: Site, tmp_path: Path) -> None:
    paths = ensure("mnist", tmp_path)
    assert [path.name for path in paths] == [file.name for file in CATALOG["mnist"]]
    assert all(path.read_bytes() == (site.folder / path.name).read_bytes() for path in paths)


def test_a_damaged_file_is_moved_aside_and_fetched_again(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = ensure("mnist", tmp_path)[0]
    path.write_bytes(b"damaged")
    assert len(load("mnist", root=tmp_path)) == 4
    assert path.with_name(path.name + ".bad").read_bytes() == b"damaged"
    assert "not the published bytes; kept as" in caplog.text


def test_offline_never_opens_a_connection(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_OFFLINE", "1")
    with pytest.raises(DatasetUnavailableError, match="mnist: offline, and not in"):
        load("mnist", root=tmp_path)
    with pytest.raises(DatasetUnavailableError):
        ensure("mnist", tmp_path)
    assert site.paths == []
    path = ensure("mnist", tmp_path, offline=False)[0]
    path.write_bytes(b"damaged")
    with pytest.raises(ChecksumError, match="7 bytes with SHA-256"):
        load("mnist", root=tmp_path)


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), ("1", True)])
def test_the_variable_is_0_or_1(
    value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_OFFLINE", value)
    assert is_offline(None) == expected
    assert is_offline(not expected) != expected


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_OFFLINE", "yes")
    with pytest.raises(ConfigError, match="FLODL_OFFLINE='yes': expected 0 or 1"):
        is_offline(None)


def test_unknown_sets_are_named() -> None:
    with pytest.raises(ConfigError, match=r"ensure\('mnits'\): no such data set; there are mnist"):
        ensure("mnits")  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "mnist").write_text("a file")
    with pytest.raises(DatasetUnavailableError, match="mnist: cannot be made"):
        load("mnist", root=tmp_path)


def test_many_at_once_fetch_each_file_once(site: Site, tmp_path: Path) -> None:
    start, found = threading.Barrier(8), []

    def one() -> None:
        start.wait(10)
        found.append(len(CachedFiles("mnist", tmp_path).read("train-images-idx3-ubyte.gz")[0]))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert site.paths == ["/train-images-idx3-ubyte.gz"]


def test_a_lock_that_is_never_free_is_an_error_and_waiting_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "x.lock", [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 10

    second = locked(path, wait_s=60, clock=lambda: now[0], sleep=sleep)
    refused = pytest.raises(DatasetUnavailableError, match="held the lock for 60 s")
    with caplog.at_level(logging.INFO, "flodl"), locked(path), refused, second:
        pass
    assert now == [60.0]
    assert caplog.text.count("waiting for another process") == 1
    with locked(path):
        pass


@pytest.mark.multiproc
def test_the_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    program = (
        "import os, pathlib, sys\n"
        "from flodl.data.datasets.lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert done.returncode == 9
    with locked(path, wait_s=0):
        pass
