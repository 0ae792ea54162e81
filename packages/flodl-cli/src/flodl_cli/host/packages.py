"""Asks for and installs Python packages through the client that the user has configured."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_cli.errors import FdlError
from flodl_cli.host.process import Answer, ask

_NEWEST = re.compile(r"\S+ \(([^)]+)\)")  # first line of `pip index versions`
_ERROR = "ERROR:"  # what pip puts before it
_TORCH_WHEELS = "https://download.pytorch.org/whl"


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version, with the digests that the index tells of its files."""

    name: str
    version: str
    digests: tuple[str, ...]

    @property
    def line(self) -> str:
        """The pin as a line of a requirements file."""
        return " ".join((f"{self.name}=={self.version}", *(f"--hash={d}" for d in self.digests)))


class PackageClient:
    """uv or pip, whichever is there; both follow the user's own settings for index and proxy.

    Args:
        program: Words that start it: ``uv pip``, or ``python -m pip``.
        is_uv: Whether it is uv, whose options are spelled otherwise.
        jobs: Files that it fetches at a time; its own choice when ``None``. pip fetches one.
    """

    def __init__(self, program: Sequence[str], *, is_uv: bool, jobs: int | None = None) -> None:
        self._program = tuple(program)
        self._is_uv = is_uv
        self._environment = None
        if jobs is not None and is_uv:
            self._environment = {**os.environ, "UV_CONCURRENT_DOWNLOADS": str(jobs)}
        self.ignores_jobs = jobs is not None and jobs > 1 and not is_uv

    def resolve(self, requirement: str, backend: str, workspace: Path) -> list[Pin]:
        """What ``requirement`` and all it depends on come to, for a torch backend like ``cu130``.

        Raises:
            FdlError: The client cannot say.
        """
        if self._is_uv:
            answer = self._ask(
                "compile", "-", "--generate-hashes", "--no-header", "--no-annotate", "--quiet",
                "--torch-backend", backend, words=requirement,
            )  # fmt: skip
            return _pins_of_requirements(answer.out)
        report = workspace / "report.json"
        self._ask(
            "install", "--dry-run", "--quiet", "--ignore-installed", "--report", str(report),
            "--extra-index-url", f"{_TORCH_WHEELS}/{backend}", requirement,
        )  # fmt: skip
        return _pins_of_report(json.loads(report.read_text(encoding="utf-8")))

    def install(self, pins: Sequence[Pin], target: Path, backend: str, workspace: Path) -> None:
        """Put exactly ``pins``, whose digests are checked, into the folder ``target``.

        Raises:
            FdlError: The client cannot, or a file is not the one that the index told of.
        """
        listing = workspace / "requirements.txt"
        listing.write_text("".join(f"{pin.line}\n" for pin in pins), encoding="utf-8")
        source = (
            ("--torch-backend", backend)
            if self._is_uv
            else ("--extra-index-url", f"{_TORCH_WHEELS}/{backend}")
        )
        self._ask(
            "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:",
            "--target", str(target), *source, "-r", str(listing),
        )  # fmt: skip

    def newest(self, name: str, *, limit_s: float | None = None) -> str:
        """The newest stable version of ``name`` that the user's index offers for this Python.

        Raises:
            FdlError: The client cannot say, or takes longer than ``limit_s``.
        """
        if self._is_uv:
            answer = self._ask(
                "compile", "-", "--no-deps", "--no-header", "--no-annotate", "--quiet",
                words=name, limit_s=limit_s,
            )  # fmt: skip
            pins = _pins_of_requirements(answer.out)
            version = pins[0].version if pins else None
        else:
            answer = self._ask("index", "versions", name, limit_s=limit_s)
            match = _NEWEST.match(answer.out)
            version = match[1] if match is not None else None
        if version is None:
            raise FdlError(f"{' '.join(self._program)} told no version of {name}: {answer.out!r}")
        return version

    def _ask(self, *options: str, words: str | None = None, limit_s: float | None = None) -> Answer:
        answer = ask(
            [*self._program, *options], env=self._environment, words=words, limit_s=limit_s
        )
        if answer.code != 0:
            raise FdlError(
                f"{' '.join(self._program)} {options[0]} failed: {reason_of(answer)}",
                hint="what it says is about its index, its proxy or the network",
            )
        return answer


def package_client(jobs: int | None = None) -> PackageClient:
    """The client on this machine: uv, else pip.

    Args:
        jobs: Files that it fetches at a time; its own choice when ``None``.

    Raises:
        FdlError: There is neither.
    """
    uv = shutil.which("uv")
    if uv is not None:
        return PackageClient((uv, "pip"), is_uv=True, jobs=jobs)
    pip = shutil.which("pip3") or shutil.which("pip")
    if pip is not None:
        return PackageClient((pip,), is_uv=False, jobs=jobs)
    if ask([sys.executable, "-m", "pip", "--version"]).code == 0:
        return PackageClient((sys.executable, "-m", "pip"), is_uv=False, jobs=jobs)
    raise FdlError(
        "neither uv nor pip is on PATH, and one of them is needed to fetch packages",
        hint="install uv: https://docs.astral.sh/uv/getting-started/installation/",
    )


def reason_of(answer: Answer) -> str:
    """Why a client failed, in its own words: its errors, without warnings where it has both."""
    lines = (answer.err.strip() or answer.out.strip()).splitlines()
    errors = [line[len(_ERROR) :].strip() for line in lines if line.startswith(_ERROR)]
    return "; ".join(errors) or "\n".join(lines) or "it gave no reason"


def _pins_of_requirements(text: str) -> list[Pin]:
    pins = []
    for entry in text.replace("\\\n", " ").splitlines():
        words = entry.split()
        name, is_pin, version = (words or [""])[0].partition("==")
        if is_pin and not name.startswith("#"):
            digests = (word for word in words if word.startswith("--hash="))
            pins.append(Pin(name, version, tuple(each.removeprefix("--hash=") for each in digests)))
    return pins


def _pins_of_report(report: Mapping[str, Any]) -> list[Pin]:
    pins = []
    for entry in report["install"]:
        hashes = entry["download_info"].get("archive_info", {}).get("hashes", {})
        digests = tuple(f"{kind}:{value}" for kind, value in hashes.items())
        pins.append(Pin(entry["metadata"]["name"], entry["metadata"]["version"], digests))
    return pins
