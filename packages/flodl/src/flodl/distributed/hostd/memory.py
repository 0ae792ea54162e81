"""Whether the system ended a process because memory ran out."""

from __future__ import annotations

from pathlib import Path

_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_COUNTERS = frozenset({"oom_kill"})


class OomWatch:
    """Counts what the kernel has ended for want of memory in this process's group.

    Args:
        files: Where the kernel tells it; the first that can be read counts.
    """

    def __init__(self, files: tuple[str, ...] = _EVENTS) -> None:
        self._files = tuple(map(Path, files))
        self._count = self._read()

    def has_killed(self) -> bool:
        """Return whether there was one since the last call."""
        before, self._count = self._count, self._read()
        return self._count > before

    def _read(self) -> int:
        for file in self._files:
            try:
                lines = file.read_text().splitlines()
            except OSError:
                continue
            words = [line.split() for line in lines]
            return sum(int(w[1]) for w in words if len(w) == 2 and w[0] in _COUNTERS)
        return 0
