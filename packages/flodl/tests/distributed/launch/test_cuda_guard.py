import pytest
import torch

from flodl.core.errors import CudaBeforeRunError, LauncherCudaError
from flodl.distributed.launch.cuda_guard import CudaRecorder


@pytest.fixture
def cuda(monkeypatch):
    """CUDA that can be initialized on a machine without a GPU."""
    state = {"is_initialized": False, "calls": 0}

    def lazy_init():
        state["is_initialized"] = True
        state["calls"] += 1

    monkeypatch.setattr(torch.cuda, "_lazy_init", lazy_init)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: state["is_initialized"])
    state["original"] = lazy_init
    return state


@pytest.fixture
def recorder(cuda):
    made = CudaRecorder()
    yield made
    made.remove()


def touch_a_gpu():
    torch.cuda._lazy_init()


def test_a_process_that_touched_no_gpu_passes(recorder):
    recorder.install()
    recorder.check()


def test_the_error_shows_where_a_gpu_was_touched(recorder, cuda):
    recorder.install()
    touch_a_gpu()
    assert cuda["calls"] == 1
    with pytest.raises(CudaBeforeRunError) as error:
        recorder.check()
    assert "in touch_a_gpu" in str(error.value)
    assert "_initialize" not in str(error.value)
    assert "detect_gpus" in error.value.hint
    assert torch.cuda._lazy_init is cuda["original"], "it stands there for the first call only"


def test_a_gpu_touched_before_flodl_came_is_said_to_be_so(recorder):
    touch_a_gpu()
    recorder.install()
    with pytest.raises(CudaBeforeRunError, match="before flodl was imported"):
        recorder.check()


def test_a_variable_makes_it_a_warning(recorder, monkeypatch, caplog):
    monkeypatch.setenv("FLODL_ALLOW_CUDA_IN_LAUNCHER", "1")
    recorder.install()
    touch_a_gpu()
    recorder.check()
    assert "touched before the run" in caplog.text


def test_after_the_run_began_no_gpu_can_be_touched(recorder, cuda):
    recorder.install()
    recorder.refuse("launcher")
    for _ in range(2):
        with pytest.raises(LauncherCudaError, match="in the launcher of a run"):
            touch_a_gpu()
    assert cuda["calls"] == 0


def test_an_attempt_that_fails_leaves_the_recorder_in_place(recorder, cuda, monkeypatch):
    def fail():
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.cuda, "_lazy_init", fail)
    recorder.install()
    with pytest.raises(RuntimeError, match="no driver"):
        touch_a_gpu()
    recorder.check()
    recorder.refuse("controller")
    with pytest.raises(LauncherCudaError):
        touch_a_gpu()


def test_removing_it_puts_everything_back(recorder, cuda):
    recorder.install()
    recorder.install()
    recorder.remove()
    assert torch.cuda._lazy_init is cuda["original"]
