import threading

from flodl.monitor import sink_runner
from flodl.monitor.sink_runner import SinkRunner
from flodl.records.record import Record


class Recorder:
    def __init__(self, failures=0, on="write"):
        self.failures = failures
        self.on = on
        self.calls = []

    def _call(self, name, *given):
        if name == self.on and self.failures:
            self.failures -= 1
            raise RuntimeError("target gone")
        self.calls.append((name, *given))

    def open(self, run):
        self._call("open", run)

    def write(self, records):
        self._call("write", [record.seq for record in records])

    def close(self, status):
        self._call("close", status)

    @property
    def seqs(self):
        return [seq for name, *given in self.calls if name == "write" for seq in given[0]]


def record(seq):
    return Record(seq, "node", "root", b"{}")


def runner(*sinks):
    trouble = []
    return SinkRunner(sinks, lambda: {"id": "x"}, trouble.append), trouble


def fed(made, count):
    for seq in range(count):
        done = made._waiting
        made.offer([record(seq)])
        while done:
            pass


def test_sinks_are_opened_fed_in_order_and_closed():
    sink = Recorder()
    made, _ = runner(sink)
    fed(made, 5)
    made.close("done")
    made.close("done")
    assert sink.calls[0] == ("open", {"id": "x"})
    assert sink.seqs == list(range(5))
    assert sink.calls[-1] == ("close", "done")


def test_a_sink_that_fails_three_times_running_is_left_out_and_the_others_go_on(caplog):
    bad, good = Recorder(failures=100), Recorder()
    made, trouble = runner(bad, good)
    fed(made, 6)
    made.close("done")
    assert good.seqs == list(range(6))
    assert bad.seqs == []
    assert trouble == ["Recorder failed 3 times and is left out: target gone"]
    assert caplog.text.count("target gone") == 3


def test_a_sink_that_recovers_is_kept():
    sink = Recorder(failures=2)
    made, trouble = runner(sink)
    fed(made, 6)
    made.close("done")
    assert sink.seqs[-1] == 5
    assert trouble == []


def test_a_sink_that_does_not_open_is_tried_again():
    sink = Recorder(failures=1, on="open")
    made, _ = runner(sink)
    fed(made, 3)
    made.close("failed")
    assert sink.calls[0] == ("open", {"id": "x"})
    assert sink.calls[-1] == ("close", "failed")


def test_a_slow_sink_holds_up_nobody_and_losses_are_told(monkeypatch, caplog):
    monkeypatch.setattr(sink_runner, "MAX_WAITING", 100)
    free, writing = threading.Event(), threading.Event()

    class Slow(Recorder):
        def write(self, records):
            writing.set()
            free.wait(30)
            super().write(records)

    sink = Slow()
    made, _ = runner(sink)
    made.offer([record(0)])
    assert writing.wait(30)
    for seq in range(1, 1001):
        made.offer([record(seq)])
    free.set()
    made.close("done")
    assert sink.seqs == [0, *range(901, 1001)]
    assert made.dropped == 900
    assert "900 records were lost" in caplog.text
