"""Names that several parts agree on: files, variables, built-in commands; and near misses."""

from __future__ import annotations

from collections.abc import Iterable

MANIFEST_FILES = ("fdl.yml", "fdl.yaml", "fdl.json")
"""File names of a manifest, in the order they are looked for."""

CACHE_FOLDER = ".fdl"
"""Folder beside a manifest that holds what fdl can rebuild."""

BUILTIN_COMMANDS: dict[str, str] = {
    "libtorch": "Install libtorch, and help tch-rs, C++ and CMake find it",
    "setup": "Get the torch or libtorch that suits this machine",
    "init": "Make a new project",
    "add": "Bring flodl-hf into this project, or try it in a folder of its own",
    "torch": "Show or choose the build of torch that a project uses",
    "diagnose": "Report on this machine: GPUs, torch, libtorch, what does not fit",
    "probe": "Check that this host is ready to train",
    "nccl": "Build the NCCL that other hosts of a run have",
    "install": "Put fdl on your PATH, or see whether a newer one is out",
    "api-ref": "List what flodl offers: classes, functions, signatures",
    "skill": "Hand the guide for porting to flodl to a coding assistant",
    "completions": "Print the completion script of a shell",
    "autocomplete": "Put completion into the start-up file of your shell",
    "schema": "Ask programs for their arguments, for help and checks",
    "config": "Show what the manifests come to, check them, print their schema",
}
"""Name of each built-in command and its line in the help; the module has the same name,
with ``_`` for ``-``."""


COMPLETE = "__complete"
"""First word of the question that completion scripts ask."""

SHELLS = ("bash", "zsh", "fish", "powershell")

SUBCOMMANDS: dict[str, tuple[str, ...]] = {
    "libtorch": (
        "download", "available", "link", "list", "info", "which", "activate", "remove", "prune",
        "env", "flags", "cmake", "run", "verify", "repair", "build",
    ),
    "torch": ("show", "use"),
    "nccl": ("build",),
    "skill": ("list", "install"),
    "config": ("show", "check", "schema"),
    "schema": ("list", "clear", "refresh"),
    "completions": SHELLS,
}  # fmt: skip
"""What may follow a built-in command, for completion, which loads none of them."""


def near(word: str, names: Iterable[str], *, distance: int = 2, limit: int = 3) -> list[str]:
    """The names within ``distance`` edits of ``word``, nearest first, at most ``limit``."""
    scored = [(_edits(word, name), name) for name in names]
    # A two-letter word is two edits away from every other: ask for some letters in common.
    close = [pair for pair in scored if pair[0] <= min(distance, max(len(word), len(pair[1])) // 2)]
    return [name for _, name in sorted(close)[:limit]]


def _edits(a: str, b: str) -> int:
    """Edit distance with neighboring letters swapped counted as one edit."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, char in enumerate(a, start=1):
        current = [i]
        for j, other in enumerate(b, start=1):
            cost = min(row[j] + 1, current[j - 1] + 1, row[j - 1] + (char != other))
            if i > 1 and j > 1 and char == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        before, row = row, current
    return row[-1]
