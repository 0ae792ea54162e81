"""The variables with which tch-rs, C++ and CMake find a libtorch, in every spelling."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from flodl_cli.errors import UsageError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.store import Variant

BYPASS = "LIBTORCH_BYPASS_VERSION_CHECK"
SHELLS = ("sh", "fish", "powershell", "cmd")
FORMATS = ("json", "dotenv", "github", "cargo")

_LOADER_PATHS = {"linux": "LD_LIBRARY_PATH", "macos": "DYLD_LIBRARY_PATH", "windows": "PATH"}
_ROCM_VARIABLES = ("ROCM_PATH", "HIP_PATH")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")


def own_variables(variant: Variant, *, bypass: bool = False) -> dict[str, str]:
    """The variables that name the variant, the loader's path apart.

    ``LIBTORCH_INCLUDE`` and ``LIBTORCH_LIB`` are not among them: they are roots to which build
    scripts add ``include`` and ``lib`` themselves.
    """
    found = {
        "LIBTORCH": str(variant.prefix),
        "LIBTORCH_CXX11_ABI": variant.metadata.abi or "1",
        "CMAKE_PREFIX_PATH": str(variant.prefix),
    }
    return found | ({BYPASS: "1"} if bypass else {})


def loader_variable(platform: Platform) -> str:
    """Name of the variable that the loader searches."""
    return _LOADER_PATHS[platform.system]


def loader_folders(variant: Variant, environ: Mapping[str, str]) -> list[str]:
    """Folders that the loader has to search: the system's ROCm, if it is one, then the variant."""
    folders = [str(variant.lib)]
    if variant.metadata.vendor == "amd":
        named = (environ.get(name) for name in _ROCM_VARIABLES)
        rocm = next((path for path in named if path), "/opt/rocm")
        folders.insert(0, str(Path(rocm) / "lib"))
    return folders


def loader_environment(
    variant: Variant, platform: Platform, environ: Mapping[str, str], *, bypass: bool = False
) -> dict[str, str]:
    """``environ`` with everything that a program needs to build with and run on the variant."""
    name = loader_variable(platform)
    separator = ";" if platform.system == "windows" else ":"
    before = [environ[name]] if environ.get(name) else []
    path = separator.join((*loader_folders(variant, environ), *before))
    return {**environ, **own_variables(variant, bypass=bypass), name: path}


def shell_lines(
    variant: Variant,
    platform: Platform,
    environ: Mapping[str, str],
    shell: str,
    *,
    bypass: bool = False,
) -> str:
    """Lines for a shell to evaluate; what the loader's path holds already is kept behind."""
    values = own_variables(variant, bypass=bypass)
    loader = loader_variable(platform)
    folders = loader_folders(variant, environ)
    lines = [_SET[shell](name, value) for name, value in values.items()]
    lines.append(_prepend(shell, loader, folders))
    return "\n".join(lines) + "\n"


def unset_lines(
    variant: Variant, platform: Platform, environ: Mapping[str, str], shell: str
) -> str:
    """Lines that take back what `shell_lines` did, as far as ``environ`` shows it."""
    loader = loader_variable(platform)
    separator = ";" if platform.system == "windows" else ":"
    folders = loader_folders(variant, environ)
    kept = [each for each in environ.get(loader, "").split(separator) if each not in folders]
    lines = [_UNSET[shell](name) for name in (*own_variables(variant), BYPASS)]
    left = separator.join(each for each in kept if each)
    lines.append(_SET[shell](loader, left) if left else _UNSET[shell](loader))
    return "\n".join(lines) + "\n"


def json_text(
    variant: Variant, platform: Platform, environ: Mapping[str, str], *, bypass: bool
) -> str:
    """The variables as one JSON object; the loader's path is a list of folders to prepend."""
    values: dict[str, object] = {
        **own_variables(variant, bypass=bypass),
        loader_variable(platform): loader_folders(variant, environ),
    }
    return json.dumps(values, indent=2)


def dotenv_text(
    variant: Variant, platform: Platform, environ: Mapping[str, str], *, bypass: bool
) -> str:
    """``NAME=value`` lines with whole values, since nothing expands them."""
    whole = loader_environment(variant, platform, environ, bypass=bypass)
    names = (*own_variables(variant, bypass=bypass), loader_variable(platform))
    return "".join(f"{name}={_quoted(whole[name])}\n" for name in names)


def append_github(
    variant: Variant, platform: Platform, environ: Mapping[str, str], *, bypass: bool
) -> Path:
    """Append the variables to the file that ``$GITHUB_ENV`` names, and return that file.

    Raises:
        UsageError: The variable is not set.
    """
    named = environ.get("GITHUB_ENV")
    if not named:
        raise UsageError(
            "--format github: $GITHUB_ENV is not set", hint="it is, inside a GitHub workflow"
        )
    whole = loader_environment(variant, platform, environ, bypass=bypass)
    names = (*own_variables(variant, bypass=bypass), loader_variable(platform))
    file = Path(named)
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(f"{name}={whole[name]}{os.linesep}" for name in names)
    return file


def _prepend(shell: str, name: str, folders: list[str]) -> str:
    """A line that puts ``folders`` first; an empty old value leaves no empty entry behind."""
    match shell:
        case "fish":
            words = " ".join(_fish(folder) for folder in folders)
            return f"set -gx --path {name} {words} ${name}"
        case "powershell":
            text = _powershell(";".join(folders) if name == "PATH" else ":".join(folders))
            split = ";" if name == "PATH" else ":"
            return f"$env:{name} = {text} + $(if ($env:{name}) {{ '{split}' + $env:{name} }})"
        case "cmd":
            return f'set "{name}={";".join(folders)};%{name}%"'
        case _:
            joined = shlex.quote(":".join(folders))
            return f"export {name}={joined}${{{name}:+:${name}}}"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


_SET = {
    "sh": lambda name, value: f"export {name}={shlex.quote(value)}",
    "fish": lambda name, value: f"set -gx {name} {_fish(value)}",
    "powershell": lambda name, value: f"$env:{name} = {_powershell(value)}",
    "cmd": lambda name, value: f'set "{name}={value}"',
}
_UNSET = {
    "sh": lambda name: f"unset {name}",
    "fish": lambda name: f"set -e {name}",
    "powershell": lambda name: f"Remove-Item -ErrorAction Ignore Env:{name}",
    "cmd": lambda name: f'set "{name}="',
}
