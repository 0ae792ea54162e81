"""``python -m flodl_sys``: says which build is in use."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from flodl_sys import __version__
from flodl_sys.kernels import NativeStatus, status


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the build in use; see ``--upgradable`` for the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m flodl_sys", description="Says which build of flodl-sys is in use."
    )
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    parser.add_argument(
        "--upgradable",
        action="store_true",
        help="exit 0 if this is a pure build that a reinstall would make native, else 1",
    )
    options = parser.parse_args(argv)
    found = status()
    sys.stdout.write(_as_json(found) if options.json else _as_text(found))
    return 1 if options.upgradable and not found.can_upgrade else 0


def _as_json(found: NativeStatus) -> str:
    return json.dumps({"version": __version__, **dataclasses.asdict(found)}) + "\n"


def _as_text(found: NativeStatus) -> str:
    if found.is_native:
        return f"flodl-sys {__version__}: native kernels ({found.isa})\n"
    return (
        f"flodl-sys {__version__}: pure build (the averaging kernels run as torch operations)\n"
        f"why:  {found.reason}\n"
        f"cure: {found.hint}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
