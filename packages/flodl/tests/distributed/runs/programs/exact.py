"""A user's script: trains to the end, then again from checkpoints in the middle, and compares."""

import json
import random
import sys
from pathlib import Path

import torch
from torch import nn

from flodl import DiLoCo, ElCheConfig, TensorDataSet, Trainer

torch.set_num_threads(1)
MODE, FOLDER, CUTS = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
POINTS = torch.randn(192, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long())
SCHEDULE = {"anchor": 3, "deterministic": "schedule"}
MODES = {
    "cadence": ElCheConfig.cpu_cadence(**SCHEDULE),
    "async": ElCheConfig.cpu_async(**SCHEDULE, easgd_alpha=0.6),
    "sync": ElCheConfig.nccl_sync(collective="gloo", deterministic="schedule"),
    "outer": ElCheConfig.cpu_cadence(**SCHEDULE, bf16_wire=True),
}


def build(device):
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2)
    )


def step(model, batch):
    noise = 1 + 0.1 * random.random()
    return noise * nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def run(folder, resume_from=None):
    random.seed(5)
    builder = (
        Trainer.builder(build, adam, step)
        .dataset(DATA)
        .batch_size(8)
        .num_epochs(3)
        .ranks(2)
        .elche(MODES[MODE])
        .save_path(folder / "model")
        .checkpoint_mode("exact")
        .checkpoint_every_windows(1)
        .checkpoint_keep(None)
    )
    if MODE == "outer":
        builder.outer_optimizer(DiLoCo(lr=0.5)).accumulate(2)
        builder.scheduler(lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97))
    if resume_from is not None:
        builder.resume_from(resume_from).exact_strict()
    handle = builder.run()
    return handle.join(), handle


whole, first = run(FOLDER / "whole")
found = {"loss": [metrics.avg_loss for metrics in first.metrics()], "cuts": {}}
for cut in CUTS:
    state, handle = run(FOLDER / f"from{cut}", FOLDER / "whole" / f"model-window{cut}")
    values = whole.state_dict()
    found["cuts"][cut] = {
        "differ": [n for n, v in state.state_dict().items() if not torch.equal(v, values[n])],
        "steps": [state.global_step, whole.global_step],
        "loss": [metrics.avg_loss for metrics in handle.metrics()],
        "accounts": [[each.committed, each.total] for each in handle.report.accounting],
        "deaths": [dict(death) for death in handle.report.deaths],
    }
print(json.dumps(found))
