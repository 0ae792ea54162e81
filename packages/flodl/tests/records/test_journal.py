import json
import os
import threading

import pytest

from flodl.core.errors import ConfigError
from flodl.core.paths import RecordPathError
from flodl.records import NodeReport, RecordTree
from flodl.records import journal as journal_module
from flodl.records.errors import RecordLogError
from flodl.records.journal import RecordLog, SegmentTree
from flodl.records.journal_reader import RecordLogReader
from flodl.records.record import Record


def line(seq, path="root", size=0):
    body = {"seq": seq, "kind": "node", "path": path, "pad": "x" * size}
    return json.dumps(body).encode()


def written(folder, count, *, size=100, cap=4096, path="root"):
    files = SegmentTree(folder, cap)
    for seq in range(count):
        files.append(path, [line(seq, path, size)])
    files.close()


def seqs(records):
    return [record["seq"] for record in records]


def test_the_tree_of_files_is_the_record_tree(tmp_path):
    tree, log = RecordTree(), RecordLog(tmp_path / "a/b")
    leave = tree.listen(log.offer)
    tree.describe(id="x")
    for tick in range(3):
        tree.publish(
            [
                NodeReport(path=f"root/10.0.0.{n}/rank{n}", metrics={"loss": n}, work=1, tick=tick)
                for n in (5, 6)
            ]
        )
    tree.alert("rank_lost", "root/10.0.0.5/rank5", "gone")
    leave()
    log.close()
    reader = RecordLogReader(tmp_path / "a/b")
    assert reader.paths() == tree.paths()
    assert (tmp_path / "a/b/root/10.0.0.5/rank5.jsonl").is_file()
    assert reader.meta()["run"] == {"id": "x"}
    kept = reader.tail("root/10.0.0.5/rank5", 10)
    assert [r["kind"] for r in kept] == ["node", "node", "node", "event"]
    loaded = reader.load()
    assert loaded.current("root") == tree.current("root")
    assert loaded.alerts() == tree.alerts()
    assert loaded.run == {"id": "x"}
    assert log.dropped == 0


def test_a_node_never_exceeds_its_cap_and_keeps_its_newest_lines(tmp_path):
    written(tmp_path, 200)
    total = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert total <= 4096
    kept = seqs(RecordLogReader(tmp_path).tail("root", 1000))
    assert kept == list(range(kept[0], 200))
    assert len(kept) >= 12
    assert sorted(file.name for file in tmp_path.iterdir()) == ["root.jsonl", "root.jsonl.1"]


def test_reopening_goes_on_where_it_ended(tmp_path):
    written(tmp_path, 10)
    size = (tmp_path / "root.jsonl").stat().st_size
    written(tmp_path, 1)
    assert (tmp_path / "root.jsonl").stat().st_size > size
    written(tmp_path, 200)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4096


def test_a_torn_last_line_is_closed_and_skipped(tmp_path):
    written(tmp_path, 3, size=0)
    with (tmp_path / "root.jsonl").open("ab") as file:
        file.write(b'{"seq":3,"kind":"no')
    assert seqs(RecordLogReader(tmp_path).tail("root", 10)) == [0, 1, 2]
    written(tmp_path, 2, size=0)
    assert seqs(RecordLogReader(tmp_path).tail("root", 10)) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("block", [7, 64, 100_000])
def test_the_tail_is_the_newest_lines_oldest_first(tmp_path, monkeypatch, block):
    monkeypatch.setattr("flodl.records.journal_reader._BLOCK", block)
    written(tmp_path, 30, cap=1 << 20)
    reader = RecordLogReader(tmp_path)
    assert seqs(reader.tail("root", 5)) == [25, 26, 27, 28, 29]
    assert seqs(reader.tail("root", 100)) == list(range(30))
    assert reader.tail("root", 0) == []
    assert reader.tail("root/nobody", 5) == []


def test_the_tail_reads_the_end_of_a_large_file_only(tmp_path, monkeypatch):
    written(tmp_path, 3000, size=500, cap=1 << 24)
    blocks = []
    from flodl.records import journal_reader

    whole = journal_reader._lines_backwards

    def counted(file):
        for text in whole(file):
            blocks.append(len(text))
            yield text

    monkeypatch.setattr(journal_reader, "_lines_backwards", counted)
    assert len(RecordLogReader(tmp_path).tail("root", 3)) == 3
    assert len(blocks) == 3


def test_at_most_so_many_files_are_open(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_OPEN", 4)
    (tmp_path / "root").mkdir()
    files = SegmentTree(tmp_path, 1 << 20)
    for seq in range(3):
        for rank in range(20):
            files.append(f"root/rank{rank}", [line(seq)])
            assert len(files._open) <= 4
    files.close()
    assert len((tmp_path / "root/rank7.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("path", ["../x", "root/../../x", "root/a\x00", "/etc/passwd"])
def test_a_path_cannot_leave_the_folder(tmp_path, path):
    with pytest.raises(RecordPathError):
        SegmentTree(tmp_path, 4096).append(path, [line(0)])


def test_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "root").symlink_to(outside)
    (folder / "root.jsonl").symlink_to(outside / "file")
    files = SegmentTree(folder, 4096)
    with pytest.raises(RecordLogError, match="is a link"):
        files.append("root/rank0", [line(0)])
    with pytest.raises(OSError, match="symbolic|Too many"):
        files.append("root", [line(0)])
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("cap", [-1, 1, 4095])
def test_a_cap_that_holds_nothing_is_refused(tmp_path, cap):
    with pytest.raises(ConfigError, match=f"max_bytes={cap}"):
        RecordLog(tmp_path, cap)


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordLogError, match="cannot be written"):
        RecordLog(tmp_path / "file/log")


def test_a_failing_disk_is_told_once_per_node_and_ends_nothing(tmp_path, monkeypatch, caplog):
    told = []
    log = RecordLog(tmp_path, on_error=lambda path, text: told.append((path, text)))
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    for seq in range(3):
        log.offer([Record(seq, "node", "root", line(seq))])
    log.close()
    assert [path for path, _ in told] == ["root"]
    assert "No space" in told[0][1]
    assert caplog.text.count("training goes on") == 1
    assert log.dropped == 3


def test_a_disk_that_blocks_holds_up_nobody(tmp_path, monkeypatch):
    blocked, free = threading.Event(), threading.Event()
    log = RecordLog(tmp_path)
    monkeypatch.setattr(SegmentTree, "append", lambda *_: blocked.set() or free.wait(30))
    try:
        log.offer([Record(0, "node", "root", line(0))])
        assert blocked.wait(30)
        for seq in range(15_000):
            log.offer([Record(seq, "node", "root", b"{}")])
        assert log.waiting == journal_module.MAX_WAITING
        assert log.dropped == 5_000
    finally:
        free.set()
        log.close()


def test_no_log_is_an_error_that_says_what_a_log_has(tmp_path):
    with pytest.raises(RecordLogError, match=r"root\.jsonl"):
        RecordLogReader(tmp_path)
