"""Settings of floDl 0.3 for the exchange between ranks, which are fields of ``ElCheConfig`` now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, Self

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig, ElCheMode
from flodl.distributed.elche.guards import NoGuard
from flodl.trainer.config import TrainerConfig
from flodl_sys.gpu import detect_gpus


class ApplyPolicy(StrEnum):
    """When ranks average, as floDl 0.3 said it; the half of an ``ElCheMode``."""

    Sync = "Sync"
    Cadence = "Cadence"
    Async = "Async"


class AverageBackend(StrEnum):
    """How ranks average, as floDl 0.3 said it; the other half of an ``ElCheMode``."""

    Nccl = "Nccl"
    Cpu = "Cpu"


NAMES = frozenset(
    {
        "policy",
        "backend",
        "anchor",
        "max_anchor",
        "overhead_target",
        "divergence_threshold",
        "convergence_guard",
        "max_batch_diff",
        "max_overshoot",
        "partition_ratios",
        "progressive",
        "snapshot_timeout",
    }
)


class OldSettings:
    """Setters of floDl 0.3, for the builder; each warns, and :meth:`elche` has the same field."""

    _given: Mapping[str, Any] = {}

    def policy(self, policy: ApplyPolicy | str) -> Self:
        """Set when ranks average; deprecated."""
        return self._old("policy", policy=policy)

    def backend(self, backend: AverageBackend | str) -> Self:
        """Set how ranks average; deprecated."""
        return self._old("backend", backend=backend)

    def anchor(self, batches: int) -> Self:
        """Set ``ElCheConfig.anchor``; deprecated."""
        return self._old("anchor", anchor=batches)

    def max_anchor(self, batches: int) -> Self:
        """Set ``ElCheConfig.max_anchor``; deprecated."""
        return self._old("max_anchor", max_anchor=batches)

    def overhead_target(self, share: float) -> Self:
        """Set ``ElCheConfig.overhead_target``; deprecated."""
        return self._old("overhead_target", overhead_target=share)

    def divergence_threshold(self, threshold: float) -> Self:
        """Set ``ElCheConfig.divergence_threshold``; deprecated."""
        return self._old("divergence_threshold", divergence_threshold=threshold)

    def no_divergence_guard(self) -> Self:
        """Set ``ElCheConfig.convergence_guard`` to ``NoGuard()``; deprecated."""
        return self._old("no_divergence_guard", convergence_guard=NoGuard())

    def max_batch_diff(self, steps: int) -> Self:
        """Set ``ElCheConfig.max_batch_diff``; deprecated."""
        return self._old("max_batch_diff", max_batch_diff=steps)

    def max_overshoot(self, steps: int) -> Self:
        """Set ``ElCheConfig.max_overshoot``; deprecated."""
        return self._old("max_overshoot", max_overshoot=steps)

    def partition_ratios(self, ratios: Sequence[float]) -> Self:
        """Set ``ElCheConfig.partition_ratios``; deprecated."""
        return self._old("partition_ratios", partition_ratios=tuple(ratios))

    def progressive_dispatch(self, on: bool = True) -> Self:
        """Set ``ElCheConfig.progressive``; deprecated."""
        return self._old("progressive_dispatch", progressive=on)

    def snapshot_timeout(self, seconds: float) -> Self:
        """Set ``ElCheConfig.snapshot_timeout``; deprecated."""
        return self._old("snapshot_timeout", snapshot_timeout=seconds)

    def _old(self, name: str, **field: Any) -> Self:
        message = f"{name}() of the builder is now a field of ElCheConfig, for elche()"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        twice = sorted(field.keys() & self._given.keys())
        if twice:
            raise ConfigError(f"{twice[0]} is set twice", hint="leave one of them out")
        self._given = {**self._given, **field}
        return self


def with_old_settings(config: TrainerConfig, given: Mapping[str, Any]) -> TrainerConfig:
    """Return a configuration with old settings written into its ``elche``.

    Raises:
        ConfigError: One is set there, too, or has no place in the mode.
    """
    if not given:
        return config
    own = config.elche
    base = ElCheConfig() if own is None else own
    default = ElCheConfig(mode=base.mode)
    changes = {name: value for name, value in given.items() if name not in ("policy", "backend")}
    twice = [name for name in changes if getattr(base, name) != getattr(default, name)]
    if own is not None and given.keys() & {"policy", "backend"}:
        twice.append("mode")
    if twice:
        raise ConfigError(
            f"{', '.join(twice)}: set by elche() and by an old setter of that name",
            hint="set it in ElCheConfig alone",
        )
    if own is None:
        plane = AverageBackend.Nccl if detect_gpus() else AverageBackend.Cpu
        policy = str(given.get("policy", ApplyPolicy.Cadence))
        changes["mode"] = ElCheMode.of(policy, str(given.get("backend", plane)))
    return replace(config, elche=replace(base, **changes))


def run_config(**settings: Any) -> TrainerConfig:
    """Return the configuration that a ``DdpRunConfig`` with these fields was.

    Raises:
        ConfigError: A field that neither it nor ``TrainerConfig`` has.
    """
    old = {name: settings.pop(name) for name in sorted(NAMES & settings.keys())}
    legal = {field.name for field in fields(TrainerConfig)}
    unknown = sorted(settings.keys() - legal)
    if unknown:
        raise ConfigError(
            f"DdpRunConfig({unknown[0]}=...): no such field",
            hint="the fields are those of TrainerConfig and of ElCheConfig",
        )
    return with_old_settings(TrainerConfig(**settings), old)
