"""Where the last shared values of a run are that nobody led to its end."""

from __future__ import annotations

from pathlib import Path

_NOTE = "orphan.txt"


def orphan_file(save_path: Path | None, run_dir: Path) -> Path:
    """Return the file that such values go to: beside the checkpoint, else in the run's folder."""
    stem = save_path or run_dir / "model"
    return stem.with_name(f"{stem.name}.orphan.fdl")


def note_orphan(run_dir: Path, file: Path) -> None:
    """Leave word for the launcher that they were saved."""
    (run_dir / _NOTE).write_text(str(file.absolute()))


def noted_orphan(run_dir: Path) -> Path | None:
    """Return the file that was noted, ``None`` where there is none."""
    note = run_dir / _NOTE
    return Path(note.read_text()) if note.is_file() else None
