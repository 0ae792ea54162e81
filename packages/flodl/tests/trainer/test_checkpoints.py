"""Saving in the middle and going on: equal to a run that was never interrupted."""

import json
import random
import signal
import threading

import pytest
import torch
from torch import nn

from flodl import Trainer
from flodl.core.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointVersionError,
    ConfigError,
    ResumeMismatchError,
    RunInterrupted,
)
from flodl.data import TensorDataSet
from flodl.engine import copies
from flodl.engine.bundle import find_bundle
from flodl.nn.schedulers import CosineScheduler, PlateauScheduler
from flodl.optim import Adam


def data(count=40):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, generator=generator)
    return TensorDataSet(x, x.sum(1, keepdim=True))


def build(device):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))


def adam(parameters):
    return Adam(parameters, lr=1e-2)


def noisy(model, batch):
    scale = 1.0 + 0.1 * random.random()
    return (model(batch[0]) - batch[1]).square().mean() * scale


def run(epochs, *, step=noisy, dataset=None, optimizer=adam, **settings):
    builder = (
        Trainer.builder(build, optimizer, step)
        .dataset(dataset or data())
        .batch_size(8)
        .num_epochs(epochs)
        .devices(["cpu"])
    )
    for name, value in settings.items():
        getattr(builder, name)(value)
    return builder.run()


def same(one, other):
    first, second = one.join().state_dict(), other.join().state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert one.join().global_step == other.join().global_step


def torchs(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)


def plateau(world_size):
    return PlateauScheduler(1e-2 * world_size, patience=1, factor=0.5, min_lr=1e-5)


@pytest.mark.parametrize("scheduler", [CosineScheduler(1e-2, 1e-4, 25), torchs, plateau])
@pytest.mark.parametrize("kind", ["stem", "meta", "folder"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path, scheduler, kind):
    random.seed(3)
    whole = run(5, scheduler=scheduler)
    random.seed(3)
    run(3, scheduler=scheduler, save_path=tmp_path / "half")
    random.seed(99)
    where = {
        "stem": tmp_path / "half",
        "meta": tmp_path / "half.meta.json",
        "folder": tmp_path,
    }[kind]
    resumed = run(5, scheduler=scheduler, resume_from=where)
    same(whole, resumed)
    assert [m.epoch for m in resumed.metrics()] == [3, 4]
    assert [m.avg_loss for m in resumed.metrics()] == [m.avg_loss for m in whole.metrics()][3:]


def test_a_run_interrupted_in_an_epoch_goes_on_at_the_next_batch(tmp_path):
    calls = []

    def interrupting(model, batch):
        calls.append(1)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGINT)
        return noisy(model, batch)

    random.seed(3)
    whole = run(3)
    random.seed(3)
    with pytest.raises(RunInterrupted):
        run(3, step=interrupting, save_path=tmp_path / "cut")
    meta = json.loads((tmp_path / "cut.meta.json").read_text())
    assert (meta["epoch"], meta["global_step"], meta["save_reason"]) == (1, 8, "interrupted")
    resumed = run(3, resume_from=tmp_path / "cut")
    same(whole, resumed)


@pytest.mark.parametrize("call", [6, 7, 9])
def test_an_interruption_waits_for_the_end_of_an_accumulation(tmp_path, call):
    calls = []

    def interrupting(model, batch):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return noisy(model, batch)

    random.seed(3)
    whole = run(3, accumulate=3)
    random.seed(3)
    with pytest.raises(RunInterrupted):
        run(3, step=interrupting, save_path=tmp_path / "cut", accumulate=3)
    assert len(calls) == (8 if call < 9 else 10)
    same(whole, run(3, resume_from=tmp_path / "cut", accumulate=3))


def test_a_finished_run_has_nothing_left_to_train(tmp_path):
    done = run(2, save_path=tmp_path / "done")
    again = run(2, resume_from=tmp_path / "done")
    same(done, again)
    assert again.poll_metrics() == []


def test_checkpoints_are_taken_where_they_were_asked_for(tmp_path):
    seen = []

    def look(epoch, model):
        seen.append((epoch, isinstance(model, nn.Module)))

    run(6, checkpoint_at_epoch=[2, 5], checkpoint_every=3, checkpoint_fn=look)
    assert seen == [(1, True), (2, True), (4, True), (5, True)]


