"""What is saved when no rank is left to do it."""

from types import SimpleNamespace

import torch

from flodl.checkpoint import checkpoint_info, load_checkpoint
from flodl.distributed.averaging.durable import DurableConsensus
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.state import State
from flodl.distributed.cluster.orphan import noted_orphan
from flodl.distributed.controller.commands import SaveKept, StateChanged
from flodl.trainer.ranks.kept import KeptSaver


class Audience:
    def __init__(self):
        self.taken = []

    def take(self, command):
        self.taken.append(command)

    def direct(self, note):
        self.taken.append(note)


def saver(folder, save_path=None):
    place = SimpleNamespace(run="no-such-run", run_dir=str(folder))
    return KeptSaver(Audience(), place, save_path)


def test_what_was_kept_is_saved_under_the_models_names(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    plane = ParameterPlane(model, PlaneConfig())
    durable = DurableConsensus("flodl-no-such-run-h_cpu_0", [tmp_path])
    durable.write(plane.kept() | State(meta={"window": 5}))
    durable.wait()
    plane.close()
    command = SaveKept(reason="all_ranks_lost: signal 9")
    given = saver(tmp_path, tmp_path / "model")
    given.take(command)
    file = tmp_path / "model.orphan.fdl"
    assert noted_orphan(tmp_path) == file
    info = checkpoint_info(file)
    assert (info.meta["window"], info.meta["save_reason"]) == (5, "all_ranks_lost")
    found = {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in info.tensors.items()}
    load_checkpoint(file, found, check_hash=False)
    for name, value in model.named_parameters():
        assert torch.equal(found[name], value)
    assert torch.equal(found["1.running_var"], model[1].running_var)


def test_nothing_kept_is_nothing_saved_and_all_else_goes_through(tmp_path, caplog):
    given = saver(tmp_path)
    commands = [SaveKept(reason="x"), StateChanged(state="failed")]
    for command in commands:
        given.take(command)
    given.direct({"op": "monitor"})
    assert given._audience.taken == [*commands, {"op": "monitor"}]
    assert noted_orphan(tmp_path) is None
    assert "none has kept anything" in caplog.text
