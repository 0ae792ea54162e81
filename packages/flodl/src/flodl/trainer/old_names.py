"""Names of floDl 0.3 that mean something of ``Trainer`` now; each use warns."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, final

from flodl.distributed.averaging.outer import DiLoCo, SlowMo
from flodl.distributed.ddp import Ddp as ReplicaDdp
from flodl.distributed.worker.worker import Worker
from flodl.trainer.builder import Trainer, TrainerBuilder
from flodl.trainer.handle import TrainHandle
from flodl.trainer.old_settings import ApplyPolicy, AverageBackend, run_config

if TYPE_CHECKING:
    from flodl.distributed.replica.config import DdpConfig
    from flodl.engine.config import ModelFactory, OptimFactory, TrainStepFn
    from flodl.graph import Graph
    from flodl.graph.stepping.protocols import OptimizerFactory
    from flodl.trainer.setup import GraphFactory

__all__ = ["ApplyPolicy", "AverageBackend", "Ddp"]


@final
class Ddp(ReplicaDdp):
    """Keeps replicas of one model together, where and when the user's loop says so.

    Make it by `wrap`. The other calls are those of ``Trainer`` under their old names.
    """

    @staticmethod
    def setup(model: Graph, builder: GraphFactory, optimizer: OptimizerFactory) -> None:
        """Do what ``Trainer.setup`` does; deprecated."""
        _warn("setup")
        Trainer.setup(model, builder, optimizer)

    @staticmethod
    def setup_with(
        model: Graph, builder: GraphFactory, optimizer: OptimizerFactory, config: DdpConfig
    ) -> None:
        """Do what ``Trainer.setup_with`` does; deprecated."""
        _warn("setup_with")
        Trainer.setup_with(model, builder, optimizer, config)

    @staticmethod
    def builder(
        model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStepFn
    ) -> TrainerBuilder:
        """Do what ``Trainer.builder`` does; deprecated."""
        _warn("builder")
        return Trainer.builder(model_factory, optim_factory, train_step)


def _warn(name: str) -> None:
    warnings.warn(f"Ddp.{name} is now Trainer.{name}", DeprecationWarning, stacklevel=3)


def _slow_momentum(lr: float = 1.0, mu: float = 0.9) -> SlowMo:
    return SlowMo(alpha=lr, beta=mu, lr_aware=False)


def _nesterov_momentum(lr: float = 0.7, mu: float = 0.9) -> DiLoCo:
    return DiLoCo(lr=lr, momentum=mu)


_NOW: dict[str, tuple[str, Any]] = {
    "DdpBuilder": ("Trainer.builder", TrainerBuilder),
    "DdpHandle": ("TrainHandle", TrainHandle),
    "DdpRunConfig": ("TrainerConfig, with an ElCheConfig", run_config),
    "GpuWorker": ("Worker", Worker),
    "NesterovMomentum": ("DiLoCo", _nesterov_momentum),
    "SlowMomentum": ("SlowMo", _slow_momentum),
}


def __getattr__(name: str) -> Any:
    if name not in _NOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    now, value = _NOW[name]
    warnings.warn(f"{name} is now {now}", DeprecationWarning, stacklevel=3)
    return value
