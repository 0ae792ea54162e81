"""Who belongs to the run: hosts, members, and what is known of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flodl.distributed.protocol.values import Offer


class MemberState(StrEnum):
    """How far a member has come."""

    BOOTING = "booting"
    """Admitted; its process imports and builds."""
    READY = "ready"
    """Built; the next generation takes it in."""
    ACTIVE = "active"
    """Part of the current generation."""
    FENCING = "fencing"
    """Given up; its host was told to kill it and has not confirmed."""
    LOST = "lost"
    LEFT = "left"
    """It said goodbye."""


ALIVE = frozenset({MemberState.BOOTING, MemberState.READY, MemberState.ACTIVE})


@dataclass(kw_only=True, slots=True)
class Member:
    """One rank's process, and the number under which people know it."""

    uid: str
    host: str
    number: int
    incarnation: int
    device: str
    device_index: int = 0
    state: MemberState = MemberState.BOOTING
    is_new: bool = True
    """Whether it has to be given state and work before it takes part."""
    since: float = 0.0
    """When it came into its state."""
    version: int = 0
    """Last window whose result it is known to have."""
    step: int = 0
    stepped_at: float = 0.0
    """When its steps last grew, or it was last not expected to take any."""
    window_steps: int = 0
    phase: str = ""
    batch_ms: float = 0.0
    is_suspect: bool = False
    is_awaited: bool = False
    """Whether a restarted controller has not heard of it yet."""
    bad_windows: int = 0
    """Windows in a row whose payload was not finite."""
    cause: str = ""
    """Why it was given up."""

    @property
    def is_alive(self) -> bool:
        """Whether it takes part, or may."""
        return self.state in ALIVE


@dataclass(kw_only=True, slots=True)
class Host:
    """One host's daemon."""

    name: str
    seen_at: float
    """When its last message came."""
    data_address: str = ""
    is_suspect: bool = False


@dataclass(kw_only=True, slots=True)
class Roster:
    """All members and hosts that ever took part."""

    members: dict[str, Member] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    next_number: int = 0

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def in_state(self, *states: MemberState) -> list[Member]:
        """Return the members in one of the states, by number."""
        found = [member for member in self.members.values() if member.state in states]
        return sorted(found, key=lambda member: member.number)

    def count(self, *states: MemberState) -> int:
        """Return how many members are in one of the states."""
        return sum(member.state in states for member in self.members.values())

    def of_host(self, host: str) -> list[Member]:
        """Return the living members of a host, by number."""
        return [member for member in self.in_state(*ALIVE) if member.host == host]

    def admit(self, host: str, offer: Offer, now: float) -> Member:
        """Take in a process as a member; one that was here before keeps its number."""
        known = self.members.get(offer.uid)
        if known is None:
            number, self.next_number = self.next_number, self.next_number + 1
        else:
            number = known.number
        member = Member(
            uid=offer.uid,
            host=host,
            number=number,
            incarnation=offer.incarnation,
            device=offer.device.name,
            device_index=offer.device.index,
            since=now,
        )
        self.members[offer.uid] = member
        return member

    def heard(self, host: str, now: float) -> None:
        """Note that a host is there."""
        entry = self.hosts.get(host)
        if entry is None:
            self.hosts[host] = Host(name=host, seen_at=now)
        else:
            entry.seen_at = now

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "members": [
                {**dataclasses.asdict(member), "state": member.state.value} for member in self
            ],
            "hosts": [dataclasses.asdict(host) for host in self.hosts.values()],
            "next_number": self.next_number,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Roster:
        """Return the roster that ``to_state`` described."""
        members = [
            Member(**{**item, "state": MemberState(item["state"])}) for item in state["members"]
        ]
        hosts = [Host(**item) for item in state["hosts"]]
        return cls(
            members={member.uid: member for member in members},
            hosts={host.name: host for host in hosts},
            next_number=state["next_number"],
        )
