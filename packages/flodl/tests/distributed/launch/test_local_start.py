"""What is checked before any process is started, and what a refusal leaves behind: nothing."""

import socket
import threading

import pytest

from flodl.core.errors import CudaBeforeRunError, LaunchError
from flodl.distributed.launch import local
from flodl.distributed.launch.hardware import cpu_devices
from flodl.distributed.launch.local import LocalPlan, LocalRun
from flodl.distributed.launch.run_folder import runs_folder


@pytest.fixture(autouse=True)
def no_process_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def forbidden(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", forbidden)


def free_again(port):
    with socket.create_server(("127.0.0.1", port)):
        return True


def test_a_gpu_that_was_touched_refuses_the_run(monkeypatch):
    def check():
        raise CudaBeforeRunError("touched")

    monkeypatch.setattr(local.recorder, "check", check)
    run = LocalRun(LocalPlan(devices=cpu_devices(2), entry="a:b"), print)
    with pytest.raises(CudaBeforeRunError):
        run.start()
    assert free_again(run.port)
    assert not list(runs_folder().iterdir())


def test_an_object_that_cannot_be_pickled_refuses_the_run():
    plan = LocalPlan(devices=cpu_devices(2), payload={"train_step": threading.Lock()}, entry="a:b")
    run = LocalRun(plan, print)
    with pytest.raises(LaunchError, match="train_step cannot be pickled"):
        run.start()
    assert free_again(run.port)
    assert not list(runs_folder().iterdir())


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"cannot listen on 127.0.0.1:{port}"):
            LocalRun(LocalPlan(port=port), print)
    assert not list(runs_folder().iterdir())


def test_a_folder_that_cannot_be_made_is_named_and_frees_the_port(tmp_path):
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(LaunchError, match="run_dir="):
        LocalRun(LocalPlan(port=port, run_dir=tmp_path / "file" / "run"), print)
    assert free_again(port)


def test_a_folder_that_was_given_stays(tmp_path, monkeypatch):
    given = tmp_path / "mine"
    monkeypatch.setattr(local.recorder, "check", lambda: (_ for _ in ()).throw(LaunchError("x")))
    run = LocalRun(LocalPlan(run_dir=given, entry="a:b"), print)
    with pytest.raises(LaunchError):
        run.start()
    assert (given / "logs").is_dir()
