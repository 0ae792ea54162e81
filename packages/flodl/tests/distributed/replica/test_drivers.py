import contextvars
import threading
import time

import pytest
import torch

from flodl.distributed.replica import drivers
from flodl.distributed.replica.drivers import Drivers

CPU = torch.device("cpu")
variable = contextvars.ContextVar("variable", default="none")


DEVICES = [torch.device("cpu", index) for index in range(3)]  # three, as far as drivers know


def test_each_device_has_a_thread_and_all_work_at_once():
    meeting = threading.Barrier(3)
    runner = Drivers(DEVICES)

    def name():
        meeting.wait(timeout=10)
        return threading.current_thread().name

    first = runner.run([name] * 3)
    assert first == [f"flodl-replica-{rank}" for rank in range(3)]


def test_a_device_without_a_task_gives_nothing():
    assert Drivers([CPU] * 2).run([None, lambda: 5]) == [None, 5]


def test_threads_work_in_the_callers_modes():
    def modes():
        return (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_inference_mode_enabled(),
            variable.get(),
        )

    runner = Drivers([CPU])
    token = variable.set("ours")
    try:
        for context in (
            torch.enable_grad(),
            torch.no_grad(),
            torch.inference_mode(),
            torch.autocast("cpu", dtype=torch.float16),
        ):
            with context:
                assert runner.run([modes]) == [modes()]
    finally:
        variable.reset(token)


def test_an_error_waits_for_the_others_and_says_where_it_was():
    done = threading.Event()

    def slow():
        done.wait(timeout=10)
        return 1

    def wrong():
        done.set()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        Drivers(DEVICES[:2]).run([slow, wrong])
    assert caught.value.__notes__ == ["raised by replica 1 on cpu:1"]


def test_replicas_on_one_device_take_turns_also_after_an_error():
    second = threading.Event()

    def first():
        assert not second.wait(0.1), "the second works beside the first"
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Drivers([CPU] * 2).run([first, second.set])
    assert second.is_set()


def test_idle_threads_end_and_come_back(monkeypatch):
    monkeypatch.setattr(drivers, "IDLE_S", 0.01)
    runner = Drivers([CPU])
    (first,) = runner.run([threading.current_thread])
    deadline = time.monotonic() + 10
    while first.is_alive() and time.monotonic() < deadline:
        first.join(0.05)
    assert not first.is_alive()
    assert runner.run([lambda: 7]) == [7]
