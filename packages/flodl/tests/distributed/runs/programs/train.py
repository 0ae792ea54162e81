"""A user's script: trains on two ranks and prints what came of it as JSON, last line."""

import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flodl import ElCheConfig, TensorDataSet, Trainer

torch.set_num_threads(1)
WHAT, FOLDER = sys.argv[1], Path(sys.argv[2])
POINTS = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())
steps = itertools.count(1)


def build(device):
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)


def die_once():
    """Die in the first rank that comes here; the file system decides which one that is."""
    try:
        (FOLDER / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)


def step(model, batch):
    number = next(steps)
    time.sleep(0.005)
    if WHAT == "raise" and number == 9:
        raise KeyError("what the user did")
    if WHAT == "die" and number == 9:
        die_once()
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def accuracy(model, batch, context):
    return {"accuracy": (model(batch["x"]).argmax(1) == batch["y"]).float().mean()}


def run(epochs):
    return (
        Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.1), step)
        .dataset(DATA)
        .batch_size(16)
        .num_epochs(epochs)
        .ranks(2)
        .elche(ElCheConfig.cpu_cadence(anchor=4))
        .eval_dataset(DATA)
        .eval_fn(accuracy)
        .save_path(FOLDER / "model")
        .run()
    )


if WHAT == "twice":
    first = run(1)
    state = first.join()
    assert [metrics.epoch for metrics in first.metrics()] == [0]
handle = run(100 if WHAT == "long" else 3)
found = {"epochs": []}
for metrics in handle.metrics():
    found["epochs"].append(metrics.epoch)
    (FOLDER / "trained").touch()
try:
    state = handle.join()
except BaseException as error:
    cause = error.__cause__
    found |= {"raised": type(error).__name__, "text": str(error), "cause": repr(cause)}
    state = getattr(error, "state", None)
if state is not None:
    found |= {"finished": state.epoch, "names": sorted(state.params), "steps": state.global_step}
    found["loss"] = [metrics.avg_loss for metrics in handle.metrics()]
report = handle.report
found |= {
    "accounts": [[each.committed, each.total] for each in report.accounting],
    "deaths": [death["rank"] for death in report.deaths],
}
print(json.dumps(found))
