import gzip
import io
import os
import stat

import pytest

from flodl.checkpoint.files import gzip_into, open_plain, os_error_hint, write_atomically
from flodl.core.errors import CheckpointFormatError


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def test_content_appears_only_when_the_block_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with write_atomically(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError, SystemExit])
def test_any_error_keeps_the_old_file_and_leaves_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with pytest.raises(error), write_atomically(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.txt"]


def test_failed_sync_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), write_atomically(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.txt"]


def test_new_file_has_the_mode_of_the_umask_and_a_replaced_one_keeps_its_own(tmp_path):
    path = tmp_path / "a.txt"
    before = os.umask(0o027)
    try:
        with write_atomically(path) as file:
            file.write(b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    with write_atomically(path) as file:
        file.write(b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_link_stays_and_the_file_behind_it_is_replaced(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with write_atomically(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_longest_file_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    with write_atomically(path) as file:
        file.write(b"1")
    assert path.read_bytes() == b"1"


def test_folder_as_target_and_file_as_folder_are_refused(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(IsADirectoryError), write_atomically(tmp_path):
        pass
    with pytest.raises(NotADirectoryError), write_atomically(file / "below"):
        pass
    with pytest.raises(FileNotFoundError), write_atomically(tmp_path / "no" / "such"):
        pass


def test_every_common_failure_has_its_own_advice():
    assert "free space" in os_error_hint(OSError(28, ""))
    assert "ulimit" in os_error_hint(OSError(27, ""))
    assert "a file, not a folder" in os_error_hint(OSError(20, ""))
    assert "check the path" in os_error_hint(OSError())


def test_same_content_compresses_to_the_same_bytes():
    first, second = io.BytesIO(), io.BytesIO()
    gzip_into(io.BytesIO(b"abc" * 1000), first)
    gzip_into(io.BytesIO(b"abc" * 1000), second)
    assert first.getvalue() == second.getvalue()
    assert gzip.decompress(first.getvalue()) == b"abc" * 1000


def test_gzip_is_recognized_by_content_and_unpacked(tmp_path):
    path = tmp_path / "plain-looking-name"
    path.write_bytes(gzip.compress(b"payload"))
    with open_plain(path, name="x", max_bytes=100) as file:
        assert file.read() == b"payload"


def test_stream_that_cannot_seek_is_readable():
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.rest = io.BytesIO(b"payload")

        def readable(self):
            return True

        def read(self, size=-1):
            return self.rest.read(size)

    with open_plain(Pipe(), name="x", max_bytes=100) as file:
        assert file.read() == b"payload"


def test_unpacking_stops_at_the_limit(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * 10_000_000))
    with (
        pytest.raises(CheckpointFormatError, match=r"more than 1000000 bytes\n.*max_bytes"),
        open_plain(path, name="bomb.gz", max_bytes=1_000_000),
    ):
        pass


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:30] + b"?" * 30], ids=["cut", "garbled"]
)
def test_damaged_gzip_data_is_named(tmp_path, damage):
    path = tmp_path / "x.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(4000))))
    with (
        pytest.raises(CheckpointFormatError, match=r"x\.gz: damaged or truncated gzip"),
        open_plain(path, name="x.gz", max_bytes=10_000),
    ):
        pass


def test_a_missing_folder_is_told_by_the_name_that_was_asked_for(tmp_path):
    path = tmp_path / "missing" / "model.fdl"
    with pytest.raises(FileNotFoundError) as caught, write_atomically(path):
        pass
    assert caught.value.filename == str(path)
