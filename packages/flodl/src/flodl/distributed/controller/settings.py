"""What a run is told once, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from flodl.distributed.config import ElasticConfig, ElCheConfig, Timeouts
from flodl.distributed.config.checks import one_of, raise_for, whole
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.protocol.messages import CheckpointMode
from flodl.distributed.protocol.values import Plain, Versions

StartRule = Literal["auto", "manual", "hybrid"]
NonFiniteRule = Literal["quarantine", "raise", "skip", "warn"]
OomPolicy = Literal["split", "evict", "fail"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRules:
    """When the run starts.

    Raises:
        ConfigError: A number is out of range, or they are out of order.
    """

    least: int = 1
    """Ranks without which it does not start."""
    target: int | None = None
    """Ranks with which it starts at once; ``None``: when the join window ends."""
    start: StartRule = "auto"
    """``"manual"``: only when told; ``"hybrid"``: when told, or by the rules."""

    def __post_init__(self) -> None:
        problems = [
            *whole("least", self.least, 1),
            *whole("target", self.target, 1, optional=True),
            *one_of("start", self.start, ("auto", "manual", "hybrid")),
        ]
        if not problems and self.target is not None and self.target < self.least:
            problems.append(f"target={self.target}: must be at least least={self.least}")
        if self.start == "manual" and self.target is not None:
            problems.append(f"target={self.target} with a manual start: nobody would wait for it")
        raise_for(problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What every member must agree with; ``None`` or empty: the first one decides, or nobody."""

    versions: Versions | None = None
    vendor: str | None = None
    model_sig: str | None = None
    dataset_sig: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DutyRules:
    """What one member does for all, and when.

    Raises:
        ConfigError: A number is out of range, or checkpoints have nowhere to go.
    """

    eval_every: int | None = None
    """Epochs; the last one is always evaluated. ``None``: never."""
    eval_parallel: bool = False
    checkpoint_every: int | None = None
    """Epochs."""
    checkpoint_every_windows: int | None = None
    checkpoint_at_epochs: tuple[int, ...] = ()
    """Numbers of finished epochs after which there is one as well."""
    checkpoint_mode: CheckpointMode = "full"
    has_checkpoint_fn: bool = False
    """Whether the user has a function that is called at checkpoints, saved or not."""
    save_path: str | None = None
    policy_rank: int | None = None
    """The member that does it, by its number; ``None``: the fastest."""

    def __post_init__(self) -> None:
        names = ("eval_every", "checkpoint_every", "checkpoint_every_windows")
        problems = [
            text for name in names for text in whole(name, getattr(self, name), 1, optional=True)
        ]
        problems += whole("policy_rank", self.policy_rank, 0, optional=True)
        for epoch in self.checkpoint_at_epochs:
            problems += whole("checkpoint_at_epoch", epoch, 1)
        problems += one_of("checkpoint_mode", self.checkpoint_mode, get_args(CheckpointMode))
        raise_for(problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """Everything that the controller's decisions depend on."""

    plan: WorkPlan
    elche: ElCheConfig
    nonce: str
    elastic: ElasticConfig = field(default_factory=ElasticConfig)
    timeouts: Timeouts = field(default_factory=Timeouts)
    join: JoinRules = field(default_factory=JoinRules)
    identity: Identity = field(default_factory=Identity)
    duties: DutyRules = field(default_factory=DutyRules)
    on_nonfinite: NonFiniteRule = "quarantine"
    max_failures: int | None = None
    """Deaths of ranks that are tolerated."""
    oom_policy: OomPolicy = "split"
    """Whether a rank that cannot get over a lack of memory is lost, or ends the run."""
    exact_strict: bool = False
    """Whether a run must not start that cannot go on exactly as the checkpoint's."""
    lr_scale_ratio: float = 0.0
    is_durable: bool = False
    """Whether hosts keep a copy of the consensus outside the ranks."""
    envelope: Mapping[str, Plain] = field(default_factory=dict)
    """Configuration that every rank is given."""
    argv: tuple[str, ...] = ()
    code_digest: str = ""

    @property
    def is_progressive(self) -> bool:
        """Whether work is handed out as ranks finish it.

        Where decisions must not depend on time it cannot be: who asks first is a matter of time.
        """
        return self.elche.is_progressive and self.elche.deterministic is None
