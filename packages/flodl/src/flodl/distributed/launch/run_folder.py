"""The folder of a run on the host that started it: logs, journal, and how to attach again."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from flodl.core.errors import LaunchError

_RECORD = "run.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """What a launcher must know to attach to a run."""

    run: str
    nonce: str
    address: str
    token: str
    ordinal: int
    controller_pid: int
    host_pid: int


class RunFolder:
    """A folder that only this user can read.

    Args:
        path: The folder; it is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)

    @classmethod
    def default(cls, run: str) -> RunFolder:
        """Return the folder of a run that was given none."""
        return cls(runs_folder() / run)

    @property
    def controller_log(self) -> Path:
        """What the controller printed."""
        return self.path / "logs" / "controller.log"

    def controller_tail(self, lines: int = 30) -> str:
        """Return the last lines that the controller printed."""
        if not self.controller_log.exists():
            return ""
        text = self.controller_log.read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def write_record(self, record: RunRecord) -> None:
        """Write what attaching needs; nobody else can read it."""
        file = self.path / _RECORD
        fresh = file.with_suffix(".tmp")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(asdict(record), stream)
        fresh.replace(file)

    def read_record(self) -> RunRecord:
        """Return what attaching needs.

        Raises:
            LaunchError: There is no such run, or it is over.
        """
        try:
            return RunRecord(**json.loads((self.path / _RECORD).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise LaunchError(
                f"run {self.path.name!r} cannot be attached to: {error}",
                hint=f"runs of this user: {', '.join(known_runs()) or 'none'}",
            ) from error

    def forget(self) -> None:
        """Make the run impossible to attach to."""
        (self.path / _RECORD).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def new_run() -> str:
    """Return the identity of a new run: when it started, and a few letters of chance."""
    return f"{time.strftime('%y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def runs_folder() -> Path:
    """Return the folder of this user's runs.

    Raises:
        LaunchError: It belongs to somebody else, or others can write to it.
    """
    folder = Path(tempfile.gettempdir()) / f"flodl-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        raise LaunchError(
            f"{folder} is not a folder that only this user can use",
            hint=f"remove {folder}, or set TMPDIR to a folder of your own",
        )
    return folder


def known_runs() -> list[str]:
    """Return the runs of this user that can be attached to."""
    return sorted(file.parent.name for file in runs_folder().glob(f"*/{_RECORD}"))