def test_numbered_checkpoints_are_kept_as_long_as_they_are_among_the_newest(tmp_path):
    run(6, save_path=tmp_path / "run", checkpoint_every=1, checkpoint_keep=2)
    stems = sorted(file.name.removesuffix(".meta.json") for file in tmp_path.glob("*.meta.json"))
    assert stems == ["run", "run-epoch4", "run-epoch5"]
    assert not list(tmp_path.glob("run-epoch3*"))
    again = run(6, save_path=tmp_path / "run", resume_from=tmp_path / "run-epoch4")
    assert [metrics.epoch for metrics in again.metrics()] == [5]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, trained, more, saved = copies.save_checkpoint, [], threading.Condition(), []

    def save(file, *arguments, **options):
        # the first waits for 4 more batches; where training waited, there would be none
        with more:
            enough = len(trained) + 4
            saved.append(saved or more.wait_for(lambda: len(trained) >= enough, timeout=20))
        write(file, *arguments, **options)

    def counted(model, batch):
        with more:
            trained.append(batch.size)
            more.notify_all()
        return noisy(model, batch)

    monkeypatch.setattr(copies, "save_checkpoint", save)
    run(4, step=counted, save_path=tmp_path / "run", checkpoint_at_epoch=2)
    assert saved[0] is True
    monkeypatch.undo()
    random.seed(3)
    whole = run(4)
    random.seed(3)
    run(2, save_path=tmp_path / "half", checkpoint_every=1)
    same(whole, run(4, resume_from=tmp_path / "half-epoch1"))


def test_a_checkpoint_that_a_run_goes_on_from_stays(tmp_path):
    run(1, save_path=tmp_path / "run", checkpoint_every=1)
    first = tmp_path / "run-epoch0"
    settings = {"checkpoint_every": 1, "checkpoint_keep": 1, "save_path": tmp_path / "run"}
    run(4, resume_from=first, **settings)
    stems = sorted(file.name.removesuffix(".meta.json") for file in tmp_path.glob("*.meta.json"))
    assert stems == ["run", "run-epoch0", "run-epoch3"]


def test_a_stem_without_a_checkpoint_of_its_own_stands_for_its_newest_numbered_one(tmp_path):
    run(3, save_path=tmp_path / "run", checkpoint_every=1)
    for file in tmp_path.glob("run.*"):
        file.unlink()
    again = run(4, resume_from=tmp_path / "run")
    assert [metrics.epoch for metrics in again.metrics()] == [3]


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("checkpoint_mode", "whole", "checkpoint_mode='whole': must be one of 'full', 'exact'"),
        ("checkpoint_keep", 0, "checkpoint_keep=0"),
        ("checkpoint_every_windows", 0, "checkpoint_every_windows=0"),
    ],
)
def test_what_no_checkpoint_can_be_is_refused(setting, value, text):
    with pytest.raises(ConfigError, match=text):
        run(1, **{setting: value})


def test_nothing_is_started_that_could_not_save(tmp_path):
    (tmp_path / "file").touch()
    for ranks in (1, 2):
        with pytest.raises(ConfigError, match="cannot be written"):
            ranked(2, tmp_path / "file" / "model", ranks).run()


def test_nothing_is_started_that_could_not_go_on_exactly(tmp_path):
    run(1, save_path=tmp_path / "alone")
    builder = ranked(2, tmp_path / "model", 2).resume_from(tmp_path / "alone").exact_strict()
    with pytest.raises(ConfigError, match="the checkpoint is not an exact one"):
        builder.run()
    with pytest.raises(CheckpointError, match=r"there is no nothing\.meta\.json"):
        ranked(2, tmp_path / "model", 2).resume_from(tmp_path / "nothing").run()


def test_ratios_of_another_number_of_ranks_are_refused(tmp_path):
    from flodl import ElCheConfig

    builder = ranked(2, tmp_path / "model", 2)
    with pytest.raises(ConfigError, match="3 ratios for 2 ranks"):
        builder.elche(ElCheConfig.cpu_sync(partition_ratios=(1, 1, 2))).run()


def ranked(epochs, save_path, ranks):
    """A run over ranks, that is refused before any of them is started."""
    return (
        Trainer.builder(build, adam, noisy)
        .dataset(data())
        .batch_size(8)
        .num_epochs(epochs)
        .ranks(ranks)
        .launch("script")
        .save_path(save_path)
    )


def test_one_device_goes_on_where_ranks_ended_an_epoch_and_not_in_the_middle(tmp_path):
    from flodl import ElCheConfig
    from flodl.core.errors import ResumeMismatchError
    from flodl.testing.sim import run_threads

    run_threads(
        2,
        build,
        adam,
        noisy,
        data(),
        batch_size=8,
        num_epochs=2,
        elche=ElCheConfig.cpu_cadence(anchor=1, deterministic="schedule"),
        checkpoint_every=1,
        checkpoint_every_windows=1,
        checkpoint_mode="sharded",
        options={"checkpoint_keep": None},
        save_path=tmp_path / "ranks",
    )
    again = run(3, resume_from=tmp_path / "ranks-epoch0")
    assert [metrics.epoch for metrics in again.metrics()] == [1, 2]
    assert again.join().global_step == 15
    with pytest.raises(ResumeMismatchError, match=r"go on with \.ranks\(1\)"):
        run(3, resume_from=tmp_path / "ranks-window1")


