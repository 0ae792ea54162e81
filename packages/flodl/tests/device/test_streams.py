import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.device import GpuEvent, GpuStream, StreamGuard


def test_on_the_cpu_events_are_clock_readings():
    start, end = GpuEvent(device="cpu"), GpuEvent(device="cpu")
    assert start.is_complete()
    start.record()
    stream = GpuStream("cpu", high_priority=True)
    end.record_on(stream)
    stream.wait_event(end)
    stream.synchronize()
    end.synchronize()
    assert stream.is_complete()
    assert GpuEvent.elapsed_time(start, end) >= 0
    with StreamGuard(stream) as guard:
        assert guard is not None


def test_a_time_that_was_not_taken_is_refused():
    untimed, fresh = GpuEvent(timing=False, device="cpu"), GpuEvent(device="cpu")
    with pytest.raises(ConfigError, match=r"elapsed_time\(start\): .* timing=False"):
        GpuEvent.elapsed_time(untimed, fresh)
    with pytest.raises(ConfigError, match="was not recorded"):
        GpuEvent.elapsed_time(fresh, fresh)


@pytest.mark.cuda
def test_a_guard_restores_the_stream_before_it():
    outer, inner = GpuStream("cuda"), GpuStream("cuda", high_priority=True)
    with StreamGuard(outer):
        with StreamGuard(inner):
            assert torch.cuda.current_stream() == inner.raw
            x = torch.ones(1000, device="cuda").sum()
            event = GpuEvent(timing=False)
            event.record_on(inner)
        assert torch.cuda.current_stream() == outer.raw
        outer.wait_event(event)
        outer.synchronize()
        assert x.item() == 1000
    assert event.is_complete()
