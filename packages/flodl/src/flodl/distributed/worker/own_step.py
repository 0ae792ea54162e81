"""The step of a loop of the user's own: the gradients are there, the rest is done here."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError, StepContractError
from flodl.data import Batch
from flodl.engine.capture import PARTS
from flodl.engine.config import CaptureConfig, StepConfig
from flodl.engine.output import reported
from flodl.engine.ring import StepRecord
from flodl.engine.step import TrainStep
from flodl.metrics.scalars import ScalarScope


class OwnStep(TrainStep):
    """Clips, sets the learning rate, steps, zeroes and counts, eagerly.

    Forward and backward are the user's, so what changes them does not belong here.

    Args:
        model: The model in training, on its device.
        optimizer: Its optimizer.
        config: The settings.
        scalars: Where recorded scalars are gathered.

    Raises:
        ConfigError: A setting is about forward or backward.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        config: StepConfig,
        scalars: ScalarScope,
    ) -> None:
        check_own_loop(config)
        config = replace(config, capture=CaptureConfig(mode="off"))
        super().__init__(_no_step, model, optimizer, config=config, scalars=scalars)

    def take(self, loss: Tensor) -> None:
        """Take the step of a batch whose gradients are there, and zero them.

        With ``accumulate`` every n-th call steps, with the mean of the gradients.

        Raises:
            StepContractError: No parameter has a gradient.
        """
        count = self._config.accumulate
        part = PARTS[self._in_window == 0, self._in_window == count - 1]
        body, loss = self._body, loss.detach().reshape(())
        if all(parameter.grad is None for parameter in body.parameters):
            raise StepContractError(
                "w.step(loss): no parameter has a gradient",
                hint="call loss.backward() before it, without optimizer.zero_grad() between them",
            )
        body.guard.saw(loss, starts_window=part.starts)
        self._in_window += 1
        if part.ends:
            self.close_window()
        self._batches += 1
        self._tell(loss)

    def close_window(self) -> None:
        """Step with the mean of the gradients since the last step, if there are any."""
        count, body = self._in_window, self._body
        if not count:
            return
        self._follow_groups()
        self._rates.before(self.global_step)
        try:
            if body.gradients is not None:
                body.gradients.repair()  # the user may have dropped or replaced them
            if count > 1:
                body.scale_gradients(1 / count)
            body.end_window()
        except BaseException:
            self._drop()
            raise
        if body.gradients is None:
            self.optimizer.zero_grad(set_to_none=True)
        self._in_window = 0
        self._stepped()

    def forget_batch(self) -> None:
        """Drop the gradients of a batch whose step was not taken.

        Within an accumulation they stay: they are those of the batches before it as well.
        """
        if not self._in_window:
            self._drop()

    def _drop(self) -> None:
        self._body.drop_window()
        self._in_window = 0

    def _tell(self, loss: Tensor) -> None:
        if self._gpu is None:
            self._on_record(StepRecord(self._batches - 1, ("loss",), (loss.item(),)))
            return
        with torch.cuda.device(self._device):
            self._gpu.counts["eager"] += 1
            reported(self._gpu.ring, ("loss",), loss)
            self._deliver(self._gpu.ring.poll())


def check_own_loop(config: StepConfig) -> None:
    """Refuse what a loop of the user's own must do by itself.

    Raises:
        ConfigError: A setting is about forward or backward; the message names all of them.
    """
    hints = {
        "amp": "run the forward pass under torch.autocast",
        "scaler": "train in bfloat16, which needs no scaler",
        "compile": "compile the model in its factory",
        "bucket_sizes": "pad in the collate function or the transform of .loader(...)",
    }
    given = [name for name in hints if getattr(config, name)]
    if config.capture.mode == "require":
        given.append("capture")
        hints["capture"] = "a graph holds a whole step: use .run() with a train step"
    if given:
        raise ConfigError(
            f"{', '.join(given)}: set, and forward and backward are not the trainer's in a loop of "
            "your own",
            hint="; ".join(hints[name] for name in given),
        )


def _no_step(_model: nn.Module, _batch: Batch) -> NoReturn:
    raise StepContractError("the loop is the user's own: it has no train step to call")
