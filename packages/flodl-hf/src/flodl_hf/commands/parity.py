"""``parity``: reference files of the cells, written anew."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flodl_hf.commands.command import DONE, FAILED, MisuseError, command, show

_ALL = "all"


def add_to(commands: Any) -> None:
    """Add ``parity``."""
    parser = command(commands, "parity", "write what transformers computes for a cell", _parity)
    parser.add_argument("cell", metavar="CELL", help="such as bert-qa, or all")
    parser.add_argument("--offline", action="store_true", help="seeded tiny models, no network")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("parity"),
        metavar="DIR",
        help="where to write; parity if left out",
    )


def _parity(args: argparse.Namespace) -> int:
    from flodl_hf.verify.cells import all_cells
    from flodl_hf.verify.reference import write_parity

    cells = {cell.name: cell for cell in all_cells()}
    if args.cell != _ALL and args.cell not in cells:
        raise MisuseError(f"no cell {args.cell!r}; there are {', '.join(cells)}, and {_ALL}")
    chosen = cells.values() if args.cell == _ALL else [cells[args.cell]]
    written = [write_parity(cell, args.out, offline=args.offline) for cell in chosen]
    value = [
        {
            "cell": each.cell.name,
            "file": str(each.file),
            "difference": each.difference,
            "passed": each.passed,
        }
        for each in written
    ]
    lines = [
        f"{'PASS' if each.passed else 'FAIL'} {each.file} flodl differs by {each.difference:.1e}"
        for each in written
    ]
    show(args, value, lines)
    return DONE if all(each.passed for each in written) else FAILED
