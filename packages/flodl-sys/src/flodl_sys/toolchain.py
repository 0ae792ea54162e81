"""Says whether this machine can compile the native part.

Read by the build, which decides by it, and by the installed package, which can then tell that a
pure build could be a native one by now.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

COMPILERS = ("c++", "g++", "clang++")


class Toolchain(NamedTuple):
    """What was found: the compiler's path, and why nothing can be compiled if that is so."""

    compiler: str | None
    missing: str | None


def find_toolchain(
    environ: Mapping[str, str] | None = None, include: Path | None = None
) -> Toolchain:
    """Looks for a C++ compiler (``CXX``, else the usual names on ``PATH``) and Python's headers.

    Args:
        environ: Environment to search by; the process's own by default.
        include: Folder that should hold ``Python.h``; that of the running Python by default.
    """
    environ = os.environ if environ is None else environ
    if sys.platform == "win32":
        return Toolchain(None, "the native part is built on Linux and macOS only")
    asked = shlex.split(environ.get("CXX", ""))
    wanted = asked[:1] or COMPILERS
    found = (shutil.which(name, path=environ.get("PATH")) for name in wanted)
    compiler = next((path for path in found if path is not None and _runs(path)), None)
    if compiler is None:
        looked_for = f"CXX={asked[0]}" if asked else ", ".join(COMPILERS)
        return Toolchain(None, f"no C++ compiler found (looked for {looked_for})")
    include = Path(sysconfig.get_path("include")) if include is None else include
    if not (include / "Python.h").is_file():
        return Toolchain(compiler, f"no Python headers found (looked for {include}/Python.h)")
    return Toolchain(compiler, None)


def _runs(compiler: str) -> bool:
    # macOS has a c++ that only offers to install one
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
