import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.distributed.replica import auto_distribute, spreading, surroundings
from flodl.distributed.replica.surroundings import rank_place, replica_devices

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "gpu[03-04]",
}


@pytest.fixture(autouse=True)
def own_meetings(monkeypatch):
    monkeypatch.delenv("FLODL_FAKE_DEVICES", raising=False)
    surroundings._meeting.cache_clear()
    yield
    surroundings._meeting.cache_clear()


@pytest.fixture
def gpus(monkeypatch):
    def there(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return there


def test_replicas_lie_on_all_gpus(gpus):
    gpus(3)
    assert replica_devices({}) == tuple(torch.device("cuda", k) for k in range(3))
    gpus(0)
    assert replica_devices({}) == ()


def test_fakes_come_before_gpus(gpus):
    gpus(2)
    assert replica_devices({"FLODL_FAKE_DEVICES": "4"}) == (torch.device("cpu"),) * 4


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_number_of_fakes_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="FLODL_FAKE_DEVICES"):
        replica_devices({"FLODL_FAKE_DEVICES": text})


def test_a_process_of_a_run_has_the_device_it_was_given(gpus):
    gpus(2)
    assert replica_devices({"FLODL_INTERNAL_ROLE": "rank"}) == ()


def test_torchrun_gives_a_place(gpus, monkeypatch):
    gpus(3)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    place = rank_place(TORCHRUN)
    assert (place.rank, place.world_size, place.device) == (1, 3, torch.device("cuda", 1))
    assert place.meeting.rendezvous.world_size == 3
    assert rank_place(TORCHRUN).meeting is place.meeting, "all graphs of a process share it"


def test_a_process_that_sees_its_gpu_alone_uses_that(gpus, monkeypatch):
    gpus(1)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert rank_place(TORCHRUN).device == torch.device("cuda", 0)
    monkeypatch.setenv("FLODL_FAKE_DEVICES", "2")
    assert rank_place(TORCHRUN).device == torch.device("cpu")


def test_slurm_gives_a_place(gpus):
    gpus(0)
    place = rank_place(SLURM)
    assert (place.rank, place.world_size, place.device) == (2, 4, torch.device("cpu"))
    assert place.meeting.rendezvous._place == ("gpu03", 20018)


def test_alone_there_is_no_place():
    assert rank_place({}) is None
    assert rank_place({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None


def test_only_the_first_rank_says_which_devices_there_are(gpus, small, capsys, monkeypatch):
    gpus(0)
    monkeypatch.setattr(spreading, "detect_gpus", list)
    for name in ("RANK", "SLURM_PROCID"):
        assert auto_distribute(small.build(), small.build, {name: "1"}) is None
        assert not capsys.readouterr().err
    assert auto_distribute(small.build(), small.build, {"RANK": "0"}) is None
    assert capsys.readouterr().err == "ddp: no CUDA available | CPU mode\n"
