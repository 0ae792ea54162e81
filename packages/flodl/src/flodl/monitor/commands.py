"""What can be set about a shown run from elsewhere, as plain values that can be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.core.errors import ConfigError
from flodl.monitor.saved_page import SavedPage
from flodl.web.svg import safe_svg

if TYPE_CHECKING:
    from flodl.monitor.plane import RunPlane

Command = Mapping[str, Any]
SendFn = Callable[[Command], object]


def apply_command(plane: RunPlane, command: Command) -> None:
    """Do at a plane what a monitor was told, perhaps in another process.

    Raises:
        ConfigError: There is no such operation, or its values are refused.
        SvgError: A picture is none.
        RecordLogError: The folder of a record log cannot be written.
    """
    operation = _OPERATIONS.get(str(command.get("op")))
    if operation is None:
        known = ", ".join(sorted(_OPERATIONS))
        raise ConfigError(f"operation {command.get('op')!r}: must be one of {known}")
    operation(plane, command)


def _svg(plane: RunPlane, command: Command) -> None:
    plane.board.set_svg(safe_svg(str(command["svg"])))


def _heatmap(plane: RunPlane, command: Command) -> None:
    plane.board.add_heatmap(str(command["model"]), safe_svg(str(command["svg"])))


def _identity(plane: RunPlane, command: Command) -> None:
    facts = {"label": command["label"], "hash": command["hash"]}
    plane.board.set_facts(**facts)
    plane.board.tree.describe(**facts)


def _metadata(plane: RunPlane, command: Command) -> None:
    plane.board.set_metadata(command["metadata"])


def _reduction(plane: RunPlane, command: Command) -> None:
    plane.board.tree.declare(str(command["key"]), str(command["reduction"]))


def _record_log(plane: RunPlane, command: Command) -> None:
    plane.open_log(str(command["folder"]), int(command["max_bytes"]))


def _save_page(plane: RunPlane, command: Command) -> None:
    plane.save_page(
        SavedPage(
            path=Path(command["path"]),
            theme=command["theme"],
            max_bytes=int(command["max_bytes"]),
            every=command["every"],
        )
    )


def _finish(plane: RunPlane, command: Command) -> None:
    plane.finish(command["status"], linger=float(command["linger"]))


_OPERATIONS: Mapping[str, Callable[[RunPlane, Command], None]] = {
    "finish": _finish,
    "heatmap": _heatmap,
    "identity": _identity,
    "metadata": _metadata,
    "record_log": _record_log,
    "reduction": _reduction,
    "save_page": _save_page,
    "svg": _svg,
}
