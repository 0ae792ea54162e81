"""SVG through the ``dot`` program of Graphviz, where it is installed."""

from __future__ import annotations

import shutil
import subprocess

from flodl.core.errors import ConfigError, ExportError

_TIMEOUT_S = 10


def has_graphviz() -> bool:
    """Return whether the program is there."""
    return shutil.which("dot") is not None


def graphviz_svg(dot: str) -> str:
    """Return the SVG that Graphviz makes of DOT text.

    Raises:
        ConfigError: It is not installed.
        ExportError: It failed, or took more than 10 seconds.
    """
    program = shutil.which("dot")
    if program is None:
        raise ConfigError(
            "svg(engine='dot'): the program dot is not installed",
            hint="install Graphviz (apt install graphviz, brew install graphviz), or leave out "
            "engine=: the built-in renderer needs nothing",
        )
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=dot,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ExportError(
            f"dot took more than {_TIMEOUT_S} s", hint="use engine='builtin' for large graphs"
        ) from error
    if done.returncode:
        raise ExportError(f"dot failed: {done.stderr.strip()[:300]}")
    return done.stdout
