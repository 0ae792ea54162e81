"""Seeds one fault at a time in a copy of the tree, and checks that the right gate fails on it.

A gate that cannot fail proves nothing. Usage: ``python .ci/seeded_faults.py [NAME ...]``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNITS = "packages/flodl/src/flodl/core/units.py"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change that must make one command fail, and the words it must fail with."""

    name: str
    path: str
    change: Callable[[str], str]
    command: tuple[str, ...]
    words: str


def append(text: str) -> Callable[[str], str]:
    """Return a change that adds text at the end."""
    return lambda before: before + text


def swap(old: str, new: str) -> Callable[[str], str]:
    """Return a change that replaces text which must be there."""

    def change(before: str) -> str:
        if old not in before:
            raise LookupError(f"the text to replace is gone: {old!r}")
        return before.replace(old, new, 1)

    return change


def nox(session: str, *arguments: str) -> tuple[str, ...]:
    """Return the command of one session."""
    return ("nox", "-s", session, *(("--", *arguments) if arguments else ()))


FAULTS = [
    Fault(
        name="lint: an unused import",
        path=UNITS,
        change=append("\nimport json\n"),
        command=nox("lint"),
        words="F401",
    ),
    Fault(
        name="lint: a badly formatted line",
        path=UNITS,
        change=append("\n\nLIMIT = {'a':1}\n"),
        command=nox("lint"),
        words="would be reformatted",
    ),
    Fault(
        name="lint: an unquoted word in the bootstrap",
        path="fdl",
        change=append("\nrm $1\n"),
        command=nox("lint"),
        words="SC2086",
    ),
    Fault(
        name="types: a wrong annotation",
        path=UNITS,
        change=append('\n\nLIMIT: int = "many"\n'),
        command=nox("types"),
        words="Incompatible types in assignment",
    ),
    Fault(
        name="types: a file that is left out",
        path="pyproject.toml",
        change=swap("[tool.mypy]\n", '[tool.mypy]\nexclude = "ddp_bench/__main__"\n'),
        command=nox("types"),
        words="leave some out",
    ),
    Fault(
        name="imports: a module that imports from above",
        path=UNITS,
        change=append("\n\nfrom flodl import trainer\n"),
        command=nox("imports"),
        words="flodl.core is not allowed to import flodl.trainer",
    ),
    Fault(
        name="imports: a folder that no layer names",
        path="packages/flodl/src/flodl/helpers/__init__.py",
        change=append('"""Things."""\n'),
        command=nox("imports"),
        words="flodl.helpers",
    ),
    Fault(
        name="imports: fdl reaching for torch",
        path="packages/flodl-cli/src/flodl_cli/errors.py",
        change=append("\n\nimport torch\n"),
        command=nox("imports"),
        words="flodl_cli is not allowed to import torch",
    ),
    Fault(
        name="tests: a wrong result",
        path=UNITS,
        change=swap("value /= 1024", "value /= 1000"),
        command=nox("tests", "packages/flodl/tests/core/test_units.py"),
        words="failed",
    ),
    Fault(
        name="tests: a warning",
        path=UNITS,
        change=append('\n\nimport warnings\nwarnings.warn("soon gone", DeprecationWarning)\n'),
        command=nox("tests", "packages/flodl/tests/core/test_units.py"),
        words="soon gone",
    ),
    Fault(
        name="tests: an unknown marker",
        path="packages/flodl/tests/core/test_units.py",
        change=append("\n\n@pytest.mark.wishful\ndef test_nothing():\n    pass\n"),
        command=nox("tests", "packages/flodl/tests/core/test_units.py"),
        words="'wishful' not found in `markers`",
    ),
    Fault(
        name="tests: a README example that does not run",
        path="README.md",
        change=swap("(FlowBuilder(nn.Flatten())", "(FlowBuilder(nn.Flatten)"),
        command=nox("tests", "packages/flodl/tests/docs/test_examples.py", "-k", "README"),
        words="FlowError",
    ),
    Fault(
        name="docs: a broken link",
        path="docs/index.md",
        change=append("\n[gone](tutorials/99-gone.md)\n"),
        command=nox("docs"),
        words="tutorials/99-gone.md",
    ),
    Fault(
        name="docs: a name that does not exist",
        path="docs/reference/api.md",
        change=append("\n::: flodl.graph.NoSuchName\n"),
        command=nox("docs"),
        words="NoSuchName",
    ),
    Fault(
        name="wheels: an import that is not declared",
        path="packages/flodl-cli/pyproject.toml",
        change=swap('    "typer', '    #"typer'),
        command=nox("wheels", "flodl-cli"),
        words="No module named 'typer'",
    ),
    Fault(
        name="native: a C++ mistake",
        path="packages/flodl-sys/cpp/module.cpp",
        change=append("\nthis is not C++;\n"),
        command=("uv", "build", "--package", "flodl-sys", "--wheel", "-o", "dist-fault"),
        words="error:",
    ),
]


def main(wanted: list[str]) -> int:
    """Run the chosen faults (all unless names are given) and report each."""
    chosen = [fault for fault in FAULTS if not wanted or any(w in fault.name for w in wanted)]
    caught = 0
    with tempfile.TemporaryDirectory(prefix="flodl-faults-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        for fault in chosen:
            started = time.monotonic()
            problem = try_fault(fault, tree)
            caught += problem is None
            state = "caught" if problem is None else "MISSED"
            print(f"{state}  {time.monotonic() - started:4.0f}s  {fault.name}", flush=True)
            if problem is not None:
                print(problem)
    print(f"{caught} of {len(chosen)} seeded faults were caught")
    return 0 if chosen and caught == len(chosen) else 1


def copy_tree(target: Path) -> None:
    """Copy what git knows of, and what it would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def try_fault(fault: Fault, tree: Path) -> str | None:
    """Return what went wrong with catching the fault, or ``None``."""
    path = tree / fault.path
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(fault.change(before or ""))
    try:
        done = subprocess.run(
            fault.command,
            cwd=tree,
            env=environment(tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        if before is None:
            shutil.rmtree(path.parent)
        else:
            path.write_text(before)
    if done.returncode == 0:
        return f"{' '.join(fault.command)} passed"
    if fault.words not in done.stdout:
        return f"it failed without {fault.words!r}:\n{done.stdout[-3000:]}"
    return None


def environment(tree: Path) -> dict[str, str]:
    """Return an environment in which the copy's sources come before the installed ones."""
    sources = [*sorted(tree.glob("packages/*/src")), tree / "ddp-bench" / "src"]
    sources = [source for source in sources if "flodl-sys" not in str(source)]
    return {
        **{name: value for name, value in os.environ.items() if name != "FLODL_SYS_NATIVE"},
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
