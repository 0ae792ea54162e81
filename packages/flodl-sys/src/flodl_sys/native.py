"""The only importer of the compiled module ``_core``: loads it on first use.

``native.core`` is that module. Reading it raises `NativeUnavailableError` in a pure build.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from flodl_sys import names
from flodl_sys.errors import NativeUnavailableError
from flodl_sys.toolchain import find_toolchain

if TYPE_CHECKING:
    from flodl_sys import _core as core

__all__ = ["NativeStatus", "core", "status"]

_CORE = "flodl_sys._core"
_REINSTALL = "uv sync --reinstall-package flodl-sys (or pip install --force-reinstall)"


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeStatus:
    """Which build is in use.

    ``isa`` is the instruction set its kernels use; ``reason`` and ``hint`` say why there is no
    native part and how to get it; ``can_upgrade`` means that a reinstall would bring it.
    """

    is_native: bool
    isa: str | None = None
    reason: str | None = None
    hint: str | None = None
    can_upgrade: bool = False


def status() -> NativeStatus:
    """Tells which build is in use; loads the native part to be sure that it works."""
    try:
        module = _load()
    except NativeUnavailableError as error:
        can_upgrade = isinstance(error.__cause__, ModuleNotFoundError) and _could_be_native()
        return NativeStatus(
            is_native=False, reason=error.message, hint=error.hint, can_upgrade=can_upgrade
        )
    return NativeStatus(is_native=True, isa=module.supported_isas()[-1])


def __getattr__(name: str) -> ModuleType:
    if name != "core":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load()


def _load() -> ModuleType:
    try:
        return importlib.import_module(_CORE)
    except ModuleNotFoundError as error:
        if error.name != _CORE:
            raise
        raise NativeUnavailableError(
            f"flodl-sys is installed without its native part: {_why_pure()}", hint=_how_to_get_it()
        ) from error
    except ImportError as error:
        raise NativeUnavailableError(
            f"the native part of flodl-sys does not load: {error}",
            hint=f"build it again for this system: {_REINSTALL}",
        ) from error


def _why_pure() -> str:
    if names.SYS_NATIVE.get() == "0":
        return f"{names.SYS_NATIVE.name}=0 leaves it out"
    missing = find_toolchain().missing
    return missing or "it was left out, or no C++ toolchain was there when it was built"


def _how_to_get_it() -> str:
    if names.SYS_NATIVE.get() == "0":
        return f"unset {names.SYS_NATIVE.name}, then {_REINSTALL}"
    toolchain = find_toolchain()
    if toolchain.missing is None:
        return f"{toolchain.compiler} is here now: {_REINSTALL}"
    return (
        "install a C++ compiler and Python's headers (Debian: apt-get install g++ python3-dev), "
        f"then {_REINSTALL}"
    )


def _could_be_native() -> bool:
    return names.SYS_NATIVE.get() != "0" and find_toolchain().missing is None
