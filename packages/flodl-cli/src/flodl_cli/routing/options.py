"""The options of the built-in commands, for completion, which loads none of the commands."""

from __future__ import annotations

_PLACE = ("--root", "--global")
_ACTIVATE = ("--activate", "--no-activate")
_DEPS = ("--deps", "--no-deps")

OPTIONS: dict[str, tuple[str, ...]] = {
    "libtorch download": (
        "--cpu",
        "--cuda",
        "--rocm",
        "--version",
        "--path",
        *_ACTIVATE,
        "--dry-run",
        "--force",
        "--mirror",
        "--proxy",
        "--sha256",
        *_DEPS,
        "--jobs",
        *_PLACE,
        "--json",
    ),
    "libtorch available": ("--root", "--json"),
    "libtorch link": ("--python", "--prefix", "--name", *_ACTIVATE, *_PLACE),
    "libtorch list": (*_PLACE, "--json"),
    "libtorch info": (*_PLACE, "--json"),
    "libtorch which": _PLACE,
    "libtorch activate": ("--as", *_PLACE),
    "libtorch remove": _PLACE,
    "libtorch prune": _PLACE,
    "libtorch env": (
        "--shell",
        "--format",
        "--unset",
        "--bypass-version-check",
        "--write",
        "--yes",
        *_PLACE,
    ),
    "libtorch flags": ("--cflags", "--libs", *_PLACE),
    "libtorch cmake": ("--out", "--find-package", *_PLACE),
    "libtorch run": ("--bypass-version-check", *_PLACE),
    "libtorch verify": ("--compile", "--gpu", *_PLACE, "--json"),
    "libtorch repair": (*_DEPS, *_PLACE),
    "libtorch build": (
        "--archs",
        "--jobs",
        "--docker",
        "--native",
        "--version",
        "--cuda",
        "--dry-run",
        *_ACTIVATE,
        *_PLACE,
    ),
    "setup": ("--yes", "--non-interactive", "--force"),
    "init": ("--docker", "--native", "--with-hf", "--backend", "--git", "--no-git"),
    "add": ("--playground", "--install"),
    "torch show": ("--json",),
    "torch use": ("--dry-run",),
    "diagnose": ("--json", "--strict"),
    "probe": ("--json", "--skip-mount", "--data-path", "--libtorch-path", "--docker", "--port"),
    "nccl build": ("--tag", "--archs", "--jobs", "--dry-run", *_PLACE),
    "install": ("--check", "--dev"),
    "api-ref": ("--path", "--json"),
    "skill install": ("--tool", "--skill"),
    "autocomplete": ("--remove",),
    "schema list": ("--json",),
    "config show": ("--command", "--json", "--plain", "--all"),
    "config check": ("--all-envs", "--json"),
    "config schema": ("--out",),
}
"""Words of a command, and its options in the order its help shows them."""

OPTION_VALUES: dict[str, tuple[str, ...]] = {
    "--shell": ("sh", "fish", "powershell", "cmd"),
    "--format": ("json", "dotenv", "github", "cargo"),
    "--tool": ("claude", "cursor", "generic"),
}
"""What may stand after an option that takes one of a few words."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "add": ("flodl-hf",),
    "autocomplete": ("bash", "zsh", "fish"),
}
"""What may stand after a command itself that takes one of a few words."""
