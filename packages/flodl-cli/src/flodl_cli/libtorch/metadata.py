"""``.arch``: what fdl knows about an installed libtorch, as ``key=value`` lines beside it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

from flodl_cli.errors import LibtorchError

ARCH_FILE = ".arch"
NO_CUDA = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """The known keys of ``.arch``; an empty text is a key that is not there.

    ``archs`` are separated by blanks; ``cuda`` is ``none`` in builds without it; ``abi`` is ``1``
    for the C++11 ABI of libstdc++; ``path`` is where the libraries are when not beside the file.
    """

    cuda: str = ""
    torch: str = ""
    archs: str = ""
    source: str = ""
    variant: str = ""
    rocm: str = ""
    platform: str = ""
    abi: str = ""
    cxx: str = ""
    nccl: str = ""
    url: str = ""
    sha256: str = ""
    verified: str = ""
    path: str = ""
    python: str = ""
    created: str = ""

    @property
    def vendor(self) -> str:
        """``nvidia``, ``amd`` or ``cpu``."""
        if self.rocm:
            return "amd"
        return "nvidia" if self.cuda not in ("", NO_CUDA) else "cpu"

    @property
    def arch_tokens(self) -> tuple[str, ...]:
        """The architectures, without the word that stands for a CPU build."""
        return tuple(each for each in self.archs.split() if each != "cpu")


def read_metadata(directory: Path) -> Metadata:
    """What ``.arch`` in ``directory`` says; unknown keys and comments are left out.

    Raises:
        LibtorchError: There is no such file, or it cannot be read.
    """
    file = directory / ARCH_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LibtorchError(
            f"{file} cannot be read: {error}",
            hint="remove the variant and install it again",
        ) from error
    known = {field.name for field in fields(Metadata)}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return Metadata(
        **{key.strip(): value.strip() for key, _, value in pairs if key.strip() in known}
    )


def write_metadata(directory: Path, metadata: Metadata) -> None:
    """Write ``.arch`` into ``directory``, whole or not at all."""
    pairs = ((field.name, getattr(metadata, field.name)) for field in fields(Metadata))
    replace_text(
        directory / ARCH_FILE, "".join(f"{key}={value}\n" for key, value in pairs if value)
    )


def change_metadata(directory: Path, **changes: str) -> Metadata:
    """Change some keys of ``.arch`` in ``directory`` and return all of them."""
    changed = replace(read_metadata(directory), **changes)
    write_metadata(directory, changed)
    return changed


def replace_text(file: Path, text: str) -> None:
    """Write ``file`` whole or not at all.

    Raises:
        LibtorchError: It cannot be written.
    """
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise LibtorchError(f"{file} cannot be written: {error.strerror}") from error
