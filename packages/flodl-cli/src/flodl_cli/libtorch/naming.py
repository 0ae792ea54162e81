"""What a variant is called: its build, its platform, and its version where two would clash."""

from __future__ import annotations

from collections.abc import Callable

from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.metadata import Metadata
from flodl_cli.libtorch.store import Store

_ENDINGS = {
    Platform.LINUX_X86_64: "",
    Platform.LINUX_AARCH64: "-aarch64",
    Platform.MACOS_ARM64: "-macos",
    Platform.MACOS_X86_64: "-macos",
    Platform.WINDOWS_X86_64: "-win",
    Platform.WINDOWS_ARM64: "-win",
}


def build_name(bucket: str, platform: Platform) -> str:
    """The name of a build, such as ``cu130`` or ``cpu-macos``."""
    return bucket.replace(".", "") + _ENDINGS[platform]


def free_id(
    store: Store, kind: str, name: str, version: str, is_same: Callable[[Metadata], bool]
) -> str:
    """The id for a variant ``name``: with its version when another one has the plain name.

    A variant for which ``is_same`` holds is the one that would be replaced, not another one.
    """
    taken = {each.id: each.metadata for each in store.variants()}
    plain = f"{kind}/{name}"
    if plain not in taken or is_same(taken[plain]):
        return plain
    return f"{plain}-{version}"
