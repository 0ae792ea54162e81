"""What outlives all ranks of a host: when it is written, and who may go on from it."""

import logging

import pytest
import torch
from torch import nn

from flodl.distributed.averaging.durable import newest_of_run
from flodl.distributed.averaging.gradients import GradientPlane
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.segments import remove_kept
from flodl.distributed.worker.keeper import Keeper


def model_of(value):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for tensor in (*model.parameters(), model[1].running_mean):
            tensor.fill_(value)
    return model


@pytest.fixture(params=[ParameterPlane, GradientPlane])
def keeper_of(request, tmp_path):
    """A function that returns a model, and the keeper of a rank that trains it."""
    planes = []

    def make(value, uid="h/cpu/0", every=1, **options):
        model = model_of(value)
        planes.append(request.param(model, PlaneConfig()))
        place = {"run": "run1", "run_dir": tmp_path / "run", "folders": [tmp_path / "shm"]}
        keeper = Keeper(planes[-1], uid=uid, every=every, **place | options)
        keeper.is_leader = True
        return model, keeper

    yield make
    for plane in planes:
        plane.close()


def kept(tmp_path):
    state = newest_of_run("run1", [tmp_path / "shm", tmp_path / "run"])
    return None if state is None else state.meta["window"]


def test_another_rank_goes_on_from_what_was_kept(keeper_of, tmp_path):
    model, keeper = keeper_of(3.0)
    keeper.after_window(7)
    keeper.wait()
    assert kept(tmp_path) == 7
    other, later = keeper_of(0.0, uid="h/cpu/1")
    later.restore(7)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_what_is_not_there_is_said_with_what_is(keeper_of):
    _, keeper = keeper_of(3.0)
    with pytest.raises(CollectiveError, match="result of window 2, and kept is nothing"):
        keeper.restore(2)
    keeper.after_window(1)
    keeper.wait()
    with pytest.raises(CollectiveError, match="result of window 2, and kept is that of window 1"):
        keeper.restore(2)


def test_the_latest_window_of_any_leader_counts(keeper_of, tmp_path):
    for uid, window in (("h/cpu/0", 4), ("h/cpu/1", 9), ("h/cpu/2", 5)):
        _, keeper = keeper_of(float(window), uid=uid)
        keeper.after_window(window)
        keeper.wait()
    assert kept(tmp_path) == 9
    remove_kept("flodl-run1-", [tmp_path / "shm"])
    assert kept(tmp_path) is None


def test_only_a_leader_keeps_and_only_what_is_due(keeper_of, tmp_path):
    _, keeper = keeper_of(1.0, every=3)
    keeper.is_leader = False
    keeper.after_window(1)
    keeper.after_window(2)
    keeper.after_window(3)
    keeper.wait()
    assert kept(tmp_path) is None
    keeper.is_leader = True
    for window in (4, 5, 6):
        keeper.after_window(window)
    keeper.wait()
    assert kept(tmp_path) == 6


def test_copies_take_a_small_share_of_the_time(keeper_of, tmp_path):
    times = iter([0.0, 1.0, 49.0, 51.0, 51.1])
    _, keeper = keeper_of(1.0, clock=lambda: next(times))
    keeper.after_window(1)  # copying takes a second
    keeper.wait()
    keeper.after_window(2)  # 48 seconds later
    keeper.wait()
    assert kept(tmp_path) == 1
    keeper.after_window(3)  # 50 seconds later
    keeper.wait()
    assert kept(tmp_path) == 3


def test_no_room_is_a_warning_and_no_end(keeper_of, tmp_path, caplog):
    (tmp_path / "shm").touch()
    (tmp_path / "run").touch()
    _, keeper = keeper_of(1.0)
    with caplog.at_level(logging.WARNING):
        keeper.after_window(1)
        keeper.wait()
    assert "could not be kept: no room" in caplog.text
