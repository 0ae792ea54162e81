import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.hostd.command import Command
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.protocol.values import Device


def options(**changes):
    values = {
        "run": "r",
        "nonce": "n",
        "address": "127.0.0.1:1",
        "token": "secret",
        "host": "node-a",
        "devices": (Device(uuid="cpu", name="CPU"), Device(uuid="cpu", name="CPU", index=1)),
        "run_dir": "/x",
        "cwd": "/",
        "command": Command.parse(["python", "-u", "t.py", "a"]),
        "timeouts": Timeouts(heartbeat=0.5),
    }
    return HostOptions(**{**values, **changes})


def test_options_come_back_from_their_line():
    told = options(environ={"A": "b"}, threads=2)
    assert "\n" not in told.to_json()
    assert HostOptions.from_json(told.to_json()) == told


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"devices": 3, "command": null}', "x"])
def test_a_line_that_holds_no_options_is_an_error(line):
    with pytest.raises(LaunchError, match="told no options"):
        HostOptions.from_json(line)


def test_each_rank_sees_its_own_gpu_and_nothing_else(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    gpus = (Device(uuid="GPU-1", name="a", index=3), Device(uuid="nvidia-4", name="a", index=4))
    told = options(vendor="nvidia", devices=gpus)
    assert told.rank_environ(0)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert told.rank_environ(1)["CUDA_VISIBLE_DEVICES"] == "4"
    assert told.uid(1) == "node-a/nvidia-4/1"
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    amd = options(vendor="amd", devices=gpus).rank_environ(0)
    assert amd["HIP_VISIBLE_DEVICES"] == "3"
    assert "ROCR_VISIBLE_DEVICES" not in amd
    assert "CUDA_VISIBLE_DEVICES" not in amd
    assert options().rank_environ(0)["CUDA_VISIBLE_DEVICES"] == ""
