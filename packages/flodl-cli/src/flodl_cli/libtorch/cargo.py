"""``.cargo/config.toml``: the same settings for cargo, editors and their build servers."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from flodl_cli.errors import LibtorchError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.compiler import link_flags
from flodl_cli.libtorch.environment import own_variables
from flodl_cli.libtorch.metadata import replace_text
from flodl_cli.libtorch.store import Variant

CONFIG_FILE = Path(".cargo") / "config.toml"


def config_text(
    variant: Variant, platform: Platform, before: str = "", *, bypass: bool = False
) -> str:
    """``before`` with the settings for ``variant``; comments and other keys stay as they are.

    Raises:
        LibtorchError: ``before`` is no TOML, or holds something else under these keys.
    """
    try:
        document = tomlkit.parse(before)
        env = _table(document, "env")
        for name, value in own_variables(variant, bypass=bypass).items():
            env[name] = value
        if platform.system != "windows":
            build = _table(document, "build")
            build["rustflags"] = _merged_flags(build.get("rustflags"), variant)
    except (TOMLKitError, TypeError, AttributeError) as error:
        raise LibtorchError(
            f"{CONFIG_FILE} cannot be changed: {error}",
            hint="repair it, or add what `fdl libtorch env --format cargo` prints by hand",
        ) from error
    text: str = tomlkit.dumps(document)
    return text


def config_in(directory: Path) -> str:
    """What ``.cargo/config.toml`` below ``directory`` holds; nothing when it is not there.

    Raises:
        LibtorchError: It cannot be read.
    """
    file = directory / CONFIG_FILE
    try:
        return file.read_text(encoding="utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise LibtorchError(f"{file} cannot be read: {error}") from error


def write_config(directory: Path, text: str) -> Path:
    """Write ``.cargo/config.toml`` below ``directory``, whole or not at all."""
    file = directory / CONFIG_FILE
    try:
        file.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise LibtorchError(f"{file.parent} cannot be made: {error.strerror}") from error
    replace_text(file, text)
    return file


def _table(document: MutableMapping[str, Any], name: str) -> MutableMapping[str, Any]:
    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    if not isinstance(table, MutableMapping):
        raise TypeError(f"{name} is no table")
    return table


def _merged_flags(before: Any, variant: Variant) -> list[str]:
    """The flags that were there, without those for another libtorch, and ours."""
    words = before.split() if isinstance(before, str) else [str(each) for each in before or ()]
    ours = [word for flag in link_flags(variant) for word in ("-C", f"link-arg={flag}")]
    kept: list[str] = []
    for word in words:
        if not _is_for_libtorch(word):
            kept.append(word)
        elif kept[-1:] == ["-C"]:
            kept.pop()
    return [*kept, *ours]


def _is_for_libtorch(word: str) -> bool:
    flag = word.removeprefix("link-arg=")
    return flag != word and (
        flag.startswith(("-ltorch", "-lc10"))
        or flag == "-Wl,--no-as-needed"
        or (flag.startswith(("-L", "-Wl,-rpath,")) and "libtorch" in flag)
    )
