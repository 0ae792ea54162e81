"""The command line of the speed suite: ``fdl bench``."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ddp_bench.errors import BenchError, UsageError

if TYPE_CHECKING:
    from ddp_bench.speed.arms import Arm, Clock
    from ddp_bench.speed.models import SpeedModel

FAILED, MISUSE = 1, 2
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """What a preset sets; options win over it."""

    device: Literal["cpu", "cuda"]
    rounds: int
    runs: int
    discarded: int
    epochs: int
    warmup: int
    warmup_secs: float

    def changed(self, values: dict[str, Any]) -> Preset:
        """Return the preset with other values."""
        return dataclasses.replace(self, **values)


PRESETS = {
    "gpu": Preset(
        device="cuda", rounds=1, runs=3, discarded=1, epochs=20, warmup=3, warmup_secs=10.0
    ),
    "publish": Preset(
        device="cuda", rounds=10, runs=3, discarded=1, epochs=20, warmup=3, warmup_secs=15.0
    ),
    "cpu": Preset(device="cpu", rounds=1, runs=5, discarded=0, epochs=2, warmup=1, warmup_secs=0.0),
    "cpu-publish": Preset(
        device="cpu", rounds=10, runs=5, discarded=0, epochs=2, warmup=1, warmup_secs=0.0
    ),
}


@app.command()
def bench(  # noqa: PLR0913 (the signature is the list of options)
    preset: Annotated[
        Literal["gpu", "publish", "cpu", "cpu-publish"],
        typer.Argument(help="gpu or cpu: one round; publish, cpu-publish: ten."),
    ] = "gpu",
    *,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of all arms.")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of a round that count.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Measured epochs of a run.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Epochs before them.")] = None,
    discard: Annotated[
        int | None, typer.Option(min=0, help="Runs that each round begins with, not counted.")
    ] = None,
    warmup_secs: Annotated[
        float | None, typer.Option(min=0, help="Seconds of products that heat the GPU first.")
    ] = None,
    lock_clocks: Annotated[
        int | None, typer.Option(min=1, help="MHz to lock the GPU's clock to; released at the end.")
    ] = None,
    tier1: Annotated[bool, typer.Option("--tier1", help="Only models of tier 1.")] = False,
    tier2: Annotated[bool, typer.Option("--tier2", help="Only models of tier 2.")] = False,
    bench: Annotated[str | None, typer.Option(help="Models to measure: a comma list.")] = None,
    arms: Annotated[str | None, typer.Option(help="Arms to measure: a comma list.")] = None,
    also: Annotated[
        str | None, typer.Option(help="Further arms, beside the default ones: a comma list.")
    ] = None,
    dims: Annotated[
        Literal["full", "small"] | None, typer.Option(help="Size of the models.")
    ] = None,
    sync: Annotated[
        Literal["step", "epoch", "both"], typer.Option(help="When losses are read.")
    ] = "both",
    precision: Annotated[
        Literal["fp32", "tf32", "bf16"], typer.Option(help="Of products; bf16: autocast.")
    ] = "fp32",
    attention: Annotated[
        Literal["both", "fast"],
        typer.Option(help="Torch's attention with and without its weights, or without only."),
    ] = "both",
    clock: Annotated[
        Literal["wall", "cpu"],
        typer.Option(help="Compare times, or processor times: for a machine that others use too."),
    ] = "wall",
    threads: Annotated[int, typer.Option(min=1, help="Of torch on the CPU.")] = 1,
    starting: Annotated[
        int, typer.Option(min=1, help="Processes that build and compile at the same time.")
    ] = 1,
    ahead: Annotated[
        int, typer.Option(min=1, help="Models whose processes are started together.")
    ] = 1,
    cache: Annotated[
        Path | None, typer.Option(help="Folder to keep compiled kernels in (none is kept).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the results (runs/<device>).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="Exit 1 when a bar is missed.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End where an arm of flodl does not start.")
    ] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Measure on the CPU; as the preset.")] = False,
    report_only: Annotated[
        bool, typer.Option("--report", help="Measure nothing: read the folder again.")
    ] = False,
) -> None:
    """Measure ten models, each in all ways to train it, beside plain PyTorch.

    Also: fdl bench loader, dashboard and scaling, with options of their own.
    """
    from ddp_bench.speed.arms import choose

    chosen = PRESETS[
        {"gpu": "cpu", "publish": "cpu-publish"}.get(preset, preset) if cpu else preset
    ]
    given = {
        "rounds": rounds,
        "runs": runs,
        "epochs": epochs,
        "warmup": warmup,
        "discarded": discard,
        "warmup_secs": warmup_secs,
    }
    chosen = chosen.changed({k: v for k, v in given.items() if v is not None})
    try:
        folder = output or Path("runs") / chosen.device
        if not report_only:
            _measure(
                chosen,
                folder,
                _models(bench, tier1=tier1, tier2=tier2, is_cpu=chosen.device == "cpu"),
                choose(chosen.device, _words(arms), _words(also)),
                lock_clocks,
                dims=dims or ("small" if chosen.device == "cpu" else "full"),
                precision=precision,
                policies=("step", "epoch") if sync == "both" else (sync,),
                threads=threads,
                has_variants=attention == "both",
                starting=starting,
                ahead=ahead,
                cache=cache,
                is_strict=strict,
            )
        problems = _publish(folder, chosen.device, clock, as_json=as_json)
    except UsageError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(MISUSE) from None
    except BenchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from None
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(FAILED if gate and problems else 0)


def _words(text: str | None) -> list[str]:
    return text.split(",") if text else []


def _models(names: str | None, *, tier1: bool, tier2: bool, is_cpu: bool) -> tuple[SpeedModel, ...]:
    from ddp_bench.speed.models import EXTRAS, MODELS, find

    if names is not None:
        return tuple(find(name) for name in names.split(","))
    tiers = {1, 2} if tier1 == tier2 else {1} if tier1 else {2}
    # a step with nothing in it says what a loop costs; on a GPU it would say nothing
    extras = [model for model in EXTRAS if model.name != "noop" or is_cpu]
    return tuple(model for model in (*MODELS, *extras) if model.tier in tiers)


def _measure(
    preset: Preset,
    folder: Path,
    models: tuple[SpeedModel, ...],
    arms: tuple[Arm, ...],
    lock_clocks: int | None,
    **settings: Any,
) -> None:
    from ddp_bench.progress import to_stderr
    from ddp_bench.speed import conditions
    from ddp_bench.speed.results import write_text
    from ddp_bench.speed.suite import Suite, SuiteConfig

    is_gpu = preset.device == "cuda"
    if is_gpu and not conditions.gpu_facts():
        raise UsageError(
            "there is no GPU here: nvidia-smi names none",
            hint="fdl bench cpu measures on the processor",
        )
    config = SuiteConfig(
        models=models,
        arms=arms,
        device=preset.device,
        rounds=preset.rounds,
        runs=preset.runs,
        discarded=preset.discarded,
        epochs=preset.epochs,
        warmup=preset.warmup,
        output=folder,
        **settings,
    )
    with conditions.locked_clocks(lock_clocks) as clocks:
        limits = _probe(preset)
        environment = {**conditions.describe(preset.device), "clocks": clocks}
        write_text(folder / "limits.json", limits)
        Suite(config, environment, to_stderr).run()


def _probe(preset: Preset) -> str:
    """Return what the device can do, as JSON; a GPU is warm afterwards."""
    command = [sys.executable, "-m", "ddp_bench.speed.limits", "--device", preset.device]
    done = subprocess.run(
        [*command, "--warmup-secs", str(preset.warmup_secs)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"the device could not be measured: {done.stderr.strip()[-400:]}")
    return done.stdout


def _publish(folder: Path, device: str, clock: Clock, *, as_json: bool) -> list[str]:
    from ddp_bench.speed import results
    from ddp_bench.speed.limits import Limits
    from ddp_bench.speed.report import Report

    if clock == "cpu" and device == "cuda":
        raise UsageError("--clock cpu: what a GPU does takes no processor time")
    rows = results.load(folder)
    if not rows:
        raise UsageError(f"{folder}: no results of this suite", hint="run it without --report")
    limits = Limits(**json.loads((folder / "limits.json").read_text(encoding="utf-8")))
    report = Report(rows, limits, clock)
    text = report.markdown()
    results.write_text(folder / "report.md", text)
    if as_json:
        facts = {
            "results": [dataclasses.asdict(row) for row in rows],
            "limits": dataclasses.asdict(limits),
            "bars": [{**dataclasses.asdict(v), "holds": v.holds} for v in report.verdicts()],
        }
        typer.echo(json.dumps(facts, indent=1))
    else:
        typer.echo(text, nl=False)
    return report.problems()
