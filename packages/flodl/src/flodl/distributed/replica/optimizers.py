"""The optimizers of replicas: each steps its own parameters, and all have the same state."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from flodl.core.errors import ConfigError

if TYPE_CHECKING:
    from flodl.graph.stepping.protocols import OptimizerFactory


def made_for(
    parameters: Sequence[nn.Parameter], factory: OptimizerFactory, whose: str
) -> Optimizer:
    """Return the optimizer that a factory makes for the parameters of one replica.

    Raises:
        ConfigError: It gives no optimizer, or one that steps anything else.
    """
    optimizer: object = factory(list(parameters))
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(
            f"set_optimizer(): the factory gave a {type(optimizer).__name__} for {whose}: expected "
            "an optimizer"
        )
    own = set(map(id, parameters))
    given = [one for group in optimizer.param_groups for one in group["params"]]
    others = sum(id(one) not in own for one in given)
    if others:
        raise ConfigError(
            f"set_optimizer(): of {len(given)} parameters in the optimizer of {whose}, {others} "
            "are not its own",
            hint="make the optimizer of the list that the factory is given; what else is trained "
            "must be part of the graph",
        )
    return optimizer


def load_together(optimizers: Sequence[Optimizer]) -> None:
    """Let all optimizers load what one of them loads from now on, each as a copy of its own."""
    loading: set[int] = set()
    for optimizer in optimizers:
        others = [weakref.ref(other) for other in optimizers if other is not optimizer]
        optimizer.register_load_state_dict_post_hook(_passing_on(others, loading))


def _passing_on(
    others: Sequence[weakref.ref[Optimizer]], loading: set[int]
) -> Callable[[Optimizer], None]:
    def pass_on(loaded: Optimizer) -> None:
        if loading:
            return  # what one of the others was given
        loading.add(id(loaded))
        try:
            for one in others:
                other = one()
                if other is not None:
                    other.load_state_dict(copy.deepcopy(loaded.state_dict()))
        finally:
            loading.clear()

    return pass_on
