import io
import threading

from flodl.distributed.hostd.console import Console


def test_lines_keep_their_order_and_their_stream():
    out, err = io.BytesIO(), io.BytesIO()
    console = Console(out, err)
    for number in range(100):
        (console.err if number % 10 == 0 else console.out)(b"%d\n" % number)
    console.close()
    assert out.getvalue().split() == [b"%d" % n for n in range(100) if n % 10]
    assert err.getvalue().split() == [b"%d" % n for n in range(100) if n % 10 == 0]


def test_a_terminal_that_stands_still_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr("flodl.distributed.hostd.console._MOST_WAITING", 10)
    monkeypatch.setattr("flodl.distributed.hostd.console._PARTING_S", 0.01)
    goes_on = threading.Event()

    class Stopped(io.BytesIO):
        def write(self, data):
            goes_on.wait(20)
            return super().write(data)

    stopped = Stopped()
    console = Console(stopped, stopped)
    for number in range(50):
        console.out(b"%d\n" % number)
    assert console.dropped >= 39
    console.close()
    goes_on.set()
    console._lines.put(None)
    console._thread.join(10)
    assert stopped.getvalue().startswith(b"0\n1\n")


def test_a_reader_that_has_gone_ends_nothing():
    class Gone(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError

    kept = io.BytesIO()
    console = Console(Gone(), kept)
    console.out(b"lost\n")
    console.err(b"kept\n")
    console.close()
    assert kept.getvalue() == b"kept\n"
