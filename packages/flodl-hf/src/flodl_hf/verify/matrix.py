"""All cells one after the other: export, then verify; one that fails does not stop the others."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flodl_hf.errors import HfError
from flodl_hf.export import export_source
from flodl_hf.verify.cells import Cell
from flodl_hf.verify.export import verify_export
from flodl_hf.verify.oracle import Sample, write_reference


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """How one cell went.

    Attributes:
        problem: Empty when it passed.
        difference: Largest difference from the reference.
        seconds: Wall time.
    """

    cell: Cell
    problem: str
    difference: float | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.problem


def run_matrix(
    cells: Sequence[Cell], *, offline: bool, staging: Path | None = None, keep: bool = False
) -> Iterator[CellResult]:
    """Yield the result of each cell.

    Args:
        cells: Which ones.
        offline: Take seeded tiny models that the reference writes, instead of published ones.
        staging: Where exports go; a temporary folder when left out.
        keep: Leave the exports there.
    """
    with _folder(staging, keep=keep) as root:
        for cell in cells:
            begin = time.perf_counter()
            problem, difference = "", None
            try:
                problem, difference = _run(cell, root / cell.name, offline=offline)
            except (HfError, OSError, ValueError, RuntimeError) as error:
                problem = f"{type(error).__name__}: {error}".splitlines()[0]
            yield CellResult(
                cell=cell,
                problem=problem,
                difference=difference,
                seconds=time.perf_counter() - begin,
            )


def _run(cell: Cell, folder: Path, *, offline: bool) -> tuple[str, float | None]:
    source: str | Path = cell.repo
    if offline:
        source = folder / "source"
        write_reference(Sample(family=cell.family, head=cell.head), source)
    exported = export_source(source, folder / "export", head=cell.head, force=True)
    report = verify_export(exported.folder, source=source, tolerance=cell.tolerance)
    problems = [f"{name}: {found}" for name, found in report.checks.items() if found]
    return "; ".join(problems), report.difference


@contextmanager
def _folder(staging: Path | None, *, keep: bool) -> Iterator[Path]:
    if staging is not None:
        staging.mkdir(parents=True, exist_ok=True)
        yield staging
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="flodl-hf-"))
    else:
        with tempfile.TemporaryDirectory(prefix="flodl-hf-") as folder:
            yield Path(folder)


def grid(results: Sequence[CellResult]) -> str:
    """Return results as a table of families and shapes."""
    heads = list(dict.fromkeys(result.cell.head for result in results))
    rows = [["family", *heads]]
    for family in dict.fromkeys(result.cell.family for result in results):
        found = {r.cell.head: r for r in results if r.cell.family == family}
        verdicts = [_verdict(found[head]) if head in found else "" for head in heads]
        rows.append([family, *verdicts])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = (
        " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(f"| {line} |" for line in lines)


def _verdict(result: CellResult) -> str:
    return f"{'PASS' if result.passed else 'FAIL'} {result.seconds:.1f}s"
