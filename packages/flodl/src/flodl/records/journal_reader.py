"""Reading a record log: the newest lines of a node, or a whole run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flodl.core.paths import ROOT, is_record_path, natural_key
from flodl.records.errors import RecordLogError
from flodl.records.journal import META, older_segment, segment_file
from flodl.records.tree import RecordTree

_BLOCK = 64 << 10
_SUFFIX = ".jsonl"


class RecordLogReader:
    """Reads what a :class:`RecordLog` wrote, also while it writes.

    Args:
        folder: The log's folder.

    Raises:
        RecordLogError: There is no record log.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        if not (self.folder / f"{ROOT}{_SUFFIX}").is_file():
            raise RecordLogError(
                f"{str(folder)!r}: there is no record log, which has a {ROOT}{_SUFFIX}",
                hint="give the folder that was given to record_log",
            )

    def paths(self) -> list[str]:
        """Return the record paths in the log, in natural order."""
        names = [
            file.relative_to(self.folder).as_posix().removesuffix(_SUFFIX)
            for file in self.folder.rglob(f"*{_SUFFIX}")
            if not file.is_symlink()
        ]
        return sorted(filter(is_record_path, names), key=natural_key)

    def tail(self, path: str, n: int) -> list[dict[str, Any]]:
        """Return a node's newest ``n`` records, oldest first; reads no more than it needs.

        Raises:
            RecordPathError: ``path`` is none.
        """
        found: list[dict[str, Any]] = []
        file = segment_file(self.folder, path)
        for segment in (file, older_segment(file)):
            if len(found) >= n:
                break
            for line in _lines_backwards(segment):
                record = _parsed(line)
                if record is not None:
                    found.append(record)
                    if len(found) == n:
                        break
        return found[::-1]

    def meta(self) -> dict[str, Any] | None:
        """Return the meta record, ``None`` where there is none."""
        try:
            return _parsed((self.folder / META).read_bytes())
        except OSError:
            return None

    def load(self, *, per_node: int = 1 << 20) -> RecordTree:
        """Return a tree with the log's records, the newest ``per_node`` of each node."""
        tree = RecordTree()
        meta = self.meta()
        records = [] if meta is None else [meta]
        for path in self.paths():
            records += self.tail(path, per_node)
        for record in sorted(records, key=lambda r: int(r["seq"])):
            tree.replay(record)
        return tree


def _lines_backwards(file: Path) -> Iterator[bytes]:
    """Yield a file's complete lines, the last first."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return
    with opened:
        place = opened.seek(0, 2)
        rest = b""
        while place > 0:
            size = min(_BLOCK, place)
            place -= size
            opened.seek(place)
            block = opened.read(size) + rest
            rest, *lines = block.split(b"\n")
            # what follows the last line break is a line that is still being written
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a record, ``None`` for a line that a crash has torn."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "seq" in record and "kind" in record else None
