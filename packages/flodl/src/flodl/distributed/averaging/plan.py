"""Settings of the data plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.outer import OuterFactory
from flodl.distributed.averaging.wire import Wire
from flodl.distributed.collective.group import Fabric
from flodl.distributed.config import ElCheConfig

__all__ = ["InnerState", "PlaneConfig"]

InnerState: TypeAlias = Literal["keep", "reset", "average"]
Center: TypeAlias = Literal["consensus", "elastic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaneConfig:
    """How ranks average.

    Raises:
        ConfigError: A value is out of range, or two do not go together.
    """

    fabric: Fabric = "gloo"
    wire: Wire = "fp32"
    error_feedback: bool = True
    alpha: float | None = None
    """How far ranks blend towards the consensus (EASGD); ``None``: they take it over."""
    center: Center = "consensus"
    """What they blend towards: this window's consensus, or a center that follows it slowly."""
    outer: OuterFactory = None
    inner_state: InnerState = "keep"
    """What becomes of the inner optimizer's state when a consensus is taken over."""
    shared_moments: bool = False
    """Whether Adam's second moments are corrected; not with ``outer``, nor where they are reset."""
    is_background: bool = False
    """Whether averages are made on a thread of their own, while training goes on."""
    shm_prefix: str = "flodl"
    """Begins the names of shared-memory segments; the host's sweep goes by it."""
    run_dir: Path | None = None
    """Where segments go when the system's shared memory has no room."""

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha={self.alpha!r}: must be in (0, 1], or None")
        if self.center == "elastic" and self.alpha is None:
            raise ConfigError("center='elastic' without alpha: it is a way of blending")
        if self.wire == "bf16" and self.fabric == "nccl":
            raise ConfigError("wire='bf16' with fabric='nccl': only the CPU plane has it")
        for name, legal in _LEGAL.items():
            if getattr(self, name) not in legal:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: must be one of {', '.join(map(repr, legal))}"
                )

    @classmethod
    def of(
        cls,
        elche: ElCheConfig,
        *,
        outer: OuterFactory = None,
        inner_state: InnerState = "keep",
        has_scaler: bool = False,
        shm_prefix: str = "flodl",
        run_dir: Path | None = None,
    ) -> PlaneConfig:
        """Return what a mode's settings mean for the data plane."""
        is_nccl = elche.mode.is_nccl and elche.collective == "nccl"
        return cls(
            fabric="nccl" if is_nccl else "gloo",
            wire="bf16" if elche.bf16_wire else "fp32",
            error_feedback=elche.error_feedback,
            alpha=elche.alpha,
            center=elche.center if elche.alpha is not None else "consensus",
            outer=outer,
            inner_state=inner_state,
            shared_moments=elche.shared_moments and not has_scaler,
            is_background=elche.mode.is_async,
            shm_prefix=shm_prefix,
            run_dir=run_dir,
        )


_LEGAL: dict[str, tuple[str, ...]] = {
    "fabric": ("gloo", "nccl"),
    "wire": ("fp32", "bf16"),
    "center": ("consensus", "elastic"),
    "inner_state": ("keep", "reset", "average"),
}
