"""``python -m flodl.distributed.hostd``: the host daemon, told what to do by its standard input."""

from __future__ import annotations

import logging
import os
import sys

from flodl.core.errors import LaunchError
from flodl.distributed.hostd.nursery import Nursery, zygote_is_wanted
from flodl.distributed.hostd.options import HostOptions


def main() -> int:
    """Be the daemon; returns the status to exit with."""
    logging.basicConfig(level=logging.WARNING, format="flodl hostd: %(message)s")
    try:
        options = HostOptions.from_json(sys.stdin.readline())
    except LaunchError as error:
        sys.stderr.write(f"flodl hostd: {error}\n")
        return 2
    nursery = Nursery(
        () if options.command is None else options.command.options,
        use_zygote=zygote_is_wanted(),
        environ={**os.environ, **options.environ},
    )
    # its imports take seconds, those of the daemon a part of one: they go on side by side
    nursery.start()
    from flodl.distributed.hostd.daemon import run_daemon
    from flodl.distributed.hostd.machine import machine_of

    return run_daemon(options, machine_of(options), nursery)


if __name__ == "__main__":
    sys.exit(main())
