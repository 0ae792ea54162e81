"""Registers a libtorch that is already on the machine: in a torch wheel, in conda, in a system."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import LaunchError, LibtorchError
from flodl_cli.host.platform import Platform
from flodl_cli.host.process import ask
from flodl_cli.libtorch.examine import TorchVersion, facts, library, torch_version
from flodl_cli.libtorch.install import staged
from flodl_cli.libtorch.metadata import Metadata, write_metadata
from flodl_cli.libtorch.naming import build_name, free_id
from flodl_cli.libtorch.store import Store, Variant, check_id
from flodl_cli.terminal import listed

_PARTS = ("lib", "include", "share")
_LIMIT_S = 20.0
_LOCATE = (
    "import importlib.util as u; s = u.find_spec('torch'); "
    "print(s.origin if s and s.origin else '')"
)
"""Finds torch without importing it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A libtorch on this machine; ``python`` is the interpreter that has it, if one does."""

    prefix: Path
    version: TorchVersion
    python: str = ""

    @property
    def kind(self) -> str:
        """The folder that its variant goes to."""
        return "wheel" if self.python else "linked"


def find_wheel(python: str) -> Found | None:
    """The torch wheel of the interpreter ``python``, or ``None`` when it has none.

    Raises:
        LaunchError: The interpreter cannot be run.
    """
    answer = ask([python, "-I", "-c", _LOCATE], limit_s=_LIMIT_S)
    origin = answer.out.strip()
    if answer.code != 0 or not origin:
        return None
    prefix = Path(origin).parent
    version = torch_version(prefix)
    if version is None or library(prefix / "lib", "torch") is None:
        return None
    return Found(prefix=prefix, version=version, python=python)


def find_prefix(prefix: Path) -> Found:
    """The libtorch in the folder ``prefix``.

    Raises:
        LibtorchError: There is none, or nothing there tells its version.
    """
    prefix = prefix.absolute()
    if library(prefix / "lib", "torch") is None or not (prefix / "include").is_dir():
        raise LibtorchError(
            f"{prefix} is no libtorch: it lacks lib/libtorch or include",
            hint="name the folder that holds both lib and include",
        )
    version = torch_version(prefix)
    if version is None:
        raise LibtorchError(
            f"nothing in {prefix} tells its version: no version.py, build-version or "
            "share/cmake/Torch/TorchConfigVersion.cmake",
            hint=f"write the version, such as 2.13.0+cpu, into {prefix}/build-version",
        )
    return Found(prefix=prefix, version=version)


def search(directory: Path, environ: Mapping[str, str]) -> Found:
    """The first libtorch of the active environment, ``.venv``, conda, and ``python3``.

    Raises:
        LibtorchError: There is none; the message says where it was looked for.
    """
    tried: list[str] = []
    for python in _interpreters(directory, environ):
        tried.append(python)
        try:
            found = find_wheel(python)
        except LaunchError:
            continue
        if found is not None:
            return found
    conda = environ.get("CONDA_PREFIX")
    if conda:
        tried.append(conda)
        if library(Path(conda) / "lib", "torch") is not None:
            return find_prefix(Path(conda))
    raise LibtorchError(
        f"no installed torch was found; looked in: {listed(tried)}",
        hint="activate the environment that has it, or name it: --python PROGRAM or --prefix DIR",
    )


def link(store: Store, found: Found, platform: Platform, *, name: str | None = None) -> Variant:
    """Register ``found`` as a variant: links to its folders, nothing copied.

    Raises:
        LibtorchError: The variant cannot be written.
    """
    variant_id = f"{found.kind}/{name}"
    if name is None:
        variant_id = free_id(
            store,
            found.kind,
            build_name(found.version.bucket, platform),
            found.version.version,
            lambda other: other.path == str(found.prefix) or other.torch == found.version.version,
        )
    check_id(variant_id)
    with store.locked(), staged(store.root / variant_id) as folder:
        if platform.system != "windows":  # links take rights there that users lack
            for part in _PARTS:
                if (found.prefix / part).is_dir():
                    (folder / part).symlink_to(found.prefix / part)
        (folder / "build-version").write_text(_build_version(found.version), encoding="utf-8")
        write_metadata(
            folder,
            Metadata(
                **{
                    **facts(found.prefix),
                    "source": found.kind,
                    "variant": found.version.bucket,
                    "platform": platform,
                    "verified": "yes",
                    "path": str(found.prefix),
                    "python": found.python,
                    "created": now(),
                }
            ),
        )
    return store.variant(variant_id)


def stale_reason(variant: Variant) -> str | None:
    """Why the variant is no longer what was linked, or ``None`` when it still is."""
    metadata = variant.metadata
    if metadata.source not in ("wheel", "linked") or not metadata.path:
        return None
    prefix = Path(metadata.path)
    if library(prefix / "lib", "torch") is None:
        return f"{prefix} is gone"
    version = torch_version(prefix)
    if version is not None and version.version != metadata.torch:
        return f"{prefix} is now torch {version.version}"
    return None


def now() -> str:
    """This moment in UTC, as ``.arch`` notes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _interpreters(directory: Path, environ: Mapping[str, str]) -> Iterator[str]:
    program = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
    for folder in (
        environ.get("VIRTUAL_ENV"),
        str(directory / ".venv"),
        environ.get("CONDA_PREFIX"),
    ):
        if folder and Path(folder, *program).exists():
            yield str(Path(folder, *program))
    yield "python3"


def _build_version(version: TorchVersion) -> str:
    tag = f"rocm{version.rocm}" if version.rocm else version.bucket
    return f"{version.version}+{tag}\n"
