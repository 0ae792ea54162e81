"""A user's script with a loop of its own; what came of it goes to a file, as JSON."""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flodl import ElCheConfig, StopTraining, TensorDataSet, Trainer

torch.set_num_threads(1)
WHAT, FOLDER, RANKS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
POINTS = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())


def build(device):
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)


def die_once():
    """Die in the first rank that comes here; the file system decides which one that is."""
    try:
        (FOLDER / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)


def accuracy(model, batch, context):
    return {"accuracy": (model(batch["x"]).argmax(1) == batch["y"]).float().mean()}


accuracies = []


def tell(handle):
    metrics = []
    for each in handle.metrics():
        metrics.append(each)
        (FOLDER / "trained").touch()
    state = handle.join()
    report = handle.report
    found = {
        "epochs": [each.epoch for each in metrics],
        "loss": [each.avg_loss for each in metrics],
        "accuracy": accuracies,
        "accounts": [[each.committed, each.total] for each in report.accounting],
        "deaths": [death["rank"] for death in report.deaths],
        "finished": state.epoch,
        "steps": state.global_step,
    }
    (FOLDER / "found.json").write_text(json.dumps(found))


builder = (
    Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    .dataset(DATA)
    .batch_size(16)
    .num_epochs(100 if WHAT in {"long", "stop"} else 3)
    .elche(ElCheConfig.cpu_cadence(anchor=4))
    .eval_dataset(DATA)
    .eval_fn(accuracy)
    .eval_result_fn(lambda epoch, values: accuracies.append(values["accuracy"]))
    .save_path(FOLDER / "model")
)
if RANKS:
    builder = builder.ranks(RANKS)
with builder.into_worker(None if WHAT == "raise" else tell) as worker:
    for epoch in worker.epochs():
        (FOLDER / "begun").touch()
        for batch in epoch:
            if WHAT == "raise" and worker.local_step == 9:
                raise KeyError("what the user did")
            if WHAT == "die" and worker.local_step == 9:
                die_once()
            loss = nn.functional.cross_entropy(worker.model(batch["x"]), batch["y"])
            loss.backward()
            worker.step(loss)
            time.sleep(0.005)
        if WHAT == "stop":
            raise StopTraining
    (FOLDER / f"inside-{worker.rank}").touch()
(FOLDER / f"after-{os.environ.get('RANK', '')}").touch()
