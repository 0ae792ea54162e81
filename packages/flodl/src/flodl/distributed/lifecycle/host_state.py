"""What a host's daemon is at one moment: plain state that the steps of its machine work on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flodl.distributed.config import Timeouts
from flodl.distributed.lifecycle.host_events import HostCommand, SendUp
from flodl.distributed.protocol import schema
from flodl.distributed.protocol.messages import Message
from flodl.distributed.protocol.values import Device, Held, Offer, Versions

HOUR = 3600.0


class HostState(StrEnum):
    """How far a host has come."""

    CONNECTING = "connecting"
    ADMITTED = "admitted"
    SPAWNING = "spawning"
    SUPERVISING = "supervising"
    REAPING = "reaping"
    """The run is over for this host: its ranks end."""
    EXIT = "exit"


class ProcessState(StrEnum):
    """Whether a rank's process is there."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSettings:
    """What a host's daemon is told when it starts."""

    host: str
    devices: tuple[tuple[str, Device], ...]
    """Uid and device of each rank it offers."""
    versions: Versions
    vendor: str = "cpu"
    data_address: str = ""
    model_sig: str | None = None
    dataset_sig: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    respawn: int = 2
    """Times per hour that a rank is started again."""
    controller_grace: float = 120.0
    is_persistent: bool = False
    """Whether it waits for the next run when one is over."""


@dataclass(kw_only=True, slots=True)
class LocalRank:
    """One rank of this host."""

    uid: str
    device: Device
    incarnation: int = 0
    process: ProcessState = ProcessState.ABSENT
    is_fenced: bool = False
    """Whether the controller waits to hear that it is gone."""
    is_offered: bool = True
    """Whether it takes part in the next hello."""
    starts: list[float] = field(default_factory=list)
    """When it was started again."""

    @property
    def is_there(self) -> bool:
        """Whether its process runs, or is about to."""
        return self.process is not ProcessState.ABSENT

    def may_start_again(self, limit: int, now: float) -> bool:
        """Return whether one more start stays within the limit per hour."""
        self.starts = [at for at in self.starts if now - at < HOUR]
        return len(self.starts) < limit


@dataclass(kw_only=True, slots=True)
class HostRun:
    """State of one host, and the commands that its current step has given so far."""

    settings: HostSettings
    ranks: dict[str, LocalRank]
    state: HostState = HostState.CONNECTING
    gen: int = 0
    version: int = 0
    nonce: str = ""
    now: float = 0.0
    is_dialing: bool = False
    is_linked: bool = False
    is_told_down: bool = False
    """Whether the ranks were told that the controller cannot be reached."""
    is_holding: bool = False
    """Whether the ranks were told to stand still."""
    attempts: int = 0
    """Vain attempts to connect, in a row."""
    acked_at: float | None = None
    """When the last beat was sent that the controller answered."""
    beat_at: float | None = None
    progress_at: float | None = None
    reap_at: float | None = None
    """When ranks that have not ended are killed."""
    exit_code: int = 0
    commands: list[HostCommand] = field(default_factory=list)

    @classmethod
    def fresh(cls, settings: HostSettings) -> HostRun:
        """Return a host that has not dialed yet."""
        ranks = {uid: LocalRank(uid=uid, device=device) for uid, device in settings.devices}
        return cls(settings=settings, ranks=ranks)

    def emit(self, command: HostCommand) -> None:
        """Add a command to what the current step gives."""
        self.commands.append(command)

    def send(self, message: Message) -> None:
        """Send a message of the host itself to the controller."""
        self.commands.append(SendUp(message=message, gen=self.gen))

    def offers(self) -> tuple[Offer, ...]:
        """Return the ranks to bring along: those that run, and those to be started."""
        held = Held(gen=self.gen, version=self.version)
        return tuple(
            Offer(
                uid=rank.uid,
                incarnation=rank.incarnation,
                device=rank.device,
                held=held if rank.is_there else None,
            )
            for rank in self.ranks.values()
            if rank.is_there or rank.is_offered
        )

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes, with the settings."""
        plain = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in {"settings", "ranks", "state", "commands"}
        }
        ranks = [
            {
                **dataclasses.asdict(rank),
                "device": schema.write(rank.device),
                "process": rank.process.value,
            }
            for rank in self.ranks.values()
        ]
        return {**plain, "state": self.state.value, "ranks": ranks}

    @classmethod
    def from_state(cls, settings: HostSettings, state: dict[str, Any]) -> HostRun:
        """Return the host that ``to_state`` described."""
        ranks = [
            LocalRank(
                **{
                    **item,
                    "device": schema.read(Device, item["device"]),
                    "process": ProcessState(item["process"]),
                }
            )
            for item in state["ranks"]
        ]
        return cls(
            **{
                **state,
                "settings": settings,
                "state": HostState(state["state"]),
                "ranks": {rank.uid: rank for rank in ranks},
            }
        )
