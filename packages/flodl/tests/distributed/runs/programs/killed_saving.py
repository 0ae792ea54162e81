"""A user's script in which a rank is killed while it writes a part of a checkpoint."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from flodl import ElCheConfig, TensorDataSet, Trainer
from flodl.engine import copies

torch.set_num_threads(1)
MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
POINTS = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
write = copies.save_checkpoint


def save_or_die(file, *arguments, **options):
    if "window2" in file.name:
        try:
            (FOLDER / "died").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            file.write_bytes(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
    write(file, *arguments, **options)


copies.save_checkpoint = save_or_die
handle = (
    Trainer.builder(
        lambda device: nn.Linear(4, 2),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["y"]),
    )
    .dataset(TensorDataSet(x=POINTS, y=(POINTS.sum(1) > 0).long()))
    .batch_size(8)
    .num_epochs(6)
    .ranks(2)
    .elche(ElCheConfig.cpu_cadence(anchor=3, max_anchor=3))
    .save_path(FOLDER / "model")
    .checkpoint_every_windows(2)
    .checkpoint_keep(None)
    .checkpoint_mode(MODE)
    .run()
)
state = handle.join()
report = handle.report
print(
    json.dumps(
        {
            "epoch": state.epoch,
            "deaths": [death["cause"] for death in report.deaths],
            "accounts": [[each.committed, each.total] for each in report.accounting],
        }
    )
)
