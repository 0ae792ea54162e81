"""The 30 cells: six families, five shapes, and the published model of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import cast, get_args

from flodl_hf.errors import VerifyError
from flodl_hf.verify.oracle import Head


@dataclass(frozen=True, slots=True)
class Cell:
    """One family in one shape.

    Attributes:
        repo: Published model to check against.
    """

    family: str
    head: Head
    repo: str

    @property
    def name(self) -> str:
        """The cell's name, such as ``bert-qa``."""
        return f"{self.family}-{self.head}"

    @property
    def tolerance(self) -> float:
        """Largest difference that passes."""
        return 5e-5 if self.repo == "Davlan/xlm-roberta-large-ner-hrl" else 1e-5


def all_cells() -> list[Cell]:
    """Return the 30 cells, family by family."""
    text = (files("flodl_hf.verify") / "cells.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, str]] = json.loads(text)
    return [
        Cell(family, cast("Head", head), repo)
        for family, row in table.items()
        for head, repo in row.items()
    ]


def choose_cells(families: list[str] | None, heads: list[str] | None) -> list[Cell]:
    """Return the cells of some families and heads, all of them when left out.

    Raises:
        VerifyError: A name that there is not.
    """
    cells = all_cells()
    known_families = list(dict.fromkeys(cell.family for cell in cells))
    for given, known, what in (
        (families, known_families, "family"),
        (heads, list(get_args(Head)), "head"),
    ):
        unknown = [name for name in given or [] if name not in known]
        if unknown:
            raise VerifyError(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")
    return [
        cell
        for cell in cells
        if cell.family in (families or known_families) and cell.head in (heads or get_args(Head))
    ]
