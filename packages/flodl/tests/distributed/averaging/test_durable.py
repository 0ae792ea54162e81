import pytest
import torch

from flodl.distributed.averaging import durable
from flodl.distributed.averaging.durable import DurableConsensus, newest
from flodl.distributed.averaging.state import State
from flodl.distributed.collective.errors import CollectiveError

NAME = "flodl-run-uid"


def state(window):
    return State(tensors={"flat": torch.full((100,), float(window))}, meta={"window": window})


def kept(tmp_path):
    found = newest(NAME, [tmp_path])
    return None if found is None else found.meta["window"]


def test_the_newest_of_two_is_found_and_the_end_removes_both(tmp_path):
    assert kept(tmp_path) is None
    keeper = DurableConsensus(NAME, [tmp_path])
    for window in range(1, 5):
        keeper.write(state(window))
        keeper.wait()
        assert kept(tmp_path) == window
    names = {file.name for file in (tmp_path / NAME).iterdir()}
    assert names == {"consensus-0", "consensus-1"}
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o700
    assert torch.equal(newest(NAME, [tmp_path]).tensors["flat"], torch.full((100,), 4.0))
    keeper.remove()
    assert not any(tmp_path.iterdir())
    keeper.remove()


def test_a_state_may_change_as_soon_as_write_returns(tmp_path):
    keeper, given = DurableConsensus(NAME, [tmp_path]), state(1)
    keeper.write(given)
    given.tensors["flat"].zero_()
    keeper.wait()
    assert newest(NAME, [tmp_path]).tensors["flat"].sum() == 100


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_torn_file_is_passed_over_for_the_one_before(tmp_path, damage):
    keeper = DurableConsensus(NAME, [tmp_path])
    for window in (1, 2):
        keeper.write(state(window))
    keeper.wait()
    file = tmp_path / NAME / "consensus-0"
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    assert kept(tmp_path) == 1


def test_without_room_the_next_folder_is_taken_and_without_any_it_is_said(tmp_path, monkeypatch):
    real = durable.shutil.disk_usage
    full = tmp_path / "full"
    monkeypatch.setattr(
        durable.shutil,
        "disk_usage",
        lambda path: type("Usage", (), {"free": 0})() if full in path.parents else real(path),
    )
    keeper = DurableConsensus(NAME, [full, tmp_path / "roomy"])
    keeper.write(state(1))
    keeper.wait()
    assert kept(tmp_path / "roomy") == 1
    keeper.remove()
    narrow = DurableConsensus(NAME, [full])
    narrow.write(state(2))
    with pytest.raises(CollectiveError, match="0 bytes free"):
        narrow.wait()
    assert kept(full) is None
    narrow.wait()
    narrow.remove()
