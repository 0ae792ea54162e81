"""A user's script for the soak: counts each sample, until it is told to stop, on four ranks.

Every rank notes its process id, so that it can be found and killed; after each epoch one of them
writes down how often each sample has moved the weights that all share.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flodl import ElasticConfig, ElCheConfig, RunInterrupted, TensorDataSet, Trainer

torch.set_num_threads(1)
MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
RANKS, SAMPLES, BATCH, STEP_S = 4, 2400, 4, 0.008
MODES = {
    "cpu_sync": lambda: ElCheConfig.cpu_sync(gamma=0.0),
    "cpu_cadence": lambda: ElCheConfig.cpu_cadence(anchor=5, gamma=0.0),
    "cpu_async": lambda: ElCheConfig.cpu_async(anchor=5),
    "gloo_sync": lambda: ElCheConfig.nccl_sync(collective="gloo"),
    "gloo_cadence": lambda: ElCheConfig.nccl_cadence(collective="gloo", anchor=5, gamma=0.0),
}


class Counter(nn.Module):
    """One number a sample: its gradient is 1 for each time that the sample is in a batch."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))

    def forward(self, index):
        return -self.seen[index]


def build(device):
    (FOLDER / "ranks" / str(os.getpid())).touch()
    return Counter().to(device)


def step(model, batch):
    time.sleep(STEP_S)
    return model(batch["index"]).sum()


def write_weights(epoch, model):
    file = FOLDER / "weights" / f"{epoch}.pt"
    fresh = file.with_suffix(f".{os.getpid()}")
    torch.save(model.seen.detach().clone(), fresh)
    fresh.replace(file)


handle = (
    Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=1.0), step)
    .dataset(TensorDataSet(index=torch.arange(SAMPLES)))
    .batch_size(BATCH)
    .num_epochs(100_000)
    .ranks(RANKS)
    .lr_scale_ratio(0.0)
    .elche(MODES[MODE]())
    .elastic(ElasticConfig(respawn=10_000, grow_interval=0.5))
    .save_path(FOLDER / "model")
    .checkpoint_every(1)
    .checkpoint_fn(write_weights)
    .run()
)
found, error = {}, None
while not (FOLDER / "stop").exists() and handle.status().state not in ("done", "failed"):
    handle.next_metrics(timeout=0.2)
handle.stop()
try:
    handle.join()
except RunInterrupted as interrupted:
    found["finished"] = interrupted.state.epoch
except BaseException as failure:
    error = f"{type(failure).__name__}: {failure}"
report = handle.report
found |= {
    "error": error,
    "accounts": [
        {
            "epoch": account.epoch,
            "total": account.total,
            "committed": account.committed,
            "dropped": account.dropped,
            "skipped": account.skipped_nonfinite,
            "retrained": account.retrained,
        }
        for account in report.accounting
    ],
    "deaths": [death["cause"] for death in report.deaths],
    "generations": len(report.generations),
}
print(json.dumps(found))
