"""Part of Graph: a training loop in the graph's own words, the same on one device and on many."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flodl.core.errors import ConfigError, GraphInputError, StepContractError
from flodl.graph.stepping.distribution import Distribution

if TYPE_CHECKING:
    from flodl.graph.stepping.protocols import (
        LossFunction,
        NamedBatch,
        NamedLoader,
        OptimizerFactory,
        RateSchedule,
    )


class Stepping(Distribution):
    """Trains without another object.

    A whole loop is:

        model.set_optimizer(lambda params: torch.optim.AdamW(params, lr=1e-3))
        model.set_data_loader(loader, "image")
        for batch in model.epoch(0):
            loss = loss_function(model.forward_batch(batch), batch["label"])
            loss.backward()
            model.step()
    """

    def set_optimizer(self, factory: OptimizerFactory) -> None:
        """Make the optimizer; ``factory`` gets the list of parameters."""
        if not callable(factory):
            raise StepContractError(
                f"set_optimizer({type(factory).__name__}): it takes a function that makes one",
                hint="set_optimizer(lambda params: torch.optim.SGD(params, lr=0.1))",
            )
        self._training().stepper.set_optimizer(factory)

    def set_scheduler(self, scheduler: RateSchedule | None) -> None:
        """Take the learning rate of each step from a scheduler; ``None`` ends that."""
        self._training().scheduler = scheduler

    def set_lr_scale(self, factor: float) -> None:
        """Multiply every learning rate by a factor."""
        self._training().scale = factor

    def set_lr(self, rate: float) -> None:
        """Use one learning rate from now on, and no scheduler."""
        training = self._training()
        training.rate, training.scheduler = rate, None

    @property
    def training_step(self) -> int:
        """How many optimizer steps were made."""
        return self._training().step_number

    def step(self) -> None:
        """Apply the gradients: learning rate, optimizer step, gradients cleared, state detached.

        Raises:
            StepContractError: There is no optimizer, or no gradient.
        """
        training = self._training()
        training.stepper.step(training.rate_of)
        training.step_number += 1
        self.end_step()

    def set_data_loader(
        self, loader: NamedLoader, primary: str, *, absent: Collection[str] = ()
    ) -> None:
        """Take batches from a loader.

        The field ``primary`` is the first input; further inputs get the fields of their names;
        all others are targets.

        Args:
            loader: Where batches come from.
            primary: Field of the first input.
            absent: Inputs that are ``None`` in every batch, where the graph takes that.

        Raises:
            GraphInputError: An input has no field, or ``absent`` names none.
            ConfigError: There is no field ``primary``, or the loader does not name its fields.
        """
        names = getattr(loader, "names", None)
        if names is None:
            raise ConfigError(
                f"set_data_loader() of a {type(loader).__name__}: its batches have no names",
                hint="give a flodl DataLoader of the data set: DataLoader(dataset, batch_size=...)",
            )
        if primary not in names:
            raise ConfigError(
                f"set_data_loader(…, {primary!r}): no such field; there are {', '.join(names)}"
            )
        entry, *others = self.input_names
        unknown = [name for name in absent if name not in others]
        if unknown:
            raise GraphInputError(
                f"set_data_loader: absent={', '.join(map(repr, unknown))}: no such input; "
                f"after {entry!r} there are {', '.join(map(repr, others)) or 'none'}"
            )
        missing = [name for name in others if name not in names and name not in absent]
        if missing:
            raise GraphInputError(
                f"set_data_loader: nothing is given to {', '.join(map(repr, missing))}; "
                f"the batches have {', '.join(names)}",
                hint="name the fields of the data set like the inputs of the graph, or name in "
                "absent=(…) what is None in every batch",
            )
        training = self._training()
        given = {name: None if name in absent else name for name in others}
        training.fields = {entry: primary, **given}
        used = set(training.fields.values())
        training.targets = tuple(name for name in names if name not in used)
        training.stepper.set_data_loader(loader)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Fields of a batch that are no inputs."""
        return self._training().targets

    def epoch(self, number: int) -> Iterator[Any]:
        """Return the batches of an epoch, counted from 0; the iterator has a length.

        Raises:
            StepContractError: There is no loader.
        """
        return self._training().stepper.epoch(number)

    def forward_batch(self, batch: NamedBatch) -> Any:
        """Return the output for a batch, or its loss when ``set_loss_fn`` was called.

        Raises:
            StepContractError: ``set_data_loader`` was not called, so fields have no meaning yet.
        """
        training = self._training()
        if not training.fields:
            raise StepContractError(
                "forward_batch(): which field is the input is not known",
                hint="call set_data_loader(loader, 'name') before",
            )
        output = training.stepper.forward(batch, training.fields)
        if training.loss is None:
            return output
        if _wants_context(training.loss):
            return training.loss(output, batch, training.stepper.context(batch, output))
        return training.loss(output, batch)

    def set_loss_fn(self, loss: LossFunction | None) -> None:
        """Make ``forward_batch`` return ``loss(output, batch)``, or ``loss(output, batch, ctx)``.

        ``ctx`` is a ``LossContext``, with the values of tags and traces.
        """
        self._training().loss = loss


def _wants_context(loss: LossFunction) -> bool:
    parameters: Sequence[inspect.Parameter] = list(inspect.signature(loss).parameters.values())
    positional = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    needed = [item for item in parameters if item.kind in positional]
    return any(item.name == "ctx" for item in parameters) or (
        len([item for item in needed if item.default is inspect.Parameter.empty]) >= 3
    )
