"""A user's script in which one thing goes wrong; prints what came of it as JSON, last line."""

import errno
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flodl import ElasticConfig, ElCheConfig, StopTraining, TensorDataSet, Trainer

torch.set_num_threads(1)
WHAT, FOLDER = sys.argv[1], Path(sys.argv[2])
POINTS = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
EPOCHS = {"long": 400, "controller": 20, "controllers": 400}
MODES = {
    "cpu_cadence": ElCheConfig.cpu_cadence(anchor=4),
    "gloo_sync": ElCheConfig.nccl_sync(collective="gloo"),
}
ELASTIC = {
    "all": ElasticConfig(respawn=0),
    "long": ElasticConfig(controller_grace=2.0),
    # ten seconds at the test's FLODL_NET_TIMEOUT_SCALE: ranks wait through the restarts of
    # a controller that is killed as soon as it serves
    "controllers": ElasticConfig(controller_grace=50.0),
}
steps = itertools.count(1)


class Broken:
    """Knows how long it is, and nothing else."""

    def __len__(self):
        return len(POINTS)

    def __getitem__(self, index):
        raise BufferError("the dataset is gone")


def build(device):
    if WHAT == "factory":
        raise LookupError("no such model")
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)


def is_first(name):
    """Whether no other process came here before; the file system decides."""
    try:
        (FOLDER / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def step(model, batch):
    number = next(steps)
    time.sleep(0.004)
    if number == 9:
        act()
    loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
    return loss * float("nan") if WHAT == "nan" and number > 9 else loss


def act():
    match WHAT:
        case "freeze" if is_first("acted"):
            os.kill(os.getpid(), signal.SIGSTOP)
        case "all":
            time.sleep(0.5)  # so that the other one comes to its ninth step as well
            os.kill(os.getpid(), signal.SIGKILL)
        case "sticky" if is_first("acted"):
            raise RuntimeError("CUDA error: device-side assert triggered")
        case "quiet" if is_first("acted"):
            os._exit(0)


def epoch_fn(epoch):
    if WHAT == "epoch_fn" and epoch == 1:
        raise ArithmeticError("not this epoch")


def checkpoint_fn(epoch, model):
    if WHAT == "disk" and epoch == 0:
        raise OSError(errno.ENOSPC, "No space left on device")


def accuracy(model, batch, context):
    return {"accuracy": (model(batch["x"]).argmax(1) == batch["y"]).float().mean()}


def metrics_fn(metrics):
    (FOLDER / "trained").touch()
    if WHAT == "observers":
        raise ValueError("what metrics_fn does not like")
    if WHAT == "stop" and metrics.epoch == 1:
        raise StopTraining


def eval_result_fn(epoch, values):
    if WHAT == "observers":
        raise ValueError("what eval_result_fn does not like")


class Sink:
    """Takes no record."""

    def open(self, run):
        return

    def write(self, records):
        raise OSError("what the sink does not like")

    def close(self, status):
        return


DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())
builder = (
    Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.1), step)
    .dataset(Broken() if WHAT == "dataset" else DATA)
    .batch_size(16)
    .num_epochs(EPOCHS.get(WHAT, 4))
    .ranks(2)
    .elche(MODES[os.environ.get("MODE", "cpu_cadence")])
    .elastic(ELASTIC.get(WHAT, ElasticConfig(grow_interval=0.5)))
    .eval_dataset(DATA)
    .eval_fn(accuracy)
    .eval_result_fn(eval_result_fn)
    .metrics_fn(metrics_fn)
    .epoch_fn(epoch_fn)
    .save_path(FOLDER / ("file/model" if WHAT == "unwritable" else "model"))
    .checkpoint_every(1)
    .checkpoint_fn(checkpoint_fn)
)
if WHAT == "observers":
    builder.sinks([Sink()])
if WHAT == "unwritable":
    (FOLDER / "file").touch()
handle = builder.run()
found = {}
try:
    state = handle.join()
except BaseException as error:
    found |= {"raised": type(error).__name__, "text": str(error), "cause": repr(error.__cause__)}
    if isinstance(error, KeyboardInterrupt) and getattr(error, "state", None) is None:
        raise
    state = getattr(error, "state", None)
if state is not None:
    found |= {"finished": state.epoch, "partial": state.partial}
report = handle.report
found |= {
    "accounts": [[each.committed, each.total] for each in report.accounting],
    "deaths": [death["cause"] for death in report.deaths],
    "epochs": [metrics.epoch for metrics in handle.metrics()],
}
print(json.dumps(found))
