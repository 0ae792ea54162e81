"""A request carried out on the terminal: headings, epoch lines, the table, the exit code."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

import torch

from ddp_bench.cell import CellPlan
from ddp_bench.data.source import DataSource, TaskData
from ddp_bench.gates import Gate
from ddp_bench.matrix import Request, Sweep, plan_cells
from ddp_bench.modes import MODES
from ddp_bench.registry import load_models
from ddp_bench.results import CellResult, dump_json
from ddp_bench.table import format_floor, render_table
from flodl import FlodlError

DONE, FAILED, INTERRUPTED = 0, 1, 130


class Session:
    """Runs the cells of one request and says what happens.

    Args:
        request: What to run.
        as_json: Write one JSON document to ``out`` at the end, and all talk to ``talk``.
        out: Where the result goes.
        talk: Where progress goes under ``as_json``; otherwise it goes to ``out``.
    """

    def __init__(
        self,
        request: Request,
        *,
        as_json: bool = False,
        out: TextIO | None = None,
        talk: TextIO | None = None,
    ) -> None:
        self._request = request
        self._as_json = as_json
        self._out = out or sys.stdout
        self._errors = talk or sys.stderr
        self._talk = self._errors if as_json else self._out
        self._rows: list[tuple[CellResult, Gate]] = []
        self._current: CellPlan | None = None

    def run(self) -> int:
        """Run all cells and return the exit code: 0, 1 when a cell failed, 130 after Ctrl-C.

        Raises:
            FlodlError: Nothing can be run as asked, or files cannot be written; a note on the
                error says what was kept.
        """
        if self._request.source == "mini":
            # The mini set-ups are sized for one thread; more of them on few cores only wait.
            torch.set_num_threads(1)
        try:
            plans = plan_cells(self._request, load_models())
            self._announce_modes(plans)
            source = DataSource(self._request.source, self._request.data_dir)
            sweep = Sweep.prepare(plans, source)
            for row in sweep.run(on_start=self._announce, stream=self._talk):
                self._rows.append(row)
        except KeyboardInterrupt:
            self._errors.write(f"interrupted: {self._kept()}\n")
            return INTERRUPTED
        except FlodlError as error:
            if self._current is not None:
                error.add_note(self._kept())
            raise
        return self._conclude()

    def _announce_modes(self, plans: Sequence[CellPlan]) -> None:
        """Say which of all modes are left out, where all were asked for."""
        if self._request.modes != "all":
            return
        chosen = ", ".join(dict.fromkeys(plan.mode.name for plan in plans))
        missing = ", ".join(mode.name for mode in MODES if mode.unavailable)
        text = f"modes: {chosen}; not available in this version: {missing}"
        self._talk.write(textwrap.fill(text, 80, break_on_hyphens=False) + "\n")

    def _announce(self, plan: CellPlan, data: TaskData) -> None:
        self._current = plan
        definition = plan.definition
        facts = f"{plan.source} data, {data.facts.n_train:,} + {data.facts.n_test:,} samples"
        floor = format_floor(plan.floor, higher_is_better=definition.higher_is_better)
        goal = "" if plan.floor is None else f"; goal: {definition.metric} {floor}"
        lines = ["", f"{plan.name}: {definition.description}", f"  {facts}{goal}"]
        if plan.rate.note is not None:
            lines.append(f"  learning rate {plan.rate.value:g}: {plan.rate.note}")
        self._talk.write("\n".join(lines) + "\n")
        self._talk.flush()

    def _kept(self) -> str:
        finished = ", ".join(f"{result.model}/{result.mode}" for result, _ in self._rows)
        done = f"finished: {finished}, in {self._request.folder}" if finished else "none finished"
        if self._current is None:
            return "before the first cell; nothing was written"
        return f"{self._current.name} was dropped, its folder is as it was before; {done}"

    def _conclude(self) -> int:
        passed = all(gate.verdict == "PASS" for _, gate in self._rows)
        count = sum(gate.verdict == "PASS" for _, gate in self._rows)
        seconds = sum(result.wall.total_s for result, _ in self._rows)
        self._talk.write(f"\n{render_table(self._rows)}\n")
        self._talk.write(
            f"{count} of {len(self._rows)} cells passed in {seconds:.1f} s; "
            f"files: {self._request.folder}/<model>/<mode>\n"
        )
        if self._as_json:
            self._out.write(dump_json(_document(self._rows, passed=passed)))
        return DONE if passed else FAILED


def _document(rows: list[tuple[CellResult, Gate]], *, passed: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "passed": passed,
        "cells": [
            {
                "result": result.as_json(),
                "gates": {
                    gate.name: {
                        "verdict": gate.verdict,
                        "checks": [asdict(check) for check in gate.checks],
                    }
                },
            }
            for result, gate in rows
        ],
    }