def test_an_exception_in_checkpoint_fn_does_not_end_the_run(caplog):
    def raising(epoch, model):
        raise OSError("no room")

    assert run(2, checkpoint_every=1, checkpoint_fn=raising).join().epoch == 2
    assert caplog.text.count("checkpoint_fn raised") == 2


@pytest.mark.parametrize("part", [".fdl", ".optim", ".rank0.fdl"])
@pytest.mark.parametrize("damage", ["missing", "other"])
def test_a_torn_bundle_is_refused_and_named_and_skipped_in_a_folder(tmp_path, part, damage, caplog):
    run(1, save_path=tmp_path / "torn")
    file = tmp_path / f"torn{part}"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointFormatError, match=rf"torn\{part}"):
        run(2, resume_from=tmp_path / "torn")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        run(2, resume_from=tmp_path)
    assert "skipping an incomplete checkpoint" in caplog.text
    run(1, save_path=tmp_path / "whole")
    assert find_bundle(tmp_path).stem.name == "whole"


def test_what_cannot_be_resumed_from_says_why(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no nothing\.meta\.json"):
        run(2, resume_from=tmp_path / "nothing")
    run(1, save_path=tmp_path / "ok")
    with pytest.raises(ResumeMismatchError, match="dataset_length"):
        run(2, dataset=data(48), resume_from=tmp_path / "ok")
    meta = tmp_path / "ok.meta.json"
    meta.write_text(meta.read_text().replace('"schema_version": 1', '"schema_version": 9'))
    with pytest.raises(CheckpointVersionError, match="schema version 9"):
        run(2, resume_from=tmp_path / "ok")
    meta.write_text("[]")
    with pytest.raises(CheckpointFormatError, match="no list of a checkpoint's parts"):
        run(2, resume_from=tmp_path / "ok")


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    from flodl.checkpoint.optim import StateDocument

    first = run(1, save_path=tmp_path / "run")

    def full(*arguments):
        raise CheckpointError("no room")

    monkeypatch.setattr(StateDocument, "write", full)
    with pytest.raises(CheckpointError, match="no room"):
        run(2, save_path=tmp_path / "run")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "run.fdl", "run.meta.json", "run.optim", "run.rank0.fdl"
    ]  # fmt: skip
    monkeypatch.undo()
    assert run(1, resume_from=tmp_path / "run").join().global_step == first.join().global_step


def test_a_factory_makes_the_schedule_from_the_ranks_or_from_the_optimizer():
    seen = []

    def from_ranks(world_size):
        seen.append(world_size)
        return CosineScheduler(0.5, 0.5, 10)

    handle = run(1, scheduler=from_ranks)
    assert seen == [1]
    assert next(handle.metrics()).lr == 0.5
    handle = run(1, scheduler=torchs)
    assert next(handle.metrics()).lr == pytest.approx(1e-2 * 0.99**5)
    with pytest.raises(ConfigError, match="factory returned int"):
        run(1, scheduler=lambda world_size: 3)


def test_views_of_each_sample_make_an_epoch_longer():
    handle = run(1, augment=3)
    assert next(handle.metrics()).samples_processed == 120


def test_an_evaluation_before_any_training_batch_is_refused():
    from flodl.core.errors import UntrainedStatsError

    with pytest.raises(UntrainedStatsError):
        run(1, dataset=data(4), eval_dataset=data(), eval_fn=lambda m, b, c: 0.0)


def test_options_of_the_loader_reach_it():
    seen = []

    def transform(batch):
        seen.append(batch.index)
        return batch

    builder = Trainer.builder(build, adam, noisy).dataset(data()).batch_size(8).num_epochs(1)
    builder.devices(["cpu"]).loader(transform=transform, shuffle=False).run()
    assert seen == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="loader: timeout"):
        builder.loader(timeout=-1).run()


@pytest.mark.cuda
def test_on_a_gpu_the_step_gathers_its_batches_and_a_resumed_run_equals_the_whole_one(tmp_path):
    def quiet(model, batch):
        return (model(batch[0]) - batch[1]).square().mean()

    def gpu(epochs, **settings):
        return run(epochs, step=quiet, devices=["cuda:0"], **settings)

    whole, eager = gpu(5), gpu(5, capture="off")
    same(whole, eager)
    stats = whole.step_stats
    assert stats.captured >= 20
    assert stats.signatures[0].signature.endswith("gathered in the step")
    gpu(3, save_path=tmp_path / "half")
    same(whole, gpu(5, resume_from=tmp_path / "half"))
