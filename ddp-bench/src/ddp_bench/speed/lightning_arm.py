"""The arm of PyTorch Lightning: its Trainer around the plain model, all extras switched off."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ddp_bench.speed.turns import Turns
from ddp_bench.speed.workload import Workload

PACKAGE = "pytorch_lightning"


def is_installed() -> bool:
    """Return whether Lightning can be imported."""
    return importlib.util.find_spec(PACKAGE) is not None


class Batches:
    """Batches that lie on the device, as a loader that Lightning iterates over."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._batches)


def drive(workload: Workload, turns: Turns) -> None:
    """Train with Lightning's Trainer."""
    lightning: Any = importlib.import_module(PACKAGE)
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=PACKAGE)
    warnings.filterwarnings("ignore", module="lightning_fabric")
    model, count = workload.plain(), len(workload.batches)
    total = torch.zeros((), device=workload.device)

    class Module(lightning.LightningModule):  # type: ignore[misc] # it has no types here
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            return workload.model_def.loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return workload.adam(self.parameters(), fused=True)

    class Reading(lightning.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sum = 0.0

        def on_train_epoch_start(self, *_: object) -> None:
            self.sum = 0.0
            total.zero_()
            turns.begin()

        def on_train_batch_end(
            self, _trainer: object, _module: object, outputs: Any, *_: object
        ) -> None:
            if turns.turn.policy == "step":
                self.sum += turns.read(outputs["loss"])
            else:
                total.add_(outputs["loss"])

        def on_train_epoch_end(self, *_: object) -> None:
            is_step = turns.turn.policy == "step"
            turns.end(self.sum / count if is_step else total / count)

    trainer = lightning.Trainer(
        accelerator="gpu" if workload.device.type == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if workload.amp else "32-true",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Reading()],
    )
    trainer.fit(Module(), train_dataloaders=Batches(workload.batches))
