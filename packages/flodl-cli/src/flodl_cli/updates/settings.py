"""The user's settings of the update check, and what it found last, in one small file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

_SECTION = "update_check"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateSettings:
    """What ``config.json`` says about the update check.

    ``last_check`` is in seconds since 1970, and 0 before the first one.
    """

    enabled: bool = True
    last_check: float = 0.0
    latest_known: Mapping[str, str] = field(default_factory=dict)
    first_run_seen: bool = False


def settings_file() -> Path:
    """The file, in the user's folder for configuration."""
    return Path(user_config_path("flodl")) / "config.json"


def read_settings(file: Path) -> UpdateSettings:
    """What the file says; what is missing or broken in it is as by default."""
    section = _read(file).get(_SECTION)
    if not isinstance(section, dict):
        return UpdateSettings()
    known = section.get("latest_known")
    versions = known if isinstance(known, dict) else {}
    last_check = section.get("last_check")
    return UpdateSettings(
        enabled=section.get("enabled") is not False,
        last_check=float(last_check) if isinstance(last_check, int | float) else 0.0,
        latest_known={k: v for k, v in versions.items() if isinstance(v, str)},
        first_run_seen=section.get("first_run_seen") is True,
    )


def change_settings(file: Path, **changes: Any) -> None:
    """Set some fields and leave the rest of the file as it is.

    Raises:
        OSError: It cannot be written.
    """
    settings = replace(read_settings(file), **changes)
    data = _read(file)
    data[_SECTION] = {
        "enabled": settings.enabled,
        "last_check": settings.last_check,
        "latest_known": dict(settings.latest_known),
        "first_run_seen": settings.first_run_seen,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(file)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a broken file counts as an empty one
        return {}
    return data if isinstance(data, dict) else {}
