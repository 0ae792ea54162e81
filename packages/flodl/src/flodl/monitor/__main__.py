"""``python -m flodl.monitor view DIR``: the portal of a run that has ended, from its record log."""

from __future__ import annotations

import argparse
import sys
import threading

from flodl.core.errors import FlodlError
from flodl.core.paths import ROOT
from flodl.monitor.place import announcement, serve_place
from flodl.monitor.serving import open_portal
from flodl.records.board import RunBoard
from flodl.records.journal_reader import RecordLogReader


def logged_board(folder: str) -> RunBoard:
    """Return the board of a logged run.

    Raises:
        RecordLogError: There is no record log.
    """
    reader = RecordLogReader(folder)
    board = RunBoard(reader.load())
    run = board.tree.run
    for record in reader.tail(ROOT, 1 << 20):
        if record.get("epoch_complete"):
            board.add_epoch(
                {
                    "epoch": record["epoch"] + 1,
                    "total": run.get("total_epochs", record["epoch"] + 1),
                    "metrics": record.get("metrics", {}),
                    "resources": {},
                    "gpus": [],
                }
            )
    board.set_facts(label=run.get("label"), hash=run.get("hash"))
    board.finish("done")
    return board


def main(arguments: list[str] | None = None) -> int:
    """Serve a logged run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m flodl.monitor", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    view = commands.add_parser("view", help="serve the portal from a record log")
    view.add_argument("folder", help="folder that was given to record_log")
    view.add_argument("--port", type=int, default=3000)
    given = parser.parse_args(arguments)
    try:
        place = serve_place(given.port)
        portal = open_portal(logged_board(given.folder), place)
    except FlodlError as error:
        print(error, file=sys.stderr)  # noqa: T201 (a command's complaint)
        return 1
    for line in announcement(place, portal.port):
        print(line, flush=True)  # noqa: T201 (a command's answer)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        portal.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
