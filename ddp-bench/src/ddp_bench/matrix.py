"""Many cells: planned from a request, checked before the first one trains, run in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

import torch

from ddp_bench.cell import CellPlan, run_cell
from ddp_bench.data.source import DataSource, Source, TaskData
from ddp_bench.definition import ModelDef
from ddp_bench.errors import UsageError
from ddp_bench.gates import Gate, judge_sane
from ddp_bench.learning_rate import choose_rate
from ddp_bench.modes import SoloMode, choose_modes
from ddp_bench.registry import choose_models
from ddp_bench.results import CellResult
from ddp_bench.run_folder import RunFolder
from ddp_bench.watch import Watch

DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the command line asked for."""

    models: str = "all"
    modes: str = "all"
    epochs: int | None = None
    seed: int = 42
    source: Source = "mini"
    data_dir: Path | None = None
    output: Path | None = None
    device: DeviceChoice = "auto"
    lr_scale: float | None = None
    lr_autoscale: bool = True
    watch: Watch = field(default_factory=Watch)

    @property
    def folder(self) -> Path:
        """Where run folders go."""
        if self.output is not None:
            return self.output
        return Path("runs/mini") if self.source == "mini" else Path("runs")


def plan_cells(request: Request, models: Mapping[str, ModelDef]) -> list[CellPlan]:
    """Return the cells of a request, model by model.

    Raises:
        UsageError: A model, mode or device is not there, or options do not fit together.
    """
    _check(request)
    device_type, count = _devices(request.device)
    modes = choose_modes(request.modes, device_type=device_type, device_count=count)
    return [
        _cell(request, definition, mode, device_type)
        for definition in choose_models(request.models, models)
        for mode in modes
    ]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Cells whose folders can be written and whose data is loaded."""

    cells: Sequence[tuple[CellPlan, TaskData]]

    @classmethod
    def prepare(cls, plans: Sequence[CellPlan], source: DataSource) -> Sweep:
        """Check every folder, then load every data set.

        Raises:
            RunFolderError: A folder cannot be written.
            DataError: A data file is missing or damaged.
        """
        for plan in plans:
            plan.folder.check()
        return cls([(plan, source.load(plan.setup.data)) for plan in plans])

    def run(
        self, *, on_start: Callable[[CellPlan, TaskData], None], stream: TextIO
    ) -> Iterator[tuple[CellResult, Gate]]:
        """Run one cell after the other, yielding each result and its gate."""
        for plan, data in self.cells:
            on_start(plan, data)
            result = run_cell(plan, data, stream=stream)
            yield result, judge_sane(result)


def _check(request: Request) -> None:
    if request.data_dir is not None and request.source == "mini":
        raise UsageError(
            f"--data-dir {request.data_dir}: the mini data lies inside flodl, in no folder",
            hint="add --source real, or leave --data-dir out",
        )
    scale = request.lr_scale
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise UsageError(
            f"--lr-scale {scale}: it must be a finite number above 0",
            hint="1 is the model's own learning rate",
        )


def _devices(choice: DeviceChoice) -> tuple[Literal["cpu", "cuda"], int]:
    count = 0 if choice == "cpu" or not torch.cuda.is_available() else torch.cuda.device_count()
    if count:
        return "cuda", count
    if choice == "cuda":
        raise UsageError(
            "--device cuda: torch sees no CUDA device in this process",
            hint="use --device cpu, or --device auto to take what there is",
        )
    return "cpu", 1


def _cell(
    request: Request, definition: ModelDef, mode: SoloMode, device_type: Literal["cpu", "cuda"]
) -> CellPlan:
    setup = definition.mini if request.source == "mini" else definition.defaults
    epochs = setup.epochs if request.epochs is None else request.epochs
    return CellPlan(
        definition=definition,
        setup=setup,
        mode=mode,
        source=request.source,
        seed=request.seed,
        epochs=epochs,
        rate=choose_rate(
            definition.lr,
            epochs=epochs,
            default_epochs=setup.epochs,
            scale=request.lr_scale,
            autoscale=request.lr_autoscale,
        ),
        device=torch.device("cuda", mode.index) if device_type == "cuda" else torch.device("cpu"),
        folder=RunFolder(request.folder / definition.name / mode.name),
        watch=request.watch,
    )
