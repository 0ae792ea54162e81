"""Fills the page of environment variables from the data that the code itself reads."""

from __future__ import annotations

from typing import Any

MARK = "<!-- variables -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the table of all variables in the place of its mark."""
    return markdown.replace(MARK, variables_table()) if MARK in markdown else markdown


def variables_table() -> str:
    """Return a Markdown table of every variable, sorted by name."""
    from flodl_sys.names import VARIABLES

    rows = ["| variable | value | unset means | read by | meaning |", "|---|---|---|---|---|"]
    for variable in sorted(VARIABLES, key=lambda known: known.name):
        cells = (variable.type, variable.default, variable.reader, variable.meaning)
        rows.append("| " + " | ".join([f"`{variable.name}`", *cells]) + " |")
    return "\n".join(rows)
