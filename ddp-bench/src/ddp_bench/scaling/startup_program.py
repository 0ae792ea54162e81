"""A script as a user writes one: ``python -m ddp_bench.scaling.startup_program <folder>``.

Each rank writes down when its first batch was trained; the launcher, when it called ``run``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flodl import ElCheConfig, RunInterrupted, TensorDataSet, Trainer

CALLED, STOP, FIRST = "called", "stop", "first.{}"
_MOST_S = 120.0
_STEP_S = 0.005
_EPOCHS = 1_000_000


def note(folder: Path, name: str) -> None:
    """Write down that something happens now, once, so that a reader never sees half of it."""
    path = folder / name
    if path.exists():
        return
    draft = folder / f"{name}.{os.getpid()}.draft"
    draft.write_text(repr(time.monotonic()), encoding="ascii")
    draft.replace(path)


def build(device: torch.device) -> nn.Module:
    """Make a model with nothing to compute."""
    torch.set_num_threads(1)
    return nn.Linear(8, 1).to(device)


def loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch after five milliseconds."""
    time.sleep(_STEP_S)
    value: Tensor = (model(batch["x"]) - batch["y"]).square().mean()
    return value


def main() -> int:
    """Train on two ranks until the folder says stop."""
    folder = Path(sys.argv[1])
    points = torch.arange(32_768.0).reshape(4096, 8) / 32_768

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made = torch.optim.Adam(parameters, lr=1e-3)
        made.register_step_post_hook(lambda *_: note(folder, FIRST.format(f"pid{os.getpid()}")))
        return made

    builder = (
        Trainer.builder(build, optimizer, loss)
        .dataset(TensorDataSet(x=points, y=points.sum(1, keepdim=True)))
        .batch_size(16)
        .num_epochs(_EPOCHS)
        .ranks(2)
        .elche(ElCheConfig.cpu_cadence())
    )
    note(folder, CALLED)  # the launcher comes here first: the others are started by run
    handle = builder.run()
    deadline = time.monotonic() + _MOST_S
    while not (folder / STOP).exists() and time.monotonic() < deadline:
        if handle.status().state in {"done", "failed"}:
            break
        time.sleep(0.02)
    handle.stop(save=False)
    with contextlib.suppress(RunInterrupted):
        handle.join(_MOST_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
