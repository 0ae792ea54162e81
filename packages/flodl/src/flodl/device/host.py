"""Load and memory of this host, within the limits of the container it may be."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

_CGROUP = Path("sys/fs/cgroup")


class HostProbe:
    """Reads CPU load and memory.

    In a container with a CPU quota, the load is a share of the quota; with a memory limit, the
    limit is the total.

    Args:
        root: Folder that stands for ``/`` when limits are read.
        clock: Seconds; for tests.
    """

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._cgroup = root / _CGROUP
        self._clock = clock
        self._usage = self._cgroup_cpu_seconds()
        self._read_at = clock()
        psutil.cpu_percent(None)

    @property
    def cpu_count(self) -> int:
        """CPUs this process may use, rounded up."""
        quota = self._quota()
        count = psutil.cpu_count() or 1
        return count if quota is None else max(1, min(count, -int(-quota // 1)))

    def cpu_percent(self) -> float:
        """Return the load since the last reading."""
        machine: float = psutil.cpu_percent(None)
        quota, usage, now = self._quota(), self._cgroup_cpu_seconds(), self._clock()
        before, since = self._usage, self._read_at
        self._usage, self._read_at = usage, now
        if quota is None or usage is None or before is None or now <= since:
            return machine
        return min(100.0, 100.0 * (usage - before) / (now - since) / quota)

    def memory(self) -> tuple[int, int]:
        """Return used and total bytes."""
        machine = psutil.virtual_memory()
        limit = self._number("memory.max")
        if limit is None or limit >= machine.total:
            return int(machine.total - machine.available), int(machine.total)
        used = self._number("memory.current") or 0
        # pages of files that the kernel can drop at once are no use of memory
        return max(0, used - self._statistic("memory.stat", "inactive_file")), limit

    def _quota(self) -> float | None:
        text = self._text("cpu.max")
        if text is None:
            return None
        quota, _, period = text.partition(" ")
        if not (quota.isdecimal() and period.strip().isdecimal()):
            return None
        return int(quota) / int(period)

    def _cgroup_cpu_seconds(self) -> float | None:
        used = self._statistic("cpu.stat", "usage_usec")
        return used / 1e6 if used else None

    def _statistic(self, file: str, name: str) -> int:
        for line in (self._text(file) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdecimal():
                return int(value)
        return 0

    def _number(self, file: str) -> int | None:
        text = (self._text(file) or "").strip()
        return int(text) if text.isdecimal() else None

    def _text(self, file: str) -> str | None:
        try:
            return (self._cgroup / file).read_text()
        except OSError:
            return None
