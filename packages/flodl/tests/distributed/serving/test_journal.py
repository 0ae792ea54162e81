import errno
import threading

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.serving.journal import ControllerJournal, read_journal


def test_the_newest_state_comes_back(tmp_path):
    file = tmp_path / "journal"
    journal = ControllerJournal(file)
    for window in range(3):
        journal.write({"window": window, "ranges": [[0, 5]], "blob": b"\x00\xff", "f": 0.1})
    assert read_journal(file) == {"window": 2, "ranges": [[0, 5]], "blob": b"\x00\xff", "f": 0.1}


def test_where_nothing_was_kept_there_is_no_state(tmp_path):
    assert read_journal(tmp_path / "journal") is None


def test_a_process_that_dies_while_it_writes_leaves_the_state_before(tmp_path):
    file = tmp_path / "journal"
    ControllerJournal(file).write({"window": 1})
    file.with_suffix(".tmp").write_bytes(b"half")
    assert read_journal(file) == {"window": 1}


@pytest.mark.parametrize("damage", [b"", b"abc", b"\x00" * 9])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, damage):
    file = tmp_path / "journal"
    file.write_bytes(damage)
    with pytest.raises(LaunchError, match=r"journal is damaged"):
        read_journal(file)


def test_a_flipped_bit_is_found(tmp_path):
    file = tmp_path / "journal"
    ControllerJournal(file).write({"window": 1})
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(LaunchError, match="damaged"):
        read_journal(file)


def test_a_folder_that_cannot_be_written_is_a_problem_and_no_end(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    journal = ControllerJournal(folder / "journal")
    folder.rmdir()
    journal.write({"window": 1})
    assert journal.problem == "No such file or directory"
    folder.mkdir()
    journal.write({"window": 2})
    assert journal.problem is None
    assert read_journal(folder / "journal") == {"window": 2}


def test_the_disk_is_made_to_keep_it_once_a_second(tmp_path, monkeypatch):
    now, synced = [0.0], []
    monkeypatch.setattr("os.fdatasync", lambda fd: synced.append(now[0]))
    journal = ControllerJournal(tmp_path / "journal", clock=lambda: now[0])
    for _ in range(30):
        journal.write({})
        journal.wait()
        now[0] += 0.1
    assert len(synced) == 3


def test_nobody_waits_for_the_disk(tmp_path, monkeypatch):
    is_kept, synced = threading.Event(), []

    def slow(fd):
        assert is_kept.wait(30)
        synced.append(fd)

    monkeypatch.setattr("os.fdatasync", slow)
    now = [0.0]
    journal = ControllerJournal(tmp_path / "journal", clock=lambda: now[0])
    for window in range(3):
        journal.write({"window": window})
        now[0] += 2.0
    assert read_journal(tmp_path / "journal") == {"window": 2}
    assert synced == []
    is_kept.set()
    journal.wait()
    assert len(synced) == 1


def test_a_disk_that_keeps_nothing_is_a_problem(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fail)
    journal = ControllerJournal(tmp_path / "journal")
    journal.write({})
    journal.wait()
    journal.write({})
    assert journal.problem == "Input/output error"
