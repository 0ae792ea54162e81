"""How two architectures differ, for people."""

from __future__ import annotations

import json
from typing import Any

_MOST = 12


def differences(stored: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Return one line for each difference between two topologies, a dozen at most."""
    lines = [
        f"{part}: {_short(stored.get(part))} in the file, {_short(own.get(part))} here"
        for part in ("inputs", "outputs", "tags", "groups", "states")
        if stored.get(part) != own.get(part)
    ]
    theirs = [_identity(node) for node in stored.get("nodes", [])]
    ours = [_identity(node) for node in own.get("nodes", [])]
    for index in range(max(len(theirs), len(ours))):
        there = theirs[index] if index < len(theirs) else "nothing"
        here = ours[index] if index < len(ours) else "nothing"
        if there != here:
            lines.append(f"step {index + 1}: {there} in the file, {here} here")
    if not lines:
        lines = ["the shapes of parameters in modules of the same kinds"]
    more = len(lines) - _MOST
    return [*lines[:_MOST], f"… {more} more"] if more > 0 else lines


def _identity(node: Any) -> str:
    attrs = {name: value for name, value in node.get("attrs", {}).items() if value is not None}
    modules = {slot: _module(item) for slot, item in node.get("module", {}).items()}
    text = f"{node.get('id')} ({node.get('type')}"
    if attrs:
        text += f" {_short(attrs)}"
    if modules and any(modules.values()):
        text += f" {_short(modules)}"
    return text + ")"


def _module(item: dict[str, Any]) -> Any:
    return item.get("config") or item.get("function") or item.get("children")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
