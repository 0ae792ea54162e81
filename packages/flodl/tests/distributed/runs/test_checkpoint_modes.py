"""Checkpoints that several ranks write together, and what becomes of them when something fails."""

import errno
import threading

import pytest
import torch
from torch import nn

from flodl.core.errors import CheckpointFormatError
from flodl.data import TensorDataSet
from flodl.distributed.config import ElCheConfig
from flodl.engine import copies
from flodl.engine.bundle import find_bundle, load_model, read_tensors
from flodl.testing.sim import Fault, run_threads

SAMPLES = 96
POINTS = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=POINTS.sum(1, keepdim=True))


def build(device):
    model = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.Linear(32, 8), nn.Linear(8, 1))
    model[2].bias.requires_grad_(False)
    return model


def adam(parameters):
    return torch.optim.Adam([p for p in parameters if p.requires_grad], lr=0.01)


def step(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def run(ranks, folder, **settings):
    return run_threads(
        ranks,
        build,
        adam,
        step,
        DATA,
        batch_size=4,
        num_epochs=2,
        elche=settings.pop("elche", ElCheConfig.cpu_cadence(anchor=3, deterministic="schedule")),
        save_path=folder / "model",
        options={"checkpoint_keep": None} | settings.pop("options", {}),
        **settings,
    )


def values_of(bundle):
    model = build("cpu")
    load_model(bundle, model)
    return {name: value.clone() for name, value in model.state_dict().items()}


def leftovers(folder):
    return [file.name for file in folder.iterdir() if "tmp" in file.name]


def test_a_sharded_checkpoint_holds_what_a_full_one_does(tmp_path):
    for mode in ("full", "sharded"):
        (tmp_path / mode).mkdir()
        done = run(3, tmp_path / mode, checkpoint_every_windows=2, checkpoint_mode=mode)
        assert (done.finish.reason, done.alerts) == ("done", [])
    full, sharded = (find_bundle(tmp_path / mode / "model-window2") for mode in ("full", "sharded"))
    assert {*full.meta["parts"]} == {".fdl", ".optim"}
    assert {*sharded.meta["parts"]} == {".fdl", ".optim", ".rank1.fdl", ".rank2.fdl"}
    first, second = values_of(full), values_of(sharded)
    assert all(torch.equal(first[name], second[name]) for name in first)
    written = [set(read_tensors(sharded.part(suffix))) for suffix in sharded.meta["shards"]]
    assert sum(map(len, written)) == len(first)
    assert set().union(*written) == set(first)
    assert full.meta["ledger"] == sharded.meta["ledger"]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mode", ["exact", "sharded"])
def test_any_number_of_ranks_goes_on_from_it(tmp_path, mode, ranks):
    run(3, tmp_path, checkpoint_every_windows=1, checkpoint_mode=mode)
    again = run(ranks, tmp_path, resume_from=tmp_path / "model-window1", checkpoint_mode=mode)
    assert again.finish.reason == "done"
    assert [account["committed"] for account in again.accounting] == [SAMPLES, SAMPLES]
    codes = [code for code, _ in again.alerts]
    assert codes == (["exact_resume"] if mode == "exact" else [])


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_one_rank_cut_at_any_window_ends_with_the_same_bits(tmp_path, mode):
    """Several would share this process's random generators; see ``test_exact_resume``."""
    anchor = {} if mode == "cpu_sync" else {"anchor": 5}
    elche = getattr(ElCheConfig, mode)(deterministic="schedule", **anchor)

    def run_one(**settings):
        return run_threads(
            1,
            lambda device: nn.Sequential(build(device), nn.Dropout(0.3)),
            adam,
            step,
            DATA,
            batch_size=4,
            num_epochs=2,
            elche=elche,
            checkpoint_mode="exact",
            options={"checkpoint_keep": None},
            **settings,
        )

    whole = run_one(save_path=tmp_path / "model", checkpoint_every_windows=1).state
    for window in (1, 4, 8):
        again = run_one(resume_from=tmp_path / f"model-window{window}", exact_strict=True).state
        assert all(torch.equal(again[name], value) for name, value in whole.items()), window


def test_exactly_or_not_at_all(tmp_path):
    run(2, tmp_path, checkpoint_every_windows=1, checkpoint_mode="exact")
    stem = tmp_path / "model-window2"
    again = run(2, tmp_path, resume_from=stem, exact_strict=True)
    assert again.finish.reason == "done"
    assert [account["committed"] for account in again.accounting] == [SAMPLES, SAMPLES]
    refused = run(3, tmp_path, resume_from=stem, exact_strict=True)
    assert refused.finish.is_failed
    assert "the checkpoint is of 2 ranks, and there are 3" in refused.finish.reason


@pytest.mark.parametrize(
    "elche",
    [
        ElCheConfig.cpu_cadence(anchor=2),
        ElCheConfig.cpu_async(anchor=2, max_overshoot=2),
        ElCheConfig.cpu_sync(),
        ElCheConfig.nccl_sync(collective="gloo"),
    ],
    ids=["cadence", "async", "sync", "grads"],
)
def test_leases_in_hand_go_on_where_time_decides(tmp_path, elche):
    settings = {"checkpoint_mode": "exact", "elche": elche, "delay_ms": [2.0, 5.0]}
    run(2, tmp_path, checkpoint_every_windows=1, **settings)
    windows = sorted(int(file.name[12:-10]) for file in tmp_path.glob("model-window*.meta.json"))
    for window in {windows[0], windows[len(windows) // 2], windows[-1]}:
        stem = tmp_path / f"model-window{window}"
        again = run(2, tmp_path, resume_from=stem, exact_strict=True, **settings)
        assert (again.finish.reason, again.alerts) == ("done", [])
        assert [account["committed"] for account in again.accounting] == [SAMPLES, SAMPLES]
        assert [account["retrained"] for account in again.accounting] == [0, 0]


@pytest.mark.parametrize("mode", ["full", "exact", "sharded"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_at_a_checkpoint_costs_no_checkpoint(tmp_path, mode, victim):
    done = run(
        3,
        tmp_path,
        checkpoint_every=1,
        checkpoint_mode=mode,
        faults=[Fault(rank=victim, at="checkpoint:0")],
    )
    assert done.finish.reason == "done"
    assert [account["committed"] for account in done.accounting] == [SAMPLES, SAMPLES]
    for name in ("model-epoch0", "model-epoch1", "model"):
        values_of(find_bundle(tmp_path / name))
    assert leftovers(tmp_path) == []


def full_disk(monkeypatch, most):
    """Have the next writes of a model fail."""
    write, failed = copies.save_checkpoint, []

    def save(file, *arguments, **options):
        if len(failed) < most:
            failed.append(file)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, *arguments, **options)

    monkeypatch.setattr(copies, "save_checkpoint", save)


@pytest.mark.parametrize("mode", ["full", "exact", "sharded"])
def test_a_full_disk_is_told_and_training_goes_on(tmp_path, mode, monkeypatch):
    full_disk(monkeypatch, 1)
    done = run(2, tmp_path, checkpoint_every=1, checkpoint_mode=mode)
    assert done.finish.reason == "done"
    assert [code for code, _ in done.alerts] == ["checkpoint_failed"]
    assert "No space left on device" in done.alerts[0][1]
    values_of(find_bundle(tmp_path / "model-epoch0"))
    assert leftovers(tmp_path) == []


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, trained, more, saved = copies.save_checkpoint, [], threading.Condition(), []

    def save(file, *arguments, **options):
        # the first waits for 8 more batches; where training waited, there would be none
        with more:
            enough = len(trained) + 8
            saved.append(saved or more.wait_for(lambda: len(trained) >= enough, timeout=20))
        write(file, *arguments, **options)

    def counted(model, batch):
        with more:
            trained.append(batch.size)
            more.notify_all()
        return step(model, batch)

    monkeypatch.setattr(copies, "save_checkpoint", save)
    done = run_threads(
        2,
        build,
        adam,
        counted,
        DATA,
        batch_size=4,
        num_epochs=4,
        elche=ElCheConfig.cpu_cadence(anchor=3),
        checkpoint_every=2,
        save_path=tmp_path / "model",
    )
    assert done.finish.reason == "done"
    assert saved[0] is True


def test_a_disk_that_stays_full_costs_the_checkpoints_only(tmp_path, monkeypatch):
    full_disk(monkeypatch, 1000)
    done = run(2, tmp_path, checkpoint_every=1)
    assert done.finish.reason == "done"
    assert [account["committed"] for account in done.accounting] == [SAMPLES, SAMPLES]
    assert "given up" in "\n".join(text for _, text in done.alerts)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("part", [".fdl", ".rank0.fdl", ".rank1.fdl", ".rank1.optim"])
def test_a_part_that_is_torn_is_named(tmp_path, part):
    run(2, tmp_path, checkpoint_every_windows=2, checkpoint_mode="exact")
    file = tmp_path / f"model-window2{part}"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointFormatError, match=rf"model-window2\{part}"):
        run(2, tmp_path, resume_from=tmp_path / "model-window2")


def test_the_newest_checkpoints_stay(tmp_path):
    seen = []
    run(
        2,
        tmp_path,
        checkpoint_every_windows=1,
        checkpoint_mode="exact",
        options={"checkpoint_keep": 2, "checkpoint_fn": lambda epoch, model: seen.append(epoch)},
    )
    stems = sorted(file.name.removesuffix(".meta.json") for file in tmp_path.glob("*.meta.json"))
    assert stems == ["model", "model-window7", "model-window8"]
    assert seen == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    others = [f for f in tmp_path.iterdir() if not f.name.startswith((*stems[1:], "model."))]
    assert others == []


def test_a_function_is_called_at_checkpoints_that_are_saved_nowhere(tmp_path):
    seen = []
    done = run_threads(
        2,
        build,
        adam,
        step,
        DATA,
        batch_size=4,
        num_epochs=2,
        elche=ElCheConfig.cpu_cadence(),
        checkpoint_every=1,
        checkpoint_mode="exact",
        options={"checkpoint_fn": lambda epoch, model: seen.append(epoch)},
    )
    assert done.finish.reason == "done"
    assert seen == [0, 1]
