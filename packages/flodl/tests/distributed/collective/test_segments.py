import errno
import os

import pytest

from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.segments import Segment, sweep_shared_memory


def test_what_one_writes_the_other_reads_also_after_the_name_is_gone(tmp_path):
    own = Segment.create("flodl-x", 100, [tmp_path])
    other = Segment.attach(own.path, 100)
    assert own.path.stat().st_mode & 0o777 == 0o600
    own.unlink()
    own.unlink()
    assert not list(tmp_path.iterdir())
    own.map[3:6] = b"abc"
    assert bytes(other.map[:8]) == b"\0\0\0abc\0\0"


def test_the_next_folder_is_taken_where_there_is_no_room(tmp_path, monkeypatch):
    real = os.posix_fallocate
    calls = []

    def scarce(descriptor, start, size):
        calls.append(size)
        if len(calls) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", scarce)
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    segment = Segment.create("flodl-x", 64, [first, second])
    assert segment.path.parent == second
    assert not list(first.iterdir())
    with pytest.raises(CollectiveError, match=r"64 bytes: no room; .*/a: No space left"):
        Segment.create("flodl-y", 64, [first])


def test_a_segment_of_another_size_or_none_is_refused(tmp_path):
    own = Segment.create("flodl-x", 100, [tmp_path])
    with pytest.raises(CollectiveError, match="has 100 bytes, expected 99"):
        Segment.attach(own.path, 99)
    with pytest.raises(CollectiveError, match="No such file"):
        Segment.attach(tmp_path / "none", 1)
    with pytest.raises(CollectiveError, match="File exists"):
        Segment.create("flodl-x", 100, [tmp_path])
    link = tmp_path / "link"
    link.symlink_to(own.path)
    with pytest.raises(CollectiveError):
        Segment.attach(link, 100)


def test_a_sweep_takes_one_run_and_nothing_else(tmp_path):
    for name in ("flodl-run1-g1-r0", "flodl-run1-g2-r1", "flodl-run2-g1-r0", "other"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "flodl-run1-uid").mkdir()
    gone = tmp_path / "gone"
    removed = sweep_shared_memory("flodl-run1-", [gone, tmp_path])
    assert removed == ["flodl-run1-g1-r0", "flodl-run1-g2-r1"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"flodl-run2-g1-r0", "other", "flodl-run1-uid"}
    with pytest.raises(CollectiveError, match="8 or more"):
        sweep_shared_memory("flodl-", [tmp_path])
