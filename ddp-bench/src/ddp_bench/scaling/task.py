"""What one arm is asked to do, as it travels to the processes that do it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from ddp_bench.scaling.slow import SlowRank
from flodl.testing.sim import SlowLink

OptimizerName = Literal["own", "sgd"]
STEPS, SNAPSHOTS, OUTCOME = "rank{}.steps", "snapshots", "outcome.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One run of one arm."""

    arm: str
    folder: str
    """Where its ranks write what they measure."""
    seed: int
    run_s: float
    """Seconds from the first step to the end."""
    model: str = "mlp"
    optimizer: OptimizerName = "own"
    """That of the model's set-up, or SGD with momentum for all arms."""
    ranks: int = 2
    slow: SlowRank = field(default_factory=SlowRank)
    link: SlowLink = field(default_factory=SlowLink)
    base_s: float = 0.020
    rest_s: float = 0.0
    every: int = 10
    """Steps between two looks at the shared model, where ranks average at every step."""
    period: int = 0
    """Steps between two averages, for arms that are told so."""

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the task that ``to_json`` wrote."""
        plain: dict[str, Any] = json.loads(text)
        slow, link = SlowRank(**plain["slow"]), SlowLink(**plain["link"])
        return cls(**{**plain, "slow": slow, "link": link})

    def steps_file(self, rank: int) -> Path:
        """Return where a rank writes its steps."""
        return Path(self.folder) / STEPS.format(rank)

    @property
    def snapshots_file(self) -> Path:
        """Where rank 0 writes copies of the shared model."""
        return Path(self.folder) / SNAPSHOTS

    @property
    def outcome_file(self) -> Path:
        """Where an arm of flodl writes what its run amounted to."""
        return Path(self.folder) / OUTCOME
