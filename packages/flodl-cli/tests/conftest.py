"""A project of manifests in a temporary folder, and fdl run in it as a user would see it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flodl_cli import names
from flodl_cli.__main__ import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


class FdlProject:
    """Manifests below ``root``; ``fdl(...)`` runs one command line there."""

    def __init__(self, root: Path, read: Callable[[], tuple[str, str]]) -> None:
        self.root = root
        self._read = read

    def write(self, name: str, text: str) -> Path:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def manifest(self, text: str) -> Path:
        return self.write("fdl.yml", text)

    def fdl(self, *argv: str) -> Result:
        self._read()
        code = main(argv)
        return Result(code, *self._read())

    def explained(self, *argv: str) -> str:
        """The command line that would be run."""
        result = self.fdl("--explain", *argv)
        assert result.code == 0, result.err
        return result.out.splitlines()[0].removeprefix("command").strip()


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("FDL_", "FLODL_")) or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["pytest"])


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> FdlProject:
    monkeypatch.chdir(tmp_path)

    def read() -> tuple[str, str]:
        captured = capfd.readouterr()
        return captured.out, captured.err

    return FdlProject(tmp_path, read)


@pytest.fixture
def cache_file(tmp_path: Path) -> Path:
    return tmp_path / names.CACHE_FOLDER / "cache" / "tree.json"
