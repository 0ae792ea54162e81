"""A scene as DOT text for Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.graph.viz.text import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flodl.graph.profiling import Profile
    from flodl.graph.viz.scene import Item, Scene

_EDGES = {
    "stream": 'color="#2c3e50"',
    "reference": 'color="#2980b9", style=dashed, fontcolor="#2980b9"',
    "state": 'color="#e67e22", style=dotted, fontcolor="#e67e22", constraint=false',
}


def dot_text(
    scene: Scene,
    title: str,
    *,
    fills: Mapping[str, str] | None = None,
    profile: Profile | None = None,
) -> str:
    """Return the same text for the same scene; every name in it is quoted.

    Args:
        scene: What to show.
        title: Caption.
        fills: Other fills by node, for a profile.
        profile: Times to write on nodes and levels.
    """
    lines = [
        "digraph flow {",
        f"  label={quoted(title)};",
        '  labelloc=t; rankdir=TB; fontname="Helvetica"; compound=true;',
        '  node [fontname="Helvetica", fontsize=11, style=filled, color="#7f8c8d"];',
        '  edge [fontname="Helvetica", fontsize=10, arrowsize=0.7];',
    ]
    times = {} if profile is None else {node.id: node.seconds for node in profile.nodes}
    walls = {} if profile is None else {item.index: item for item in profile.levels}
    for level in sorted({item.level for item in scene.items if not item.group}):
        label = f"level {level}"
        if level in walls:
            wall = walls[level]
            label += f": {time_text(wall.wall)}, parallelism {wall.parallelism:.1f}"
        lines.append(f"  subgraph {quoted(f'cluster_level_{level}')} {{")
        lines.append(f'    label={quoted(label)}; style=dashed; color="#bdc3c7"; fontsize=9;')
        lines += [
            f"    {_node(item, fills, times)}"
            for item in scene.items
            if not item.group and item.level == level
        ]
        lines.append("  }")
    lines += _groups(scene, "", "  ", fills, times)
    for link in scene.links:
        label = f", label={quoted(link.label)}" if link.label else ""
        lines.append(
            f"  {quoted(link.source)} -> {quoted(link.target)} [{_EDGES[link.kind]}{label}];"
        )
    return "\n".join([*lines, "}"]) + "\n"


def _groups(
    scene: Scene,
    parent: str,
    indent: str,
    fills: Mapping[str, str] | None,
    times: Mapping[str, float],
) -> list[str]:
    lines = []
    for group in scene.groups:
        if group.group != parent:
            continue
        lines.append(f"{indent}subgraph {quoted(f'cluster_{group.id}')} {{")
        lines.append(
            f"{indent}  label={quoted(group.title)}; style=rounded; "
            'color="#95a5a6"; bgcolor="#f8f9f9";'
        )
        lines += [
            f"{indent}  {_node(item, fills, times)}"
            for item in scene.items
            if item.group == group.id
        ]
        lines += _groups(scene, group.id, indent + "  ", fills, times)
        lines.append(f"{indent}}}")
    return lines


def _node(item: Item, fills: Mapping[str, str] | None, times: Mapping[str, float]) -> str:
    texts = [item.title, *item.lines]
    if item.node in times:
        texts.append(time_text(times[item.node]))
    fill = (fills or {}).get(item.node, item.fill)
    style = ', style="filled,dashed"' if item.frozen else ""
    label = quoted("\n".join(texts))
    return f'{quoted(item.id)} [label={label}, shape={item.shape}, fillcolor="{fill}"{style}];'


def quoted(text: str) -> str:
    """Return a quoted DOT string; nothing in a name can end it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
