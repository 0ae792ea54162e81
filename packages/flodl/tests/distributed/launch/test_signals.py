import os
import signal
import threading
import time

import pytest

from flodl.distributed.launch.signals import SignalWatch


class Run:
    def __init__(self):
        self.calls = []

    def stop(self, *, save=True, reason=""):
        self.calls.append(("stop", save, reason))

    def abort(self):
        self.calls.append(("abort",))


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def watch(run):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = SignalWatch(run)
    made.install()
    yield made
    made.remove()
    signal.signal(signal.SIGINT, previous)


def press():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)


def test_the_first_ctrl_c_asks_and_the_second_ends(run, watch, caplog):
    press()
    assert run.calls == [("stop", True, "interrupted")]
    assert "press Ctrl-C again" in caplog.text
    assert watch.exit_code == 130
    with pytest.raises(KeyboardInterrupt):
        press()
    assert run.calls[1:] == [("abort",)]


def test_sigterm_asks_and_asks_again(run, watch):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    assert run.calls == [("stop", True, "interrupted")]
    assert (watch.received, watch.exit_code) == (signal.SIGTERM, 143)


def test_afterwards_signals_mean_what_they_meant(run, watch):
    watch.remove()
    with pytest.raises(KeyboardInterrupt):
        press()
    assert not run.calls
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert watch.exit_code == 0


def test_a_programs_own_handler_is_left_alone(run):
    caught = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    watch = SignalWatch(run)
    watch.install()
    press()
    watch.remove()
    press()
    signal.signal(signal.SIGINT, previous)
    assert caught == [signal.SIGINT] * 2
    assert not run.calls


def test_in_another_thread_nothing_is_installed(run):
    watch = SignalWatch(run)
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=watch.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
