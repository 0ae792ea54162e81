import asyncio
import io
import os

from flodl.distributed.hostd.output import RankOutput


def collected(file, *, out=b"", err=b""):
    """Return what reaches the two streams and the tail, for what a rank writes to its own."""
    shown, failed = io.BytesIO(), io.BytesIO()

    async def collect():
        output = RankOutput("[host/rank1]", file, shown.write, failed.write)
        ends = await output.open()
        for end, text in zip(ends, (out, err), strict=True):
            await asyncio.to_thread(os.write, end, text)
            os.close(end)
        await output.settle(10.0)
        await output.close()
        return output.tail

    tail = asyncio.run(collect())
    return shown.getvalue(), failed.getvalue(), tail


def test_each_line_is_prefixed_on_its_own_stream_and_kept_in_the_file(tmp_path):
    file = tmp_path / "rank1.log"
    shown, failed, tail = collected(file, out=b"one\ntwo\n", err=b"oh\n")
    assert shown == b"[host/rank1] one\n[host/rank1] two\n"
    assert failed == b"[host/rank1] oh\n"
    assert sorted(file.read_bytes().splitlines()) == [b"oh", b"one", b"two"]
    assert sorted(tail.splitlines()) == ["oh", "one", "two"]


def test_a_last_line_without_an_end_is_a_line(tmp_path):
    shown, _, _ = collected(tmp_path / "log", out=b"half")
    assert shown == b"[host/rank1] half\n"


def test_a_line_without_end_is_cut_and_loses_nothing(tmp_path):
    text = b"x" * 200_000
    file = tmp_path / "log"
    shown, _, _ = collected(file, out=text + b"\n")
    assert file.read_bytes().replace(b"\n", b"") == text
    assert shown.count(b"[host/rank1] ") > 1


def test_the_tail_holds_the_last_lines_only(tmp_path):
    _, _, tail = collected(tmp_path / "log", out=b"".join(b"%d\n" % n for n in range(100)))
    assert tail.splitlines() == [str(n) for n in range(60, 100)]


def test_a_log_goes_on_where_the_rank_before_stopped(tmp_path):
    file = tmp_path / "log"
    collected(file, out=b"first\n")
    collected(file, out=b"second\n")
    assert file.read_bytes() == b"first\nsecond\n"
