"""Starts the speed suite, or one beside it: ``loader``, ``dashboard``, ``scaling``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run what the first word names, and return its exit code."""
    words = sys.argv[1:]
    if words[:1] == ["loader"]:
        from ddp_bench.loading.__main__ import main as loader

        return loader(words[1:])
    if words[:1] == ["dashboard"]:
        from ddp_bench.overhead.dashboard import main as dashboard

        return dashboard(words[1:])
    if words[:1] == ["scaling"]:
        from ddp_bench.scaling.__main__ import main as scaling

        return scaling(words[1:])
    from ddp_bench.speed.app import app

    app(prog_name="fdl bench")
    return 0


if __name__ == "__main__":
    sys.exit(main())
