"""Record paths: where a rank's records live in the tree of a run, and who may say so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flodl.core.errors import ConfigError

ROOT = "root"
MAX_DEPTH = 8
MAX_BYTES = 512

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_PATH = re.compile(rf"root(?:/{_SEGMENT}){{0,{MAX_DEPTH - 1}}}")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_DIGITS = re.compile(r"(\d+)")


class RecordPathError(ConfigError):
    """A text is no record path."""


def is_record_path(text: str) -> bool:
    """Return whether ``text`` is ``root`` or a path of up to seven segments below it."""
    return len(text) <= MAX_BYTES and _PATH.fullmatch(text) is not None


def check_record_path(text: str) -> str:
    """Return ``text`` if it is a record path.

    Raises:
        RecordPathError: It is not.
    """
    if not is_record_path(text):
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise RecordPathError(
            f"record path {shown!r}: must be 'root', or 'root/...' with at most "
            f"{MAX_DEPTH - 1} segments of letters, digits, '.', '_' and '-', "
            f"and at most {MAX_BYTES} characters"
        )
    return text


def parent_path(path: str) -> str | None:
    """Return the path one level up, ``None`` for the root."""
    above, slash, _ = path.rpartition("/")
    return above if slash else None


def is_within(scope: str, path: str) -> bool:
    """Return whether ``path`` is ``scope`` or below it, by whole segments."""
    return path == scope or path.startswith(f"{scope}/")


def natural_key(path: str) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """Return a sort key that puts ``rank2`` before ``rank10`` and a parent before its children."""
    return tuple(
        tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)
        for parts in (_DIGITS.split(segment) for segment in path.split("/"))
    )


def segment_of(name: str) -> str:
    """Return a host name as a path segment: foreign characters become ``-``."""
    cleaned = _FOREIGN.sub("-", name).lstrip("._-")
    return cleaned[:64] or "host"


class RecordTier:
    """Gives each member of a run its record path; the one place where the tree's shape is decided.

    One rank on one host is the root itself. Several ranks of one host are ``root/rankN``, ranks
    of several hosts ``root/<host>/rankN``. The shape is fixed when the run starts; members that
    join later are placed by it.

    Args:
        hosts: Host name of each member at the start.
        clustered: Whether the run comes from a cluster document, which gives it the host tier
            even while one host is all there is.
        elastic: Whether more members may join, which keeps one rank from being the root.

    Examples:
        >>> tier = RecordTier(["alpha", "beta", "beta"])
        >>> tier.path(2, "beta")
        'root/beta/rank2'
    """

    def __init__(
        self, hosts: Sequence[str], *, clustered: bool = False, elastic: bool = False
    ) -> None:
        self.has_hosts = clustered or len(set(hosts)) > 1
        self.has_ranks = self.has_hosts or elastic or len(hosts) > 1
        self._segments: dict[str, str] = {}
        for host in hosts:
            self._segment(host)

    def path(self, member: int, host: str) -> str:
        """Return the path of the member of this number on this host."""
        if not self.has_ranks:
            return ROOT
        if not self.has_hosts:
            return f"{ROOT}/rank{member}"
        return f"{ROOT}/{self._segment(host)}/rank{member}"

    def host_path(self, host: str) -> str:
        """Return the path of the node that stands for a host: the root without a host tier."""
        return f"{ROOT}/{self._segment(host)}" if self.has_hosts else ROOT

    def _segment(self, host: str) -> str:
        known = self._segments.get(host)
        if known is None:
            known = _first_free(segment_of(host), set(self._segments.values()))
            self._segments[host] = known
        return known


def device_path(index: int) -> str:
    """Return the path of one device of a single process that drives several."""
    return f"{ROOT}/gpu{index}"


def _first_free(wanted: str, taken: set[str]) -> str:
    candidate, number = wanted, 1
    while candidate in taken:
        number += 1
        suffix = f"-{number}"
        candidate = f"{wanted[: 64 - len(suffix)]}{suffix}"
    return candidate
