"""What a run says of its model and its settings, as its handle gives it to a monitor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.monitor.files import write_file
from flodl.records.record import encode_json

if TYPE_CHECKING:
    from flodl.monitor.monitor import Monitor

_NAME = "portrait.json"
_TOLD = ("model", "optimizer", "parameters")


@dataclass(frozen=True, kw_only=True, slots=True)
class Portrait:
    """Identity, picture and settings; those of the model are absent where it is no graph."""

    label: str | None = None
    hash: str | None = None
    svg: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any], settings: Mapping[str, Any]) -> Portrait:
        """Return the portrait of a run.

        Args:
            told: What an introduction of the model holds.
            settings: Settings of the run.
        """
        of_model = {key: told[key] for key in _TOLD if key in told}
        label, identity, svg = (told.get(key) for key in ("label", "hash", "svg"))
        return cls(label=label, hash=identity, svg=svg, settings={**settings, **of_model})

    @classmethod
    def read(cls, folder: Path) -> Portrait | None:
        """Return what :meth:`write` has left in a run's folder, ``None`` before."""
        file = folder / _NAME
        return cls(**json.loads(file.read_bytes())) if file.is_file() else None

    def write(self, folder: Path) -> None:
        """Leave it in a run's folder.

        Raises:
            MonitorExportError: It cannot be written.
        """
        write_file(folder / _NAME, encode_json(dataclasses.asdict(self)))

    def show(self, monitor: Monitor) -> None:
        """Show it in a monitor."""
        if self.hash is not None:
            monitor.set_identity(self.label, self.hash)
        if self.svg is not None:
            monitor.set_svg(self.svg)
        monitor.set_model_metadata(self.settings)
