"""Starts the program; Ctrl-C is answered in one line from the first moment on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from ddp_bench.app import app
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was started\n")
        sys.exit(130)
    app(prog_name="ddp-bench")


if __name__ == "__main__":
    main()
